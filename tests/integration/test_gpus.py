"""Pods and GPUs on a real kubelet: what they ask for is what they get, whatever happens meanwhile."""

import json
import signal
import subprocess
import time
from collections.abc import Iterable
from typing import Any

import pytest

from tests.integration.cluster.agent import COMMAND, AgentUnderTest
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.node import ALWAYS_THERE
from tests.integration.cluster.pods import Pods, has_reached, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent

GPU = "nvidia.com/gpu"
ENVIRONMENT: dict[str, dict[str, Any]] = {
    "device_plugin": {"device_list_strategy": ["envvar"]},
    "kubelet": {"pod_resources_poll_seconds": 0.5},
    "journal": {"free_after_seconds": 2},
}
"""Made-up GPUs have no device nodes and no CDI entries, so containers are told by their environment alone."""
PATIENCE_SECONDS = 30.0
FOLLOWED_SECONDS = 5.0
"""Within which the node's allocatable devices follow their health; the kubelet here tells its status each 2 s."""
STALLS, AGENT_RESTARTS, KUBELET_RESTARTS = 3, 50, 20
FORGOTTEN_ROUNDS, FORGOTTEN_ROUNDS_AT_NIGHT = 5, 200


def _ask(name: str, count: int = 1, resource: str = GPU) -> dict[str, Any]:
    return render_pod(name, limits={resource: count})


def _visible(pods: Pods, name: str) -> list[str]:
    """What the container was told, in the environment it runs with."""
    for line in pods.exec(name, "env").splitlines():
        if line.startswith("NVIDIA_VISIBLE_DEVICES="):
            return line.partition("=")[2].split(",")
    return []


def _held(agent: AgentUnderTest) -> dict[str, str]:
    return {
        device: allocation["pod"]["name"] if allocation["pod"] else ""
        for allocation in agent.get_json("/api/v1/allocations")
        for device in allocation["devices"]
    }


def _wait_held(agent: AgentUnderTest, wanted: dict[str, str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while _held(agent) != wanted:
        assert time.monotonic() < deadline, f"the agent says {_held(agent)}, the pods say {wanted}"
        time.sleep(0.2)


def _wait_verdict(agent: AgentUnderTest, healthy: int) -> None:
    """Until the agent judges this many GPUs healthy, whatever it has told the kubelet."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while agent.get("/metrics")[1].count('verdict="healthy"} 1') != healthy:
        assert time.monotonic() < deadline, f"the agent never judged {healthy} GPUs healthy"
        time.sleep(0.1)


def _wait_registered(agent: AgentUnderTest) -> None:
    """Until the kubelet has taken each of the agent's resources."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(one["registered"] for one in agent.get_json("/api/v1/state")["plugin"]["resources"]):
        assert time.monotonic() < deadline, agent.read_log()
        time.sleep(0.2)


def _find_sockets(node: Cluster) -> set[tuple[str, int]]:
    """The sockets of plugins, one told from the next of its name."""
    sockets = (path for path in node.layout.device_plugins.glob("*.sock") if path.name not in ALWAYS_THERE)
    return {(path.name, path.stat().st_ctime_ns) for path in sockets}


def _wait_new_socket(node: Cluster, agent: AgentUnderTest, before: set[tuple[str, int]]) -> None:
    """Until the agent's next life listens for the kubelet."""
    wait_until(
        "the next life's socket",
        lambda: None if _find_sockets(node) - before else agent.read_log(),
        timeout_seconds=PATIENCE_SECONDS,
    )


def _distribution(pods: Pods, names: Iterable[str]) -> dict[str, str]:
    """Device to pod, as the containers were told; a device told twice fails here."""
    told = [(device, name) for name in names for device in _visible(pods, name)]
    assert len({device for device, _ in told}) == len(told), f"a GPU was handed out twice: {told}"
    return dict(told)


@pytest.mark.every_version
def test_a_pod_gets_the_gpus_it_asks_for(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """Two of eight, named in its environment, known to the agent by the pod's name, and free again after it."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    name = pods.run(_ask("asks", 2))
    devices = _visible(pods, name)
    assert len(set(devices)) == 2
    known = {one["gpu"]["uuid"] for one in agent.get_json("/api/v1/gpus")["gpus"]}
    assert set(devices) <= known
    _wait_held(agent, dict.fromkeys(devices, name))
    pods.delete(name)
    _wait_held(agent, {})


def test_eight_pods_race_for_eight_gpus(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """Each gets one, none is given twice, and the ninth waits."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    names = [pods.create(_ask(f"racer-{number}")) for number in range(8)]
    for name in names:
        pods.wait(name, "Running")
    wanted = _distribution(pods, names)
    assert len(wanted) == 8
    _wait_held(agent, wanted)
    ninth = pods.create(_ask("ninth"))
    pods.wait_for(ninth, "pending", lambda pod: pod["status"]["phase"] == "Pending")


@pytest.mark.every_version
def test_a_killed_agent_loses_no_allocation(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """After kill -9 and a restart the running pods' GPUs are still theirs, and new pods get others."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    first = pods.run(_ask("first", 3))
    agent.stop(signal.SIGKILL)
    assert agent.config_file.exists()
    agent.start()
    agent.wait_ready()
    node.wait_count(GPU, 8)
    second = pods.run(_ask("second", 5))
    _wait_held(agent, _distribution(pods, [first, second]))


def test_an_agent_killed_during_admissions_doubles_nothing(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """Killed again and again while eight pods come, each GPU is one pod's, and the agent knows whose in the end."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    names = [pods.create(_ask(f"caught-{number}")) for number in range(8)]
    for pause_seconds in (0.0, 0.2, 0.6):
        time.sleep(pause_seconds)
        agent.restart()
    node.wait_count(GPU, 8)
    for name in names:
        pods.wait_for(name, "decided", lambda pod: has_reached(pod, "Running") or pod["status"]["phase"] == "Failed")
    running = [name for name in names if pods.read(name)["status"]["phase"] == "Running"]
    _wait_held(agent, _distribution(pods, running))
    late = pods.run(_ask("late", 8 - len(running))) if len(running) < 8 else None
    _distribution(pods, [*running, *filter(None, [late])])


@pytest.mark.every_version
def test_a_restarted_kubelet_hears_of_the_gpus_again(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """The agent registers again by itself; the running pod keeps its GPUs and they are not given away."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    first = pods.run(_ask("first", 4))
    node.restart_kubelet()
    node.wait_count(GPU, 8)
    second = pods.run(_ask("second", 4))
    _wait_held(agent, _distribution(pods, [first, second]))


@pytest.mark.every_version
def test_an_agent_restarted_beside_a_stalled_kubelet_is_served(
    node: Cluster, pods: Pods, make_agent: MakeAgent
) -> None:
    """The kubelet sees the end of the old stream together with the new registration, whichever of them it reads first.

    From 1.37 on a kubelet refuses the socket path of a plugin that it believes alive, until the kubelet's own restart.
    """
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    first = pods.run(_ask("first", 2))
    for _ in range(STALLS):
        with node.stalled("kubelet"):
            before = _find_sockets(node)
            agent.stop(signal.SIGKILL)
            agent.start()
            _wait_new_socket(node, agent, before)
        agent.wait_ready()
    _wait_registered(agent)
    node.wait_count(GPU, 8)
    second = pods.run(_ask("second", 6))
    _wait_held(agent, _distribution(pods, [first, second]))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.every_version
def test_50_restarts_of_the_agent_and_20_of_the_kubelet_leave_the_gpus_offered(
    node: Cluster, pods: Pods, make_agent: MakeAgent
) -> None:
    """After each of them the resource is registered, and pods before and after have GPUs of their own."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    first = pods.run(_ask("first", 2))
    for number in range(AGENT_RESTARTS):
        agent.stop(signal.SIGKILL if number % 2 else signal.SIGTERM)
        agent.start()
        agent.wait_ready()
        _wait_registered(agent)
    for _ in range(KUBELET_RESTARTS):
        node.restart_kubelet()
        _wait_registered(agent)
    node.wait_count(GPU, 8)
    second = pods.run(_ask("second", 6))
    _wait_held(agent, _distribution(pods, [first, second]))


def test_an_agent_restarted_under_running_pods_advertises_again(
    node: Cluster, pods: Pods, make_agent: MakeAgent
) -> None:
    """An upgrade of the agent is felt by nobody who runs."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    name = pods.run(_ask("stays", 2))
    container = pods.container_id(name)
    assert agent.stop() == 0
    agent.start()
    agent.wait_ready()
    node.wait_count(GPU, 8)
    assert pods.container_id(name) == container
    _wait_held(agent, dict.fromkeys(_visible(pods, name), name))


def test_shared_gpus_are_offered_as_replicas(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """Four shares of one GPU, each a pod's; all of them see the same GPU."""
    sharing = {"timeSlicing": {"resources": [{"name": GPU, "replicas": 4}]}}
    make_agent(gpus="simulated:t4", settings={**ENVIRONMENT, "sharing": sharing})
    node.wait_count(GPU, 4)
    names = [pods.run(_ask(f"share-{number}")) for number in range(4)]
    assert len({tuple(_visible(pods, name)) for name in names}) == 1


def test_mig_profiles_are_resources_of_their_own(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """With the mixed strategy a pod asks for a shape and gets a MIG device of it."""
    settings = {**ENVIRONMENT, "device_plugin": {**ENVIRONMENT["device_plugin"], "mig_strategy": "mixed"}}
    agent = make_agent(gpus="simulated:a100-80gb-mig", settings=settings)
    resources = [one["name"] for one in agent.get_json("/api/v1/state")["plugin"]["resources"]]
    mig = next(name for name in sorted(resources) if name.startswith("nvidia.com/mig-"))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not node.count(mig):
        assert time.monotonic() < deadline, f"{mig} is not offered: {json.dumps(resources)}"
        time.sleep(0.2)
    name = pods.run(_ask("slice", 1, mig))
    assert _visible(pods, name)[0].startswith("MIG-")


def _simulate_fault(agent: AgentUnderTest, *words: str) -> None:
    command = [*COMMAND[:1], "simulate", "fault", "--config", str(agent.config_file), *words]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_SECONDS)


@pytest.mark.every_version
def test_a_lost_gpu_leaves_the_allocatable_ones_and_returns(node: Cluster, make_agent: MakeAgent) -> None:
    """Health goes both ways, within seconds of the agent's verdict; a GPU that is back it finds at its next look."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    _simulate_fault(agent, "lost", "3")
    node.wait_count(GPU, 7, FOLLOWED_SECONDS)
    _simulate_fault(agent, "back", "3")
    _wait_verdict(agent, healthy=8)
    node.wait_count(GPU, 8, FOLLOWED_SECONDS)


def test_a_kubelet_that_forgets_doubles_nothing(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    """A lost checkpoint makes the kubelet think held GPUs free: five times over, no GPU has two living pods."""
    _forget(node, pods, make_agent, FORGOTTEN_ROUNDS)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_kubelet_that_forgets_200_times_doubles_nothing(node: Cluster, pods: Pods, make_agent: MakeAgent) -> None:
    _forget(node, pods, make_agent, FORGOTTEN_ROUNDS_AT_NIGHT)


def _forget(node: Cluster, pods: Pods, make_agent: MakeAgent, rounds: int) -> None:
    """Half of the GPUs are held throughout; each kubelet that has forgotten that is asked for one more."""
    agent = make_agent(gpus="simulated:dgx-h100", settings=ENVIRONMENT)
    node.wait_count(GPU, 8)
    names = [pods.run(_ask("holder", 4))]
    wanted = _distribution(pods, names)
    _wait_held(agent, wanted)
    for number in range(rounds):
        node.forget_devices()
        node.wait_count(GPU, 8)
        name = pods.create(_ask(f"late-{number}", 1))
        pods.wait_for(name, "decided", lambda pod: pod["status"]["phase"] in {"Running", "Failed"})
        if pods.read(name)["status"]["phase"] == "Running":
            _distribution(pods, [*names, name])
        pods.delete(name)
