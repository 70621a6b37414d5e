"""The doctor: every finding has a reason and a remedy, and no secret leaves the node."""

import io
import os
import socket
import tarfile
from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from nodeagent.cli.doctor.bundle import redact, write_bundle
from nodeagent.cli.doctor.checks import CHECKS, find_worst, run_checks
from nodeagent.cli.doctor.facts import (
    ApiFacts,
    DirectoryFacts,
    Facts,
    PluginSocketFacts,
    ProcessFacts,
    SocketFacts,
)
from nodeagent.cli.doctor.look_host import (
    find_plugin_sockets,
    find_strangers,
    look_at_directory,
    look_at_host,
    look_at_socket,
    read_clock,
    read_specs,
)
from nodeagent.cli.doctor.verdicts import Check, Grade
from nodeagent.cli.doctor.view import render_checks
from nodeagent.cli.main import Streams, run_command_line
from nodeagent.components.cdi.registry import SpecReading
from nodeagent.components.runtime.choose import ChosenRuntime, NoRuntime
from nodeagent.config.load import load_settings
from nodeagent.model.driver import DriverEvidence, NvmlAnswer, PciFunction
from nodeagent.model.gpu import GpuReadout, MissingGpu
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, PluginState
from nodeagent.model.ports import KubeletCheckpoint
from nodeagent.model.runtime import RuntimeFlavour, RuntimeKind
from tests.support.nodes import make_rich_state
from tests.support.samples import make_address, make_gpu

EVIDENCE = DriverEvidence(
    pci_functions=(PciFunction(address=make_address(0), device_id=1),),
    module_loaded=True,
    module_version="580.1",
    library_version="580.1",
    nvml=NvmlAnswer(code=0, driver_version="580.1", gpu_count=1),
    nvswitch_count=4,
)
RUNTIME = ChosenRuntime(
    kind=RuntimeKind.CONTAINERD,
    flavour=RuntimeFlavour.PLAIN,
    socket="/s",
    config_file="/c",
    version="2.1",
    cdi_in_force=True,
)
DIRECTORY = DirectoryFacts(path="/d", writable=True, free_bytes=1 << 30, total_bytes=1 << 40)
AGENT = replace(
    make_rich_state("word"),
    conditions=(),
    verdict="ok",
    ready=True,
    sentence="all is well",
    gpu_source="nvml",
    version="1.2.3",
    plugin=PluginState(
        resources=(
            AdvertisedResource(
                name=ResourceName("nvidia.com/gpu"),
                socket="nvidia-gpu.sock",
                registered=True,
                devices=(AdvertisedDevice(id=DeviceId("a"), healthy=True),),
            ),
        )
    ),
)
UNREGISTERED = PluginState(
    resources=(
        AdvertisedResource(name=ResourceName("nvidia.com/gpu"), socket="s", registered=False, last_error="no kubelet"),
    )
)
HELD = KubeletCheckpoint(registered={ResourceName("nvidia.com/gpu"): (DeviceId("a"),)})
VFIO = replace(EVIDENCE, pci_functions=(PciFunction(address=make_address(0), device_id=1, bound_driver="vfio-pci"),))
DENIED = SocketFacts(path="/k", problem="permission denied")
HEALTHY = Facts(
    version="1.2.3",
    python="3.11",
    kernel="6.1",
    user_id=0,
    evidence=EVIDENCE,
    readout=GpuReadout(gpus=(make_gpu(0),)),
    agent=AGENT,
    kubelet=SocketFacts(path="/k"),
    pod_resources=SocketFacts(path="/p"),
    checkpoint=HELD,
    specs=(SpecReading(path="/a.json", kind="nvidia.com/gpu", version="0.6.0", devices=("0",)),),
    runtime=RUNTIME,
    api=ApiFacts(where="sa"),
    directories=(DIRECTORY,),
    clock_synchronised=True,
)


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
        ({"evidence": replace(EVIDENCE, nvml=NvmlAnswer(code=9), module_loaded=False)}, "driver", Grade.FAIL, "loaded"),
        ({"evidence": replace(EVIDENCE, nodes_missing=("/dev/nvidia-uvm",))}, "driver", Grade.WARN, "nodes"),
        (
            {"evidence": replace(EVIDENCE, nvml=None, nodes_missing=("/dev/nvidia0",))},
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
        ({"evidence": replace(EVIDENCE, nvml=NvmlAnswer(code=9))}, "fabric", Grade.WARN, "nobody knows"),
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
        ({"api": ApiFacts()}, "api server", Grade.WARN, "no credentials"),
        ({"api": ApiFacts(where="sa", problem="timeout")}, "api server", Grade.FAIL, "timeout"),
        ({"api": ApiFacts(where="sa", denied=("patch nodes",))}, "api server", Grade.FAIL, "may not patch nodes"),
        ({"directories": (replace(DIRECTORY, writable=False),)}, "disk", Grade.FAIL, "cannot be written"),
        ({"directories": (replace(DIRECTORY, free_bytes=5),)}, "disk", Grade.FAIL, "5 B of"),
        ({"clock_synchronised": False}, "clock", Grade.WARN, "not synchronised"),
        ({"clock_synchronised": None}, "clock", Grade.WARN, "does not say"),
        ({"strangers": (ProcessFacts(pid=4, program="dcgm-exporter"),)}, "conflicts", Grade.WARN, "pid 4"),
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
        ({"directories": (replace(DIRECTORY, free_bytes=900, total_bytes=1000),)}, "disk", "900 B of"),
        ({"kubelet": None, "pod_resources": None}, "agent", "all is well"),
        ({"evidence": replace(EVIDENCE, nvswitch_count=0)}, "fabric", "no NVSwitch"),
        ({"simulated": True}, "device nodes", "simulated, there are none"),
        ({"api": ApiFacts(where="sa", allocatable={"nvidia.com/gpu": 1})}, "allocatable", "allocatable says 1"),
        ({"plugin_sockets": (PluginSocketFacts(path="/n", pid=AGENT.pid),)}, "conflicts", "no other device plugin"),
        ({"plugin_sockets": (PluginSocketFacts(path="/n", pid=0),)}, "conflicts", "no other device plugin"),
    ],
)
def test_what_is_no_fault_is_not_made_one(change: dict[str, object], name: str, words: str) -> None:
    """A simulation has no PCI bus to look at, and who does not use the API needs no credentials."""
    assert [check for check in _find(replace(HEALTHY, **change), name) if words in check.found]


def test_conditions_of_the_agent_are_findings() -> None:
    """What the agent knows is told with its remedy; what is merely noted is not."""
    agent = replace(AGENT, conditions=make_rich_state("word").conditions, verdict="broken")
    noted = replace(agent.conditions[1], severity="info", title="noted")
    checks = _find(replace(HEALTHY, agent=replace(agent, conditions=(*agent.conditions, noted))), "agent")
    assert [check.grade for check in checks] == [Grade.FAIL, Grade.WARN]
    assert checks[0].remedy == "word"


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
    "nvml",
    "pod resources",
    "registration",
    "runtime",
    "versions",
}


def test_every_check_has_been_seen_ok_warn_and_fail() -> None:
    """No check of the list is one that cannot warn or cannot fail; each grade of each is in the table above."""
    marks = [mark for mark in test_what_is_wrong_is_found_with_a_remedy.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]  # pytest hangs its marks on the function
    seen = {(name, grade) for _, name, grade, _ in marks[0].args[1]}
    seen |= {(check.name, check.grade) for check in run_checks(HEALTHY)}
    assert {name for name, _ in seen} == THREE_GRADES | {"user"}
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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"api_token": "abc", "x": 1}', b'{"api_token": "***", "x": 1}'),
        (b"Authorization: Bearer abc.def\nnext", b"Authorization: Bearer ***\nnext"),
        (b"password=hunter2; y", b"password=***; y"),
        (b"-----BEGIN RSA PRIVATE KEY-----\nxx\n-----END RSA PRIVATE KEY-----", b"***"),
        (b'{"secret":null}', b'{"secret":null}'),
        (b"nothing of the kind", b"nothing of the kind"),
    ],
)
def test_secrets_are_taken_out(before: bytes, after: bytes) -> None:
    """What looks like a secret is replaced, what stands round it is left, and JSON stays JSON."""
    assert redact(before) == after


def test_a_bundle_has_everything_and_no_secret(tmp_path: Path) -> None:
    """One private file with checks, settings, state and logs, also where no agent answers."""
    state = tmp_path / "state"
    (state / "inner").mkdir(parents=True)
    (state / "journal").write_bytes(b"password=hunter2\n")
    overrides = [f"node.state_dir={state}", f"node.run_dir={tmp_path}", "http.listen=127.0.0.1:1"]
    loaded = load_settings(environ={}, overrides=overrides)
    target = tmp_path / "b.tar.gz"
    checks = run_checks(HEALTHY)
    write_bundle(target, HEALTHY, checks, loaded, loaded.settings, {"TMPDIR": str(tmp_path)})
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        journal = archive.extractfile("nodeagent-bundle/state/journal")
        assert journal is not None
        assert journal.read() == b"password=***\n"
    assert {"checks.json", "facts.json", "configuration.txt", "state.json", "log.txt", "kernel-log.txt"} <= names


PLANTED = "hunter2-planted"
FORMS = (
    '{{"api_token": "{0}"}}',
    "Authorization: Bearer {0}",
    "authorization: Basic {0}",
    "--password={0}",
    "password: {0}",
    "AWS_SECRET_ACCESS_KEY={0}",
    "client_secret = '{0}'",
    "https://somebody:{0}@registry.example/v2/",
    "-----BEGIN EC PRIVATE KEY-----\n{0}\n-----END EC PRIVATE KEY-----",
    "token: eyJhbGciOiJSUzI1NiJ9.{0}.c2ln",
    "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.{0}.c2lnbmF0dXJl",
    "client-key-data: {0}",
)


@pytest.mark.parametrize("form", FORMS)
def test_no_planted_secret_leaves_in_a_bundle(form: str, tmp_path: Path) -> None:
    """Wherever it stands, in state files, in checks or in reasons that others wrote, it is not in the archive."""
    secret = form.format(PLANTED)
    state = tmp_path / "state"
    state.mkdir()
    (state / "journal").write_text(f"before\n{secret}\nafter\n")
    overrides = [f"node.state_dir={state}", f"node.run_dir={tmp_path}", "http.listen=127.0.0.1:1"]
    loaded = load_settings(environ={}, overrides=overrides)
    facts = replace(HEALTHY, runtime=None, runtime_problem=f"it said {secret}")
    target = tmp_path / "b.tar.gz"
    write_bundle(target, facts, run_checks(facts), loaded, loaded.settings, {"TMPDIR": str(tmp_path)})
    with tarfile.open(target) as archive:
        contents = {one.name: archive.extractfile(one) for one in archive.getmembers()}
        texts = {name: file.read().decode() for name, file in contents.items() if file is not None}
    assert [name for name, text in texts.items() if PLANTED in text] == []
    assert "before\n" in texts["nodeagent-bundle/state/journal"]
    assert "after\n" in texts["nodeagent-bundle/state/journal"]
    assert json.decode(texts["nodeagent-bundle/checks.json"])


def test_directories_are_seen_before_they_are_made(tmp_path: Path) -> None:
    """What the agent will create is judged by the directory it will create it in."""
    facts = look_at_directory(tmp_path / "not" / "yet")
    assert (facts.path, facts.writable) == (str(tmp_path / "not" / "yet"), True)
    assert 0 < facts.free_bytes <= facts.total_bytes


def test_a_socket_answers_or_says_why_not(short_dir: Path) -> None:
    """A file without a listener is no socket that answers."""
    path = short_dir / "s"
    assert look_at_socket(path).problem == "no such file or directory"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(1)
        assert look_at_socket(path).problem == ""
    assert look_at_socket(path).problem == "connection refused"


def test_other_programs_are_found_by_what_was_started(tmp_path: Path) -> None:
    """The program's own name counts, wherever it lies; processes that end meanwhile are passed over."""
    for pid, line in {
        "7": b"/usr/bin/dcgm-exporter\0-f\0",
        "3": b"nvidia-device-plugin\0",
        "9": b"vi\0",
        "4": b"",
    }.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(line)
    (tmp_path / "self").mkdir()
    assert [process.pid for process in find_strangers(tmp_path)] == [3, 7]


def test_a_device_plugin_is_known_by_who_listens(short_dir: Path) -> None:
    """A socket that somebody serves is told with the process; one left behind, or of others, is not."""
    (short_dir / "nvidia-old.sock").touch()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as kubelet:
        for listener, name in ((server, "nvidia-gpu.sock"), (kubelet, "kubelet.sock")):
            listener.bind(str(short_dir / name))
            listener.listen(1)
        (found,) = find_plugin_sockets(short_dir)
    assert (Path(found.path).name, found.pid) == ("nvidia-gpu.sock", os.getpid())


def test_in_a_container_the_hosts_own_files_are_looked_at(short_dir: Path) -> None:
    """With `node.host_root` the host's CDI directories count, one that is mounted twice counts once."""
    host = short_dir / "host"
    cdi = host / "var" / "run" / "cdi"
    (host / "etc" / "cdi").mkdir(parents=True)
    cdi.mkdir(parents=True)
    (host / "etc" / "cdi" / "broken.json").write_text("{")
    (cdi / "good.json").write_text('{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": []}')
    (short_dir / "mounted").symlink_to(cdi)
    (host / "run" / "nvidia" / "toolkit").mkdir(parents=True)
    (host / "run" / "nvidia" / "toolkit" / "toolkit.pid").write_text("7")
    settings = load_settings(
        environ={}, overrides=[f"node.host_root={host}", f"cdi.dir={short_dir / 'mounted'}", f"node.proc_dir={host}"]
    ).settings
    facts = look_at_host(settings, HEALTHY)
    assert sorted(Path(spec.path).name for spec in facts.specs) == ["broken.json", "good.json"]
    assert [Path(path).name for path in facts.foreign_files] == ["toolkit.pid"]
    assert facts.clock_behind_seconds == 0


def test_specifications_are_read_as_a_runtime_would(tmp_path: Path) -> None:
    """A broken file is a finding, other files are none, and a directory named twice counts once."""
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    found = read_specs((tmp_path, tmp_path / ".", tmp_path / "none"))
    assert [Path(spec.path).name for spec in found] == ["a.json", "gone.json"]
    assert all(spec.problem for spec in found)


def test_the_clock_is_asked_and_may_not_answer() -> None:
    """Whatever the kernel says, it is one of three answers."""
    assert read_clock() in {True, False, None}


def test_the_doctor_works_without_an_agent(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On simulated GPUs all but the agent and the cluster is in order; a report is JSON, a bundle is written."""
    monkeypatch.setenv("TMPDIR", str(short_dir))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    places = {
        "node.run_dir": short_dir,
        "node.state_dir": short_dir,
        "kubelet.device_plugins_dir": short_dir,
        "kubelet.pod_resources_socket": short_dir / "p",
        "http.listen": "127.0.0.1:1",
        "kubernetes.enabled": "false",
    }
    words = ["doctor", "--gpus", "simulated:t4", "--json", "--bundle", str(short_dir / "b.tgz")]
    for key, value in places.items():
        words += ["--set", f"{key}={value}"]
    out, err = io.StringIO(), io.StringIO()
    code = run_command_line(words, Streams(out, err))
    checks = {check["name"]: check["grade"] for check in json.decode(out.getvalue())["checks"]}
    assert code == 6
    assert (checks["driver"], checks["nvml"], checks["agent"], checks["kubelet socket"]) == ("ok", "ok", "warn", "fail")
    assert (short_dir / "b.tgz").exists()
    assert "look through it" in err.getvalue()


def test_the_doctor_goes_on_with_a_broken_configuration(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid file is the first finding, not the end."""
    monkeypatch.setenv("TMPDIR", str(short_dir))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    file = short_dir / "c.yaml"
    file.write_text("htp: {}\n")
    monkeypatch.setenv("NODEAGENT_HTTP__LISTEN", "127.0.0.1:1")
    out = io.StringIO()
    code = run_command_line(["doctor", "--config", str(file)], Streams(out, out))
    assert code == 6
    assert out.getvalue().startswith("✗ fail  configuration")
    where = str(short_dir / "no" / "b.tgz")
    assert run_command_line(["doctor", "--config", str(file), "--bundle", where], Streams(io.StringIO(), out)) == 2
