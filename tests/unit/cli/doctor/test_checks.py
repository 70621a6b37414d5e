"""The doctor's checks: every finding has a reason and a remedy."""

import pytest
from msgspec.structs import replace

from nodeagent.cli.doctor.checks import CHECKS, find_worst, run_checks
from nodeagent.cli.doctor.facts import (
    ApiFacts,
    Facts,
    PluginSocketFacts,
    ProcessFacts,
    SocketFacts,
)
from nodeagent.cli.doctor.verdicts import Check, Grade, render_checks
from nodeagent.components.cdi.registry import SpecReading
from nodeagent.components.runtime.choose import ChosenRuntime, NoRuntime
from nodeagent.components.web.api.records import GpuRecord, GpusRecord
from nodeagent.edge.nvml.agent.protocol import read_code
from nodeagent.model.driver import DriverPhase, DriverState, PciFunction
from nodeagent.model.gpu import GpuReadout, MissingGpu
from nodeagent.model.ids import ResourceName
from nodeagent.model.mps import MpsPhase, MpsState
from nodeagent.model.plugin import AdvertisedResource, PluginState
from nodeagent.model.ports import KubeletCheckpoint
from nodeagent.model.runtime import CdiState
from tests.support.mps import daemon_of
from tests.support.nodes import make_brake, make_cordon, make_mode, make_rich_state
from tests.support.samples import make_address, make_gpu, make_uuid
from tests.unit.cli.doctor.healthy_node import AGENT, DIRECTORY, EVIDENCE, HEALTHY, HELD, RUNTIME, SHIM

UNREGISTERED = PluginState(
    resources=(
        AdvertisedResource(name=ResourceName("nvidia.com/gpu"), socket="s", registered=False, last_error="no kubelet"),
    )
)
DOWN = daemon_of(make_uuid(0), MpsPhase.BROKEN, "it ended")
WAITING = daemon_of(make_uuid(0), MpsPhase.WAITING, "for ns/a")
VFIO = replace(EVIDENCE, pci_functions=(PciFunction(address=make_address(0), device_id=1, bound_driver="vfio-pci"),))
WANTED = ("`resource.k8s.io/v1`", "drivers of claims")
OLD = ApiFacts(where="sa", server_version="v1.33.9", kubelet_version="v1.33.9")
DENIED = SocketFacts(path="/k", problem="permission denied")


def _find(facts: Facts, name: str) -> list[Check]:
    return [check for check in run_checks(facts) if check.name == name]


def test_a_node_in_order_gets_a_clean_bill() -> None:
    """Every check has a line, all are ok, and none tells anybody to do anything."""
    checks = run_checks(HEALTHY)
    assert find_worst(checks) is Grade.OK
    assert [check.remedy for check in checks if check.remedy] == []
    assert len(checks) >= len(CHECKS)


@pytest.mark.parametrize(
    ("change", "name", "grade", "words"),
    [
        ({"configuration_problems": ("a: b",)}, "configuration", Grade.FAIL, "a: b"),
        ({"configuration_notices": ("x is not built",)}, "configuration", Grade.WARN, "not built"),
        ({"user_id": 5}, "user", Grade.WARN, "not root"),
        ({"evidence": None, "evidence_problem": "hung"}, "hardware", Grade.FAIL, "hung"),
        ({"evidence": replace(EVIDENCE, pci_functions=())}, "hardware", Grade.FAIL, "no NVIDIA GPU"),
        ({"evidence": replace(EVIDENCE, library=read_code(9), module_loaded=False)}, "driver", Grade.FAIL, "loaded"),
        ({"evidence": replace(EVIDENCE, nodes_missing=("/dev/nvidia-uvm",))}, "driver", Grade.WARN, "nodes"),
        (
            {"evidence": replace(EVIDENCE, library=None, nodes_missing=("/dev/nvidia0",))},
            "device nodes",
            Grade.FAIL,
            "/dev/nvidia0",
        ),
        ({"evidence": replace(EVIDENCE, library_version="570.2")}, "versions", Grade.FAIL, "570.2"),
        ({"evidence": replace(EVIDENCE, fabric_pending=("GPU-1",))}, "fabric", Grade.FAIL, "1 GPUs"),
        ({"readout": None, "readout_problem": "no"}, "nvml", Grade.FAIL, "no"),
        ({"readout": GpuReadout(gpus=(make_gpu(0, lost="fell off"),))}, "nvml", Grade.FAIL, "fell off"),
        ({"readout": GpuReadout()}, "nvml", Grade.WARN, "0 GPUs listed, 1 on the PCI bus"),
        (
            {"readout": GpuReadout(missing=(MissingGpu(address=make_address(1), device_id=1, reason="asleep"),))},
            "nvml",
            Grade.FAIL,
            "asleep",
        ),
        ({"agent": None, "agent_problem": "no agent answers"}, "agent", Grade.WARN, "no agent answers"),
        ({"agent": make_rich_state("word")}, "agent", Grade.WARN, "a simulation answers"),
        ({"agent": replace(AGENT, version="0.9")}, "versions", Grade.WARN, "the agent that runs is 0.9"),
        ({"evidence": VFIO}, "hardware", Grade.WARN, "vfio-pci"),
        ({"evidence": replace(EVIDENCE, nodes_missing=("/dev/nvidia-uvm",))}, "device nodes", Grade.WARN, "uvm"),
        ({"evidence": replace(EVIDENCE, library=read_code(9))}, "fabric", Grade.WARN, "nobody knows"),
        ({"kubelet": DENIED, "user_id": 5}, "kubelet socket", Grade.WARN, "may not be opened by this user"),
        ({"pod_resources": DENIED, "user_id": 5}, "pod resources", Grade.WARN, "may not be opened by this user"),
        ({"agent": None, "checkpoint": KubeletCheckpoint()}, "registration", Grade.WARN, "remembers nothing"),
        ({"agent": None, "checkpoint": None, "checkpoint_problem": "torn"}, "registration", Grade.WARN, "torn"),
        ({"agent": replace(AGENT, plugin=None)}, "registration", Grade.WARN, "offers nothing"),
        ({"agent": replace(AGENT, plugin=UNREGISTERED)}, "registration", Grade.FAIL, "no kubelet"),
        ({"api": ApiFacts(where="sa", allocatable={"nvidia.com/gpu": 0})}, "allocatable", Grade.FAIL, "says 0"),
        ({"api": ApiFacts(where="sa", allocatable={"nvidia.com/gpu": 3})}, "allocatable", Grade.WARN, "says 3"),
        ({"checkpoint": None}, "allocatable", Grade.WARN, "is not known"),
        ({"checkpoint": KubeletCheckpoint()}, "allocatable", Grade.WARN, "the kubelet remembers 0"),
        ({"agent": None, "readout": None}, "allocatable", Grade.WARN, "not known"),
        ({"agent": None}, "allocatable", Grade.WARN, "no agent offers them"),
        ({"agent": None, "readout": GpuReadout(), "checkpoint": HELD}, "allocatable", Grade.FAIL, "0 GPUs answer"),
        ({"directories": (replace(DIRECTORY, free_bytes=100 << 20),)}, "disk", Grade.WARN, "100 MiB of"),
        ({"clock_behind_seconds": 20.0 * 86400}, "clock", Grade.FAIL, "20 days before"),
        ({"strangers": (ProcessFacts(pid=4, program="nvidia-device-plugin"),)}, "conflicts", Grade.FAIL, "pid 4"),
        ({"plugin_sockets": (PluginSocketFacts(path="/n.sock", pid=9),)}, "conflicts", Grade.FAIL, "serves /n.sock"),
        ({"foreign_files": ("/run/nvidia/toolkit/toolkit.pid",)}, "conflicts", Grade.WARN, "toolkit container"),
        ({"agent": replace(AGENT, ready=False, sentence="waits")}, "agent", Grade.FAIL, "not ready: waits"),
        ({"kubelet": SocketFacts(path="/k", problem="refused")}, "kubelet socket", Grade.FAIL, "refused"),
        ({"pod_resources": SocketFacts(path="/p", problem="gone")}, "pod resources", Grade.FAIL, "gone"),
        ({"specs": ()}, "cdi", Grade.WARN, "no specification"),
        ({"specs": HEALTHY.specs * 2}, "cdi", Grade.FAIL, "defined more than once"),
        ({"specs": (SpecReading(path="/b.json", problem="no JSON"),)}, "cdi", Grade.FAIL, "no JSON"),
        ({"runtime": None, "runtime_problem": "silent"}, "runtime", Grade.WARN, "silent"),
        ({"runtime": NoRuntime(reason="none found")}, "runtime", Grade.WARN, "none found"),
        ({"runtime": replace(RUNTIME, cdi_in_force=False)}, "runtime", Grade.FAIL, "CDI is off"),
        ({"runtime": replace(RUNTIME, cdi_in_force=None)}, "runtime", Grade.WARN, "does not say"),
        ({"mps_problem": "there is no program"}, "mps", Grade.FAIL, "there is no program"),
        ({"mps_memory": "/run/mps/shm"}, "mps", Grade.WARN, "/run/mps/shm, which containers have as /dev/shm"),
        ({"agent": replace(AGENT, mps=MpsState(daemons=(DOWN,)))}, "mps", Grade.FAIL, "is down: it ended"),
        ({"agent": replace(AGENT, mps=MpsState(daemons=(WAITING,)))}, "mps", Grade.WARN, "waits: for ns/a"),
        ({"shim": replace(SHIM, problem="it is not there")}, "shim", Grade.FAIL, "do not start"),
        ({"shim": replace(SHIM, table_problem="it is damaged")}, "shim", Grade.FAIL, "are refused"),
        ({"shim": replace(SHIM, table_problem="it is damaged", passes=True)}, "shim", Grade.WARN, "start without"),
        ({"toolkit_containers": 2}, "shim", Grade.WARN, "2 containers were made by NVIDIA's runtime"),
        ({"api": ApiFacts()}, "api server", Grade.WARN, "no credentials"),
        ({"api": ApiFacts(where="sa", problem="timeout")}, "api server", Grade.FAIL, "timeout"),
        ({"api": ApiFacts(where="sa", denied=("patch nodes",))}, "api server", Grade.FAIL, "may not patch nodes"),
        ({"directories": (replace(DIRECTORY, writable=False),)}, "disk", Grade.FAIL, "cannot be written"),
        ({"directories": (replace(DIRECTORY, free_bytes=5),)}, "disk", Grade.FAIL, "5 B of"),
        ({"clock_synchronised": False}, "clock", Grade.WARN, "not synchronised"),
        ({"clock_synchronised": None}, "clock", Grade.WARN, "does not say"),
        ({"strangers": (ProcessFacts(pid=4, program="dcgm-exporter"),)}, "conflicts", Grade.WARN, "pid 4"),
        ({"wanted_abilities": WANTED, "api": OLD}, "kubernetes", Grade.FAIL, "v1.33.9 lacks `resource.k8s.io/v1`"),
        (
            {"wanted_abilities": WANTED, "api": OLD},
            "kubernetes",
            Grade.WARN,
            "kubelet v1.33.9 has drivers of claims only with the feature gate DynamicResourceAllocation",
        ),
        (
            {"runtime": replace(RUNTIME, version="1.7.28")},
            "endings",
            Grade.WARN,
            "containerd 1.7: kubelet 1.37 is the last",
        ),
        ({"cgroup_v1": True}, "endings", Grade.WARN, "cgroup v1: kubelets from 1.35"),
    ],
)
def test_what_is_wrong_is_found_with_a_remedy(change: dict[str, object], name: str, grade: Grade, words: str) -> None:
    """Each fault is named in its own check, with its weight and something to do."""
    found = [check for check in _find(replace(HEALTHY, **change), name) if check.grade is grade]
    assert [check for check in found if words in check.found]
    assert all(check.remedy for check in found)


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        ({"simulated": True, "evidence": replace(EVIDENCE, pci_functions=())}, "hardware", "simulated"),
        ({"evidence": replace(EVIDENCE, pci_functions=EVIDENCE.pci_functions * 2)}, "hardware", "2 NVIDIA GPUs"),
        ({"api": None}, "api server", "not used"),
        ({"agent": replace(AGENT, cdi=CdiState(1, hook="/lib/hook"))}, "cdi", "/lib/hook is run for each"),
        ({"agent": replace(AGENT, cdi=CdiState(1, no_hook_reason="read only"))}, "cdi", "no linker cache (read only)"),
        ({"agent": replace(AGENT, cdi=CdiState(1))}, "cdi", "no linker cache: "),
        ({"agent": None, "specs": (replace(HEALTHY.specs[0], hook="/lib/hook"),)}, "cdi", "/lib/hook is run"),
        ({"agent": None}, "cdi", "TRITON_LIBCUDA_PATH"),
        ({"directories": (replace(DIRECTORY, free_bytes=900, total_bytes=1000),)}, "disk", "900 B of"),
        ({"kubelet": None, "pod_resources": None}, "agent", "all is well"),
        ({"evidence": replace(EVIDENCE, nvswitch_count=0)}, "fabric", "no NVSwitch"),
        ({"simulated": True}, "device nodes", "simulated, there are none"),
        ({"api": ApiFacts(where="sa", allocatable={"nvidia.com/gpu": 1})}, "allocatable", "allocatable says 1"),
        ({"plugin_sockets": (PluginSocketFacts(path="/n", pid=AGENT.pid),)}, "conflicts", "no other device plugin"),
        ({"plugin_sockets": (PluginSocketFacts(path="/n", pid=0),)}, "conflicts", "no other device plugin"),
        ({"wanted_abilities": WANTED}, "kubernetes", "API server v1.36.3, kubelet v1.36.3: what the settings need"),
        ({"api": replace(OLD, kubelet_version="")}, "kubernetes", "v1.33.9, kubelet of unknown version"),
        ({"runtime": replace(RUNTIME, version="")}, "endings", "nothing on this node"),
        ({"runtime": NoRuntime(reason="none found")}, "endings", "nothing on this node"),
    ],
)
def test_what_is_no_fault_is_not_made_one(change: dict[str, object], name: str, words: str) -> None:
    """A simulation has no PCI bus to look at, and who does not use the API needs no credentials."""
    assert [check for check in _find(replace(HEALTHY, **change), name) if words in check.found]


def test_what_a_version_lacks_is_told_with_the_way_to_have_it() -> None:
    """A gate is looked up where its side tells of gates; what no gate brings needs another version."""
    facts = replace(HEALTHY, wanted_abilities=("taints of devices",), api=OLD)
    (lacking,) = _find(facts, "kubernetes")
    assert lacking.remedy == "upgrade the API server to 1.36, or set claims.enabled: false"
    (server,) = _find(replace(facts, api=replace(OLD, server_version="v1.34.1+k3s1")), "kubernetes")
    assert server.remedy.startswith("kubectl get --raw /metrics | grep feature_enabled.*DRADeviceTaints; switch")
    (kubelet,) = _find(replace(facts, wanted_abilities=("drivers of claims",)), "kubernetes")
    assert kubelet.remedy.startswith("kubectl get --raw /api/v1/nodes/NODE/proxy/metrics | grep")


@pytest.mark.parametrize("api", [None, ApiFacts(), ApiFacts(where="sa", problem="timeout")])
def test_versions_that_nobody_tells_are_no_finding(api: ApiFacts | None) -> None:
    """The check of the API server says why already."""
    assert _find(replace(HEALTHY, api=api, wanted_abilities=WANTED), "kubernetes") == []


def test_conditions_of_the_agent_are_findings() -> None:
    """What the agent knows is told with its remedy; what is merely noted is not."""
    agent = replace(AGENT, conditions=make_rich_state("word").conditions, verdict="broken")
    noted = replace(agent.conditions[1], severity="info", title="noted")
    checks = _find(replace(HEALTHY, agent=replace(agent, conditions=(*agent.conditions, noted))), "agent")
    assert [check.grade for check in checks] == [Grade.FAIL, Grade.WARN]
    assert checks[0].remedy == "word"


def test_each_closed_gpu_is_named_with_what_opens_it() -> None:
    """A cordon that a person wants is no condition that worries, and explains a pod that waits all the same."""
    person = make_cordon(1, who="ann")
    brake = make_brake(0, until_seconds=1_000.0)
    modes = (make_mode(0, brake), make_mode(1, person), make_mode(2, trial=make_brake(2)), None)
    gpus = tuple(GpuRecord(gpu=make_gpu(index), door=mode) for index, mode in enumerate(modes))
    checks = _find(replace(HEALTHY, agent=replace(AGENT, gpus=GpusRecord(generation=1, gpus=gpus))), "cordons")
    assert {check.grade for check in checks} == {Grade.WARN}
    assert [(check.found, check.remedy.partition(";")[0]) for check in checks] == [
        (
            "GPU 0: cordoned by the brake: 3 starts were lost, until 1970-01-01T00:16:40Z",
            "a single pod that lasts after 1970-01-01T00:16:40Z",
        ),
        ("GPU 1: cordoned by ann: fan", "`nodeagent gpu uncordon 1`"),
        ("GPU 2: door whole, for one pod, after the brake: 3 starts were lost", "a single pod that lasts"),
    ]


def test_what_no_condition_says_yet_is_told_by_the_headline() -> None:
    """An agent that is not well is never silent; many of one kind are counted, with where the rest is."""
    agent = replace(AGENT, verdict="attention", sentence="7 of 8 GPUs offered: GPU 3: not looked at yet", conditions=())
    (check,) = _find(replace(HEALTHY, agent=agent), "agent")
    assert (check.grade, check.found) == (Grade.WARN, agent.sentence)
    (condition, *_) = make_rich_state("word").conditions
    many = tuple(replace(condition, key=str(number)) for number in range(9))
    checks = _find(replace(HEALTHY, agent=replace(agent, conditions=many)), "agent")
    assert len(checks) == 4
    assert (checks[-1].found, checks[-1].remedy) == (f"6 more of these ({condition.code})", "nodeagent status --all")


THREE_GRADES = {
    "agent",
    "allocatable",
    "api server",
    "cdi",
    "clock",
    "configuration",
    "conflicts",
    "device nodes",
    "disk",
    "driver",
    "fabric",
    "hardware",
    "kubelet socket",
    "kubernetes",
    "mps",
    "nvml",
    "pod resources",
    "registration",
    "runtime",
    "shim",
    "versions",
}


def test_every_check_has_been_seen_ok_warn_and_fail() -> None:
    """No check of the list is one that cannot warn or cannot fail; each grade of each is in the table above."""
    marks = [mark for mark in test_what_is_wrong_is_found_with_a_remedy.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]  # pytest hangs its marks on the function
    seen = {(name, grade) for _, name, grade, _ in marks[0].args[1]}
    seen |= {(check.name, check.grade) for check in run_checks(HEALTHY)}
    assert {name for name, _ in seen} == THREE_GRADES | {"user", "endings", "cordons"}
    assert {(name, grade) for name in THREE_GRADES for grade in Grade} <= seen


def test_a_resource_that_is_not_registered_is_not_compared() -> None:
    """Its absence from the kubelet is told once, as what it is."""
    facts = replace(HEALTHY, agent=replace(AGENT, plugin=make_rich_state("word").plugin))
    assert [check.grade for check in _find(facts, "registration")] == [Grade.OK, Grade.FAIL]
    assert len(_find(facts, "allocatable")) == 1


def test_the_lines_say_it_without_colour_and_without_escapes() -> None:
    """A sign and a word for each grade; text from outside cannot move the cursor."""
    checks = (
        Check(name="a", grade=Grade.OK, found="fine"),
        Check(name="bb", grade=Grade.FAIL, found="no\x1b[2J", remedy="do this"),
    )
    assert render_checks(checks, width=80, colour=False).splitlines() == [
        "✓ ok    a   fine",
        "✗ fail  bb  no�[2J",
        "            → do this",
        "",
        "1 ok, 0 warn, 1 fail",
    ]
    assert "\x1b[" in render_checks(checks, width=80, colour=True)
    assert find_worst(()) is Grade.OK
    long = (Check(name="a", grade=Grade.WARN, found="word " * 40, remedy="do " * 60),)
    narrow = render_checks(long, width=60, colour=False).splitlines()
    assert max(map(len, narrow)) <= 60
    assert " ".join(narrow).count("do") == 60


def test_the_shim_says_what_it_gives_where_it_is_wanted() -> None:
    (check,) = _find(HEALTHY, "shim")
    assert check.found == "/s gives 2 devices to containers that ask by environment"
    assert _find(replace(HEALTHY, shim=None), "shim") == []


@pytest.mark.parametrize("in_force", [False, None])
@pytest.mark.parametrize(
    ("program", "grades"),
    [("/s", [Grade.OK]), ("/other", [Grade.FAIL, Grade.WARN])],
)
def test_a_runtime_without_cdi_is_no_fault_where_the_shim_takes_its_place(
    program: str, grades: list[Grade], in_force: bool | None
) -> None:
    """For parts of GPUs, and where every container goes through it."""
    assert isinstance(HEALTHY.runtime, ChosenRuntime)
    runtime = replace(HEALTHY.runtime, cdi_in_force=in_force, programs={"nvidia": program}, default_handler="nvidia")
    (check,) = _find(replace(HEALTHY, runtime=runtime), "runtime")
    assert check.grade in grades
    assert ("the runtime shim tells containers" in check.found) is (program == "/s")


def test_nothing_is_said_of_daemons_that_nobody_asks_for() -> None:
    """Without the agent what is on the host is told alone."""
    assert _find(replace(HEALTHY, mps_problem=None), "mps") == []
    (check,) = _find(replace(HEALTHY, agent=None), "mps")
    assert check.grade is Grade.OK


def test_a_node_that_does_without_gpus_is_not_blamed_for_having_none() -> None:
    """By the agent's own word; without it they are missed."""
    assert HEALTHY.agent is not None
    bare = replace(EVIDENCE, pci_functions=(), module_loaded=False, library=read_code(9))
    driver = DriverState(phase=DriverPhase.NO_HARDWARE, is_needed=False)
    done = replace(HEALTHY, evidence=bare, agent=replace(HEALTHY.agent, driver=driver))
    assert [check.found for check in _find(done, "hardware")] == ["no NVIDIA GPU on the PCI bus, and none is needed"]
    assert _find(done, "driver") == []
    assert [check.grade for check in _find(replace(done, agent=HEALTHY.agent), "hardware")] == [Grade.FAIL]
