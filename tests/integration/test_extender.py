"""Parts of GPUs scheduled by a real kube-scheduler that asks the extender: one real node, twenty in the API alone.

What is held: no GPU is ever promised twice, every choice is what the evaluators say of what was chosen before it, and
whatever happens meanwhile, all that has room is placed in the end.
"""

import signal
from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from nodeagent.extender.gpu_pod import CHOICE_DIGEST
from nodeagent.model.scheduling import SeenContainer, SeenNode, SeenPod
from nodeagent.rules.fractions.published import ANNOTATION
from tests.deploy.chart import needs_helm
from tests.integration.cluster.agent import AgentUnderTest
from tests.integration.cluster.api import Json
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ApiRefused
from tests.integration.cluster.extender import (
    FORCED,
    RIGHTS,
    ExtenderUnderTest,
    create_node,
    drop_everything,
    request_extender_token,
)
from tests.integration.cluster.layout import CHECKOUT, NODE_NAME
from tests.integration.cluster.pods import PATH, Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.conftest import MakeAgent
from tests.support.placement import eight
from tests.support.scheduling import FakeScheduler, publish

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
INDEX, CHOSEN, TIME = (f"tencent.com/predicate-{name}" for name in ("gpu-idx-0", "node", "time"))
FOLLOWING = (CHECKOUT / "deploy" / "rbac-pod-labels.yaml", CHECKOUT / "deploy" / "rbac-fractions.yaml")
GPUS, BLOCKS = 8, 128
NODES = tuple(f"api-{number:02}" for number in range(20))
PODS = 300
CALM = 100
SETTLE_SECONDS = 120.0
FRACTIONS: dict[str, dict[str, Any]] = {
    "fractions": {"enabled": True},
    "doors": {"rules": [{"gpus": "all", "door": "fractions"}]},
    "kubelet": {"pod_resources_poll_seconds": 0.5},
}


@pytest.fixture
def extender(node: Cluster, request: pytest.FixtureRequest) -> Iterator[ExtenderUnderTest]:
    """With its rights, and a scheduler that asks it; twenty nodes of eight GPUs that say so by annotation."""
    node.run("kubectl", "apply", "-f", str(RIGHTS))
    made = ExtenderUnderTest(node, tls_from=getattr(request, "param", ""))
    capacity = {CORE: str(100 * GPUS), MEMORY: str(BLOCKS * GPUS)}
    for name in NODES:
        create_node(node, name, {ANNOTATION: publish(eight())}, capacity)
    try:
        made.start()
        made.wait_ready()
        made.restart_scheduler()
        yield made
    finally:
        made.close()
        drop_everything(node, NODES)


def draw_limits(chance: Random) -> dict[str, int]:
    """Mixed: small and large parts, a whole GPU, several."""
    cores = chance.choice((5, 10, 20, 30, 50, 70, 90, 100, 200, 400))
    return {CORE: cores} | ({MEMORY: chance.randrange(1, BLOCKS // 2)} if cores < 100 else {})


def list_pods(node: Cluster) -> list[Json]:
    return list(node.api.get(PATH)["items"])


def limits_of(pod: Json) -> dict[str, str]:
    return dict(pod["spec"]["containers"][0]["resources"]["limits"])


def wait_settled(node: Cluster, count: int) -> list[Json]:
    """Until each pod is bound, or is said to have no room by every node."""
    found: list[Json] = []

    def probe() -> str | None:
        nonlocal found
        found = list_pods(node)
        open_ones = [pod["metadata"]["name"] for pod in found if not pod["spec"].get("nodeName") and not refusal(pod)]
        if len(found) != count:
            return f"{len(found)} of {count} pods"
        return f"{len(open_ones)} undecided: {open_ones[:3]}" if open_ones else None

    wait_until("every pod to be decided on", probe, timeout_seconds=SETTLE_SECONDS)
    return found


def refusal(pod: Json) -> str:
    conditions = {each["type"]: each for each in pod["status"].get("conditions", ())}
    scheduled = conditions.get("PodScheduled", {})
    return str(scheduled.get("message", "")) if scheduled.get("status") == "False" else ""


def check_sums(pods: list[Json]) -> None:
    """By the pods' own annotations no GPU of a node without a kubelet is promised more than it has."""
    cores: defaultdict[tuple[str, str], int] = defaultdict(int)
    blocks: defaultdict[tuple[str, str], int] = defaultdict(int)
    for pod in pods:
        name, notes = pod["spec"].get("nodeName", ""), pod["metadata"].get("annotations", {})
        if name not in NODES:
            continue
        assert notes[CHOSEN] == name
        limits, gpus = limits_of(pod), notes[INDEX].split(",")
        whole = int(limits[CORE]) >= 100
        assert len(set(gpus)) == (int(limits[CORE]) // 100 if whole else 1)
        for gpu in gpus:
            cores[name, gpu] += 100 if whole else int(limits[CORE])
            blocks[name, gpu] += BLOCKS if whole else int(limits[MEMORY])
    assert cores
    assert max(cores.values()) <= 100
    assert max(blocks.values()) <= BLOCKS


def see(pod: Json) -> SeenPod:
    metadata = pod["metadata"]
    container = SeenContainer(name="main", limits=limits_of(pod))
    return SeenPod(namespace="default", name=metadata["name"], uid=metadata["uid"], containers=(container,))


def create_pods(pods: Pods, chance: Random, numbers: range, *, only_api: bool) -> None:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(NODES)}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    spec = {"affinity": {"nodeAffinity": required}} if only_api else {}
    for number in numbers:
        pods.create(render_pod(f"part-{number:03}", limits=draw_limits(chance), spec=spec))


@pytest.mark.timeout(600)
def test_choices_are_what_the_evaluators_say(node: Cluster, pods: Pods, extender: ExtenderUnderTest) -> None:
    """One pod after the other, in the order of their choices: the same node and the same GPUs."""
    create_pods(pods, Random(23), range(CALM), only_api=True)
    found = wait_settled(node, CALM)
    check_sums(found)
    told = [SeenNode(name=name, annotations={ANNOTATION: publish(eight())}) for name in NODES]
    scheduler = FakeScheduler(*told)
    bound = [pod for pod in found if pod["spec"].get("nodeName")]
    for pod in sorted(bound, key=lambda pod: int(pod["metadata"]["annotations"][TIME])):
        notes = pod["metadata"]["annotations"]
        name, gpus = scheduler.schedule(see(pod))
        assert (name, gpus[0]) == (notes[CHOSEN], min(int(index) for index in notes[INDEX].split(","))), pod
    for pod in found:
        if not pod["spec"].get("nodeName"):
            assert "GPU" in refusal(pod)
            assert scheduler.schedule(see(pod)) == ("", ())


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_nothing_is_promised_twice_whatever_happens(
    node: Cluster, pods: Pods, extender: ExtenderUnderTest, make_agent: MakeAgent
) -> None:
    """The extender is killed, the API server restarted, pods are deleted before they are bound, a node goes."""
    # What the node is told of choices stands on the pods, which it must be allowed to follow, and to correct.
    for path in FOLLOWING:
        node.run("kubectl", "apply", "-f", str(path))
    try:
        promise_through_trouble(node, pods, extender, make_agent(gpus="simulated:dgx-h100", settings=FRACTIONS))
    finally:
        for path in FOLLOWING:
            node.run("kubectl", "delete", "-f", str(path))


def promise_through_trouble(node: Cluster, pods: Pods, extender: ExtenderUnderTest, agent: AgentUnderTest) -> None:
    chance = Random(42)
    create_pods(pods, chance, range(CALM), only_api=False)
    extender.stop(signal.SIGKILL)
    create_pods(pods, chance, range(CALM, CALM + 50), only_api=False)
    extender.start()
    extender.wait_ready()
    for number in range(CALM + 40, CALM + 50):
        node.api.delete(f"{PATH}/part-{number:03}", FORCED)
    node.begin_outage()
    node.end_outage()
    extender.restart_scheduler()
    create_pods(pods, chance, range(CALM + 50, PODS), only_api=False)
    gone = NODES[-1]
    node.api.delete(f"/api/v1/nodes/{gone}")
    for pod in list_pods(node):
        if pod["spec"].get("nodeName") == gone:
            node.api.delete(f"{PATH}/{pod['metadata']['name']}", FORCED)
    found = wait_settled(node, len(list_pods(node)))
    check_sums(found)
    check_real_node(agent, pods, found)


def check_real_node(agent: AgentUnderTest, pods: Pods, found: list[Json]) -> None:
    """Every pod of the real node runs, where its choice says: the node obeyed, for nothing else was in the way."""
    here = [pod for pod in found if pod["spec"].get("nodeName") == NODE_NAME]
    assert here
    indexes = {one["gpu"]["uuid"]: one["gpu"]["index"] for one in agent.get_json("/api/v1/gpus")["gpus"]}
    for pod in here:
        pods.wait(pod["metadata"]["name"], "Running")
    bindings = {each["binding"]["pod"]["name"]: each["binding"] for each in agent.get_json("/api/v1/parts")["bound"]}
    for pod in here:
        wanted = {int(index) for index in pod["metadata"]["annotations"][INDEX].split(",")}
        assert {indexes[part["gpu"]] for part in bindings[pod["metadata"]["name"]]["parts"]} == wanted


by_the_chart = pytest.mark.parametrize("extender", ["chart"], indirect=True)


@by_the_chart
@needs_helm
def test_it_is_asked_by_those_who_have_a_certificate(node: Cluster, pods: Pods, extender: ExtenderUnderTest) -> None:
    """By the entry and the files that the chart made; nobody else is answered, and an upgrade changes none of them."""
    create_pods(pods, Random(7), range(10), only_api=True)
    found = wait_settled(node, 10)
    check_sums(found)
    assert all(pod["spec"].get("nodeName") in NODES for pod in found)
    assert all(len(pod["metadata"]["annotations"][CHOICE_DIGEST]) == 64 for pod in found)
    with pytest.raises(OSError, match=r"(?i)certificate required|closed|reset|EOF"):
        extender.open("/readyz", with_certificate=False)
    assert extender.open("/readyz") == 200
    before = extender.install_chart()
    assert extender.install_chart() == before
    # A new certificate of the same authority is taken by a program that runs, and by the scheduler that asks it.
    node.api.delete("/api/v1/namespaces/nodeagent/secrets/nodeagent-extender-server")
    renewed = extender.install_chart()
    assert {name for name in before if before[name] != renewed[name]} == {"nodeagent-extender-server"}
    extender.write_secrets(renewed)
    create_pods(pods, Random(8), range(10, 14), only_api=True)
    check_sums(wait_settled(node, 14))


@by_the_chart
@needs_helm
def test_who_may_create_pods_holds_no_gpu_that_was_not_given_to_them(
    node: Cluster, pods: Pods, extender: ExtenderUnderTest
) -> None:
    """Pods that no scheduler asks about, with choices of their own making, edited while others come for the GPUs."""
    name = NODES[0]
    for gpu in range(GPUS):
        notes = {CHOSEN: name, TIME: "1", INDEX: str(gpu), CHOICE_DIGEST: "0" * 64}
        idle = render_pod(f"idle-{gpu}", limits={CORE: 100}, spec={"schedulerName": "nobody"})
        idle["metadata"]["annotations"] = notes
        pods.create(idle)
    for gpu in range(GPUS):
        node.api.patch(f"{PATH}/idle-{gpu}", {"metadata": {"annotations": {TIME: "2"}}})
    wants = {"nodeSelector": {"kubernetes.io/hostname": name}}
    for gpu in range(GPUS):
        pods.create(render_pod(f"real-{gpu}", limits={CORE: 100}, spec=wants))

    def probe() -> str | None:
        found = [pod for pod in list_pods(node) if pod["metadata"]["name"].startswith("real-")]
        left = [refusal(pod) or "undecided" for pod in found if pod["spec"].get("nodeName") != name]
        return f"{len(left)} pods: {left[0]}" if left else None

    wait_until("every real pod to have its GPU", probe, timeout_seconds=SETTLE_SECONDS)
    check_sums(list_pods(node))


def test_a_request_that_can_never_be_is_said_on_the_pod(node: Cluster, pods: Pods, extender: ExtenderUnderTest) -> None:
    """By key, value and remedy, in what `kubectl describe pod` shows."""
    name = pods.create(render_pod("odd", limits={CORE: 150}))
    pod = pods.wait_for(name, "refused", lambda found: bool(refusal(found)))
    assert "150 is more than one GPU and not a number of whole GPUs" in refusal(pod)


def test_the_extender_may_change_nothing_but_choices(node: Cluster, pods: Pods, extender: ExtenderUnderTest) -> None:
    """By the admission policy that its rights come with."""
    name = pods.create(render_pod("held", limits={CORE: 800 * 8}))
    mine = node.api_as(request_extender_token(node))
    for key in (CHOSEN, CHOICE_DIGEST):
        said = mine.patch(f"{PATH}/{name}", {"metadata": {"annotations": {key: "x"}}})
        assert said["metadata"]["annotations"][key] == "x"
    for change in (
        {"metadata": {"annotations": {"other": "x"}}},
        {"metadata": {"labels": {"other": "x"}}},
        {"spec": {"activeDeadlineSeconds": 5}},
    ):
        with pytest.raises(ApiRefused, match="the extender changes"):
            mine.patch(f"{PATH}/{name}", change)
