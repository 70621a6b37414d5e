"""Moving a node here and back: what the pages of `docs/migration` say is typed, and pods in the other's form run.

The others' own programs are not there: a DaemonSet that goes by the same labels stands for each of them, so what is
tried is the way and not they. The agent is started where the page puts our label on, and stopped where it takes it off.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from tests.fakes.nvml.control import FakeNvml
from tests.integration.claims import (
    CLAIMS,
    CLASSES,
    TEMPLATES,
    VERSION,
    check,
    make_claim,
    make_template,
    render,
    wait_none,
)
from tests.integration.claims import settings as claim_settings
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import CHECKOUT, NODE_NAME, choose_free_ports
from tests.integration.cluster.pods import FOREVER, WAIT, Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.integration.documented import MOVING
from tests.integration.test_fractions import BLOCK_BYTES, CORE, GPU, MEMORY, PROFILE, TELL, read_told
from tests.integration.test_mig import ONE, THREE, label, use
from tests.support.texts.markdown import find_block

pytestmark = pytest.mark.timeout(590)

RIGHTS = tuple(str(CHECKOUT / "deploy" / f"rbac-{name}.yaml") for name in ("pod-labels", "fractions", "claims", "mig"))
SETTINGS: dict[str, dict[str, Any]] = {
    "doors": {"rules": [{"gpus": ["all"], "door": "fractions"}]},
    "kubelet": {"pod_resources_poll_seconds": 0.5},
    "journal": {"free_after_seconds": 2},
}


class Other(NamedTuple):
    """Who was there before: how its DaemonSet chooses nodes, and by which labels its pods are found."""

    page: str
    chosen_by: Mapping[str, str]
    labels: Mapping[str, str]


GPU_MANAGER = Other("gpu-manager", {"nvidia-device-enable": "enable"}, {"name": "gpu-manager-ds"})
HAMI = Other("hami", {"gpu": "on"}, {"app.kubernetes.io/component": "hami-device-plugin"})
DRA_DRIVER = Other("dra-driver", {"dra": "theirs"}, {"nvidia-dra-driver-gpu-component": "kubelet-plugin"})
MIG_MANAGER = Other("mig-parted", {"nvidia.com/gpu.deploy.mig-manager": "true"}, {"app": "nvidia-mig-manager"})


def render_other(other: Other) -> Json:
    """A DaemonSet that is on this node as long as its label is."""
    pod = render_pod("other", FOREVER)["spec"]
    spec = {**pod, "restartPolicy": "Always", "nodeSelector": dict(other.chosen_by)}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": other.page, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": dict(other.labels)},
            "template": {"metadata": {"labels": dict(other.labels)}, "spec": spec},
        },
    }


LAYOUTS = """\
version: v1
mig-configs:
  lab:
    - devices: [0, 1]
      mig-enabled: true
      mig-devices:
        "1g.10gb": 7
    - devices: [2]
      device-filter: "0x233010DE"
      mig-enabled: true
      mig-devices:
        "3g.40gb": 2
    - devices: [3, 4, 5, 6, 7]
      mig-enabled: false
"""
"""As a file for mig-parted is written."""


class Move:
    """One node on its way: the other's DaemonSet, the page's commands, and the agent in place of ours."""

    def __init__(self, node: Cluster, other: Other, start: Callable[[], AgentUnderTest]) -> None:
        self._node, self._other, self._start = node, other, start
        self.agent: AgentUnderTest | None = None

    def begin(self) -> None:
        """The other is on the node and runs."""
        self._node.api.post("/apis/apps/v1/namespaces/kube-system/daemonsets", render_other(self._other))
        self._label(self._other.chosen_by)
        self.wait_other(runs=True)

    def follow(self, heading: str) -> None:
        """Type what the page says under this heading; our label starts the agent, or ends it."""
        block = find_block(f"docs/migration/{self._other.page}.md", heading)
        assert block.name in MOVING
        for command in block.commands:
            typed = command.replace("NODE", NODE_NAME)
            self._node.run("bash", "-c", typed, timeout_seconds=150)
            if command == "kubectl label node NODE nodeagent=true":
                self.agent = self._start()
            elif command == "kubectl label node NODE nodeagent-":
                assert self.agent is not None
                self.agent.stop()

    def wait_other(self, *, runs: bool) -> None:
        """Until its pod runs here, or is gone."""
        selector = ",".join(f"{key}={value}" for key, value in self._other.labels.items())

        def probe() -> str | None:
            found = self._node.api.get("/api/v1/namespaces/kube-system/pods", labelSelector=selector)["items"]
            phases = [each["status"].get("phase") for each in found]
            return None if phases == (["Running"] if runs else []) else str(phases)

        wait_until(f"{self._other.page} to run: {runs}", probe, timeout_seconds=120)

    def end(self) -> None:
        """Leave nothing of it to the next scenario."""
        self._node.run("kubectl", "uncordon", NODE_NAME)
        daemonset = f"daemonset/{self._other.page}"
        self._node.run("kubectl", "delete", "--ignore-not-found", "--namespace", "kube-system", daemonset)
        self._label(dict.fromkeys((*self._other.chosen_by, "nodeagent"), ""))
        # The next move begins with a drain, which refuses a pod whose DaemonSet is gone.
        self.wait_other(runs=False)

    def _label(self, labels: Mapping[str, str]) -> None:
        said = [f"{key}={value}" if value else f"{key}-" for key, value in labels.items()]
        self._node.run("kubectl", "label", "node", NODE_NAME, "--overwrite", *said)


@pytest.fixture
def rights(node: Cluster) -> Iterator[None]:
    """What the chart grants where these parts are on, and the classes of claims."""
    files = [word for path in (*RIGHTS, str(CLASSES)) for word in ("-f", path)]
    node.run("kubectl", "apply", *files)
    yield
    Pods(node).delete_all()
    for path in (CLAIMS, TEMPLATES):
        for one in node.api.get(path)["items"]:
            node.api.delete(f"{path}/{one['metadata']['name']}")
    node.run("kubectl", "delete", "--ignore-not-found", *files)


MakeMove = Callable[[Other, Callable[[], AgentUnderTest]], Move]


@pytest.fixture
def begin(node: Cluster, rights: None) -> Iterator[MakeMove]:
    """Begins a move from somebody who runs, and ends it whatever became of it."""
    begun: list[Move] = []

    def make(other: Other, start: Callable[[], AgentUnderTest]) -> Move:
        move = Move(node, other, start)
        begun.append(move)
        move.begin()
        return move

    yield make
    for move in begun:
        move.end()


def move_in(move: Move) -> AgentUnderTest:
    """As the page says; the other is gone then, and the agent runs."""
    move.follow("Move a node")
    move.wait_other(runs=False)
    assert move.agent is not None
    return move.agent


def move_back(move: Move) -> None:
    """As the page says; the other runs again."""
    move.follow("Move back")
    move.wait_other(runs=True)


def read_gpus(agent: AgentUnderTest) -> list[Json]:
    return [one["gpu"] for one in agent.get_json("/api/v1/gpus")["gpus"]]


def test_from_gpu_manager_and_back(begin: MakeMove, make_agent: MakeAgent, pods: Pods) -> None:
    """Its pods have their parts where gpu-admission's annotations say, and its clients go on asking."""
    (port,) = choose_free_ports(1)
    parts = {"enabled": True, "limit_compute": True, "usage_listen": f"127.0.0.1:{port}"}
    move = begin(GPU_MANAGER, lambda: make_agent(gpus=PROFILE, settings={**SETTINGS, "fractions": parts}))
    agent = move_in(move)
    chosen = {
        "tencent.com/predicate-gpu-idx-0": "2",
        "tencent.com/predicate-node": NODE_NAME,
        "tencent.com/predicate-time": "1700000000000000000",
        "tencent.com/gpu-assigned": "false",
    }
    limits = {CORE: 30, MEMORY: 8}
    pods.run(render_pod("vcuda", ("sh", "-c", TELL), limits=limits, annotations=chosen, spec={"nodeName": NODE_NAME}))
    wanted = read_gpus(agent)[2]["uuid"]
    assert read_told(pods, "vcuda") == ({wanted}, [(wanted, 8 * BLOCK_BYTES, 30)])
    uid = pods.read("vcuda")["metadata"]["uid"]
    asked = AgentUnderTest(agent.cluster, port=port)

    def probe() -> str | None:
        spec = asked.get_json("/usage")["usage"].get(uid, {}).get("spec", {})
        return None if spec.get("main", {}).get("mem") == 8 * 256 else str(spec)

    wait_until("gpu-manager's clients to be told of it", probe, timeout_seconds=60)
    pods.delete("vcuda")
    move_back(move)


def test_from_hami_and_back(begin: MakeMove, make_agent: MakeAgent, pods: Pods) -> None:
    """Its pods have as many shares as they ask for, each as large as they say, in MiB or in percent."""
    parts = {"enabled": True, "limit_compute": True, "profile": "hami"}
    move = begin(HAMI, lambda: make_agent(gpus=PROFILE, settings={**SETTINGS, "fractions": parts}))
    agent = move_in(move)
    sizes = {one["uuid"]: one["memory_total_bytes"] for one in read_gpus(agent)}
    for name, memory in (("mib", {"nvidia.com/gpumem": 3000}), ("percent", {"nvidia.com/gpumem-percentage": 50})):
        limits = {GPU: 2, **memory, "nvidia.com/gpucores": 30}
        # Bound as HAMi's scheduler or the extender would: a plain one knows nobody who offers these names.
        pods.run(render_pod(name, ("sh", "-c", TELL), limits=limits, spec={"nodeName": NODE_NAME}))
        gpus, told = read_told(pods, name)
        assert {gpu for gpu, _, _ in told} == gpus
        assert len(told) == 2
        for gpu, size, cores in told:
            wanted = 3000 << 20 if name == "mib" else sizes[gpu] // 2
            assert cores == 30
            assert size is not None
            assert abs(size - wanted) <= 1 << 20
    pods.delete("mib", "percent")
    move_back(move)


def test_from_the_dra_driver_and_back(node: Cluster, begin: MakeMove, make_agent: MakeAgent, pods: Pods) -> None:
    """A claim of a template, and one with a configuration of its kind that two pods have."""
    move = begin(DRA_DRIVER, lambda: make_agent(gpus=PROFILE, settings=claim_settings(node.layout)))
    agent = move_in(move)
    make_template(node)
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}}
    make_claim(node, "shared", parameters={"apiVersion": VERSION, "kind": "GpuConfig", "sharing": sharing})
    pods.run(render("own", template="each"))
    pods.run(render("one", claim="shared"))
    pods.run(render("other", claim="shared"))
    own, one, other = (
        check(node, agent, "own"),
        check(node, agent, "one", "shared"),
        check(node, agent, "other", "shared"),
    )
    assert one == other
    assert one != own
    pods.delete("own", "one", "other")
    wait_none(agent)
    move_back(move)


def test_from_the_mig_manager_and_back(
    node: Cluster, begin: MakeMove, make_agent: MakeAgent, pods: Pods, fake: FakeNvml
) -> None:
    """The label that was there is obeyed, by a file in mig-parted's form; pods get what it says."""
    path = node.layout.agent / "layouts.yaml"

    def start() -> AgentUnderTest:
        path.write_text(LAYOUTS)
        return make_agent(gpus="nvml", settings=use(fake, layouts_file=str(path), layouts=[]))

    label(node, "lab")
    move = begin(MIG_MANAGER, start)
    move_in(move)
    node.wait_count(ONE, 14)
    node.wait_count(THREE, 2)
    pods.run(render_pod("inference", ("sh", "-c", WAIT), limits={ONE: 1}))
    pods.delete("inference")
    move_back(move)
