"""Pods and nodes of a made-up cluster, for tests of the scheduler's extender."""

from collections.abc import Mapping, Sequence

from nodeagent.config.sections.fractions import EnforcementName, ProfileName
from nodeagent.extender.cluster import Cluster
from nodeagent.extender.decide import Decider, Filtered
from nodeagent.extender.gpu_pod import GpuPod
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.gpu import Inventory
from nodeagent.model.journal import Binding, GpuFraction
from nodeagent.model.scheduling import SeenContainer, SeenNode, SeenPod
from nodeagent.rules.fractions.bound import BOUND_ANNOTATION, render_bound
from nodeagent.rules.fractions.demands import Profiles
from nodeagent.rules.fractions.profiles import CoresProfile, CountedProfile
from nodeagent.rules.fractions.published import ANNOTATION, Published, PublishedGpu, render_published
from nodeagent.rules.placement.space import plan_space
from tests.support.placement import BLOCK

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
SHARE = "nvidia.com/gpu"
PROFILES = Profiles(cores=CoresProfile(), shares=CountedProfile())
NO_LIMITS: Mapping[str, str] = {}


def limit(cores: int, blocks: int = 0) -> Mapping[str, str]:
    """What a container asks for in hundredths and blocks."""
    return {CORE: str(cores), MEMORY: str(blocks)} if blocks else {CORE: str(cores)}


def make_pod(
    name: str,
    *limits: Mapping[str, str],
    node: str = "",
    init: Sequence[Mapping[str, str]] = (),
    sidecars: Sequence[Mapping[str, str]] = (),
    annotations: Mapping[str, str] | None = None,
    created: str = "",
    is_finished: bool = False,
) -> SeenPod:
    """A pod; init containers come before sidecars."""
    return SeenPod(
        namespace="default",
        name=name,
        uid=f"uid-of-{name}",
        node=node,
        created=created,
        annotations=annotations or {},
        containers=tuple(SeenContainer(name=f"c{number}", limits=each) for number, each in enumerate(limits)),
        init_containers=(
            *(SeenContainer(name=f"i{number}", limits=each) for number, each in enumerate(init)),
            *(SeenContainer(name=f"s{number}", limits=each, is_sidecar=True) for number, each in enumerate(sidecars)),
        ),
        is_finished=is_finished,
    )


def publish(
    inventory: Inventory,
    *,
    profile: ProfileName = "tencent",
    withheld: Mapping[str, str] | None = None,
    users_max: int | None = None,
    enforcement: EnforcementName | None = None,
    mps_clients: int | None = None,
    held: Mapping[int, str] | None = None,
) -> str:
    """The annotation of a node with these GPUs."""
    gpus = tuple(
        PublishedGpu(
            uuid=gpu.uuid,
            index=gpu.index,
            model=gpu.name,
            mps_clients=mps_clients,
            held=(held or {}).get(gpu.index, ""),
        )
        for gpu in inventory.gpus
    )
    told = {gpu.uuid: (withheld or {}).get(gpu.uuid, (held or {}).get(gpu.index, "")) for gpu in inventory.gpus}
    space = plan_space(inventory, BLOCK, withheld=told, users_max=users_max)
    return render_published(Published(profile=profile, space=space, gpus=gpus, enforcement=enforcement))


def make_seen_node(
    name: str, inventory: Inventory, *, profile: ProfileName = "tencent", bound: Sequence[Binding] | None = None
) -> SeenNode:
    """A node of ours; without bindings one of an agent that does not tell them."""
    annotations = {ANNOTATION: publish(inventory, profile=profile)}
    if bound is not None:
        annotations[BOUND_ANNOTATION] = render_bound(bound, inventory).text
    return SeenNode(name=name, annotations=annotations)


def bind_pod(pod: SeenPod, container: str, *parts: GpuFraction) -> Binding:
    identity = PodIdentity(namespace=pod.namespace, name=pod.name, uid=pod.uid)
    return Binding(number=1, reservations=(), pod=identity, container=container, parts=parts, since_seconds=0.0)


def make_plain_node(name: str, cores: int, blocks: int) -> SeenNode:
    return SeenNode(name=name, capacity={CORE: str(cores), MEMORY: str(blocks), "cpu": "8"})


class FakeScheduler:
    """Asks as kube-scheduler does, and binds what it was told."""

    def __init__(self, *nodes: SeenNode, policy: str = "pack", assume_seconds: float = 60.0) -> None:
        self.cluster = Cluster(PROFILES, assume_seconds=assume_seconds)
        self.decider = Decider(self.cluster, "spread" if policy == "spread" else "pack")
        self.now = 0.0
        for node in nodes:
            self.cluster.note_node(node)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.cluster.nodes)

    def read(self, pod: SeenPod) -> GpuPod:
        found = self.cluster.read_pod(pod)
        assert found is not None
        return found

    def ask(self, pod: SeenPod, *, only_best: bool = False) -> Filtered:
        return self.decider.filter(self.read(pod), self.names, only_best=only_best)

    def schedule(self, pod: SeenPod) -> tuple[str, tuple[int, ...]]:
        """The node, and by container the index of its first GPU; the pod counts there from now on."""
        found = self.ask(pod, only_best=True)
        if found.chosen is None:
            return "", ()
        node, placement = found.chosen
        self.cluster.assume(self.read(pod), node, placement.parts, None, self.now + 60)
        account = self.cluster.find_space(node, self.read(pod).device_class)
        assert account is not None
        index = {gpu.uuid: gpu.index for gpu in account.published.gpus}
        return node, tuple(index[placement.placements[each].shares[0].gpu] for each in sorted(placement.placements))
