"""A whole agent cuts GPUs through NVML's real ABI: by a worker of its own, and over a kill -9 in the middle."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from nodeagent.app.wiring.mig_paused_clients import STORE
from nodeagent.components.mig.request import Remembered, encode_remembered
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.model.cluster import DEPLOY_LABEL, PAUSED_FOR_MIG
from nodeagent.model.mig import WriteKind
from tests.bench.around.api_server import api_server
from tests.fakes.apiserver import NODE
from tests.fakes.nvml.control import FakeNvml
from tests.support.programs.agent_process import PATIENCE_SECONDS, AgentProcess, running_agent, running_simulation

WRITING = ("nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance")
LAYOUT = "2g.20gb 1g.10gb 1g.10gb 3g.40gb"


def use(fake: FakeNvml, *, manage: bool = True) -> tuple[str, ...]:
    settings = {
        "driver.nvml_library": fake.library_path,
        "driver.worker_environment": json.dumps(fake.environment),
        "mig.manage": str(manage).lower(),
        "device_plugin.mig_strategy": "mixed",
    }
    return tuple(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))


def wait_standing(agent: AgentProcess, layout: str, standing: str) -> dict[str, Any]:
    def is_so(body: str) -> bool:
        state = json.loads(body)
        return (state["layout"], state["standing"], state["changes"]) == (layout, standing, [])

    return dict(json.loads(agent.wait_until("/api/v1/mig", is_so, f"never said that {layout} is {standing}")))


def list_profiles(agent: AgentProcess) -> list[list[str]]:
    return read_profiles(json.dumps(agent.get_json("/api/v1/gpus")))


def read_profiles(body: str) -> list[list[str]]:
    gpus = [record["gpu"] for record in json.loads(body)["gpus"]]
    return [sorted(device["profile"] for device in gpu["mig"]["devices"]) for gpu in gpus]


def list_children(agent: AgentProcess) -> list[str]:
    """The command lines of its processes."""
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    return [Path(f"/proc/{pid}/cmdline").read_text() for pid in children]


@pytest.mark.long
def test_gpus_are_cut_by_a_worker_that_is_gone_afterwards(short_dir: Path, fake: FakeNvml) -> None:
    """Each call once; what was made is seen by the process that reads."""
    with running_agent(short_dir, *use(fake)) as agent:
        agent.wait_for("/api/v1/gpus", "gpu_utilization_percent")
        assert agent.post("/api/v1/layout", {"layout": "all-balanced"})[0] == 200
        wait_standing(agent, "all-balanced", "success")
        assert list_profiles(agent) == [sorted(LAYOUT.split())] * 8
        assert [fake.calls(function) for function in WRITING] == [32, 32]
        assert fake.calls("nvmlDeviceSetMigMode") == 8
        assert not [line for line in list_children(agent) if "main_partition" in line]
        assert agent.post("/api/v1/layout", {"layout": "all-balanced"})[1]["done"] == "all-balanced is in place"


def test_an_agent_that_cuts_no_gpus_refuses_to(short_dir: Path, fake: FakeNvml) -> None:
    with running_agent(short_dir, *use(fake, manage=False)) as agent:
        agent.wait_for("/api/v1/gpus", "gpu_utilization_percent")
        status, answer = agent.post("/api/v1/layout", {"layout": "all-balanced"})
        assert (status, "set mig.manage to true" in json.dumps(answer)) == (409, True)
        assert fake.calls("nvmlDeviceSetMigMode") == 0


@pytest.mark.long
@pytest.mark.parametrize("calls", [1, 6, 17])
def test_whoever_is_killed_in_the_middle_goes_on_after_a_restart(short_dir: Path, fake: FakeNvml, calls: int) -> None:
    """With SIGKILL, at whatever call; the next agent ends in the layout that was asked for."""
    for function in (*WRITING, "nvmlDeviceSetMigMode"):
        fake.delay(function, 0.03)
    with running_agent(short_dir, *use(fake)) as agent:
        agent.wait_for("/api/v1/gpus", "gpu_utilization_percent")
        agent.post("/api/v1/layout", {"layout": "all-balanced"})
        deadline = time.monotonic() + PATIENCE_SECONDS
        while sum(map(fake.calls, WRITING)) < calls:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        agent.stop(signal.SIGKILL)
    with running_agent(short_dir, *use(fake)) as agent:
        agent.wait_for("/api/v1/gpus", "gpu_utilization_percent")
        wait_standing(agent, "all-balanced", "success")
        assert list_profiles(agent) == [sorted(LAYOUT.split())] * 8
        assert fake.calls("nvmlDeviceSetMigMode") <= 9


@pytest.mark.long
def test_the_kubelet_hears_of_a_new_layout_soon(short_dir: Path) -> None:
    """From the word of a person to the kubelet's new resources, in a simulation with a kubelet."""
    words = ("--pods", "0", "--set", "mig.manage=true", "--set", "device_plugin.mig_strategy=mixed")
    with running_simulation(short_dir, "--profile", "dgx-h100", *words) as agent:
        agent.wait_for("/readyz", "\nready\n")
        agent.post("/api/v1/layout", {"layout": "all-1g.10gb"})
        wait_standing(agent, "all-1g.10gb", "success")

        def is_withdrawn(body: str) -> bool:
            resources = json.loads(body)["plugin"]["resources"]
            fit = {one["name"]: sum(device["healthy"] for device in one["devices"]) for one in resources}
            return fit.get("nvidia.com/mig-1g.10gb") == 56

        agent.wait_until("/api/v1/state", is_withdrawn, "never offered 56 devices")


@pytest.mark.long
@pytest.mark.parametrize("kind", [WriteKind.CREATE, WriteKind.MODE_ON])
def test_a_driver_that_refuses_leaves_gpus_as_they_were(short_dir: Path, fake: FakeNvml, kind: WriteKind) -> None:
    function = {WriteKind.CREATE: WRITING[0], WriteKind.MODE_ON: "nvmlDeviceSetMigMode"}[kind]
    fake.fail(function, 999)
    with running_agent(short_dir, *use(fake)) as agent:
        agent.wait_for("/api/v1/gpus", "gpu_utilization_percent")
        agent.post("/api/v1/layout", {"layout": "all-balanced"})
        state = wait_standing(agent, "all-balanced", "failed")
        assert "the driver reports an unknown error" in state["detail"]
        # The driver is asked on a clock of its own; what is known may still be what was there on the way.
        agent.wait_until("/api/v1/gpus", lambda body: read_profiles(body) == [[]] * 8, "GPUs were left cut")
        assert not any(gpu.mig_mode for gpu in fake.state.gpus if gpu.present)
        agent.wait_for("/api/v1/conditions", "mig-change-failed")


@pytest.mark.long
def test_resources_that_stay_never_go_through_zero(short_dir: Path) -> None:
    """While other GPUs change, the kubelet has those of a GPU that is right all the time."""
    words = ("--pods", "0", "--set", "mig.manage=true", "--set", "device_plugin.mig_strategy=mixed")
    with running_simulation(short_dir, "--profile", "a100-80gb-mig", *words) as agent:
        agent.wait_for("/readyz", "\nready\n")
        before = agent.get_json("/api/v1/gpus")["gpus"][0]["gpu"]["mig"]["devices"]
        agent.post("/api/v1/layout", {"layout": "all-1g.10gb"})
        wait_standing(agent, "all-1g.10gb", "success")

        def count_healthy(body: str) -> list[int]:
            values = [event["value"] for event in json.loads(body)]
            return [value["healthy"] for value in values if value["resource"] == "nvidia.com/mig-1g.10gb"]

        # The kubelet hears of the layout a moment after whoever asked for it.
        advertised = "/api/v1/events?types=DevicesAdvertised&follow=false"
        told = agent.wait_until(advertised, lambda body: len(count_healthy(body)) > 1, "the kubelet heard of no change")
        assert min(count_healthy(told)) >= 7
        assert agent.get_json("/api/v1/gpus")["gpus"][0]["gpu"]["mig"]["devices"] == before


@pytest.mark.long
@pytest.mark.parametrize("manage", [False, True])
def test_whoever_starts_after_a_kill_gives_back_what_was_paused(
    short_dir: Path, fake: FakeNvml, *, manage: bool
) -> None:
    """Be it told to cut GPUs or no longer; nothing else is asked of the cluster for it."""
    exporter = f"{DEPLOY_LABEL}dcgm-exporter"
    store = SealedFile(short_dir / "state" / STORE[0], *STORE[1:])
    store.path.parent.mkdir(exist_ok=True)
    store.write(encode_remembered(Remembered(layout="all-disabled", origin="me", paused={exporter: "true"})))
    with api_server() as api:
        api.set_label(exporter, PAUSED_FOR_MIG)
        words = (f"kubernetes.kubeconfig={api.server.write_kubeconfig(short_dir / 'kubeconfig')}", f"node.name={NODE}")
        sets = (word for setting in words for word in ("--set", setting))
        with running_agent(short_dir, *use(fake, manage=manage), *sets):
            api.wait_label(exporter, "true")
