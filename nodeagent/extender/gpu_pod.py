"""A pod in the index: its demand, its node and a scheduler's choice; nothing else of the pod."""

from collections.abc import Iterable, Mapping
from heapq import nsmallest
from itertools import chain
from typing import Final, Literal, TypeAlias

from msgspec import field

from nodeagent.model.errors import RequestInvalid
from nodeagent.model.journal import Enforcement
from nodeagent.model.scheduling import SeenPod
from nodeagent.model.values import Value
from nodeagent.rules.fractions.choices import read_chosen_node
from nodeagent.rules.fractions.demands import PodDemand, Profiles, read_demand
from nodeagent.rules.fractions.profiles import CoresProfile, Profile
from nodeagent.rules.fractions.requests import read_enforcement_choice
from nodeagent.rules.fractions.selection import Selection, read_selection

Policy: TypeAlias = Literal["pack", "spread"]
_LONGEST: Final = 8192
"""The most kept characters of an annotation; a choice of twelve GPUs for each of ten containers has as many."""
_KEYS_MAX: Final = 128
CHOICE_DIGEST: Final = "nodeagent.io/choice-digest"
"""The annotation that proves the author of a choice."""
NODE_POLICY: Final = "hami.io/node-scheduler-policy"
_POLICIES: Final[Mapping[str, Policy]] = {"binpack": "pack", "spread": "spread"}


class GpuPod(Value, frozen=True):
    """A pod with fractions."""

    namespace: str
    name: str
    uid: str
    version: str
    node: str
    created: str
    demand: PodDemand | None
    """`None` for an impossible request."""
    problem: str = ""
    """Why the pod fits nowhere, by key, value and remedy; fractions that it already has count all the same."""
    init_containers: int = 0
    containers: int = 0
    """All containers, init containers included."""
    choice: Mapping[str, str] = field(default_factory=dict)
    """The annotations with a scheduler's choice."""
    chosen_node: str = ""
    selection: Selection = Selection()
    policy: Policy | None = None
    """The policy of the pod's own annotation."""
    enforcement: Enforcement | None = None
    """The enforcement of the pod's own annotation."""

    @property
    def device_class(self) -> str:
        """The class whose devices the pod asks for; empty for the driver's GPUs."""
        return self.demand.device_class if self.demand is not None else ""

    @property
    def title(self) -> str:
        """The pod's namespace and name."""
        return f"{self.namespace}/{self.name}"


def read_gpu_pod(profiles: Profiles, pod: SeenPod) -> GpuPod | None:
    """The indexed facts of a pod; `None` for a pod without fractions."""
    demand, problem, enforcement = None, "", None
    try:
        demand = read_demand(profiles, pod)
        if demand is None:
            return None
        if not demand.is_exclusive:
            enforcement = read_enforcement_choice(profiles.enforcement, pod.annotations)
    except RequestInvalid as error:
        problem = f"{error.resource}: {error.reason}"
    profile = profiles.find(demand.profile) if demand is not None else None
    return GpuPod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        version=pod.version,
        node=pod.node,
        created=pod.created,
        demand=demand,
        problem=problem,
        init_containers=len(pod.init_containers),
        containers=len(pod.init_containers) + len(pod.containers),
        choice={} if profile is None else read_choice(profile, pod.annotations),
        chosen_node="" if profile is None else read_chosen_node(profile, pod.annotations),
        selection=read_selection(pod.annotations),
        policy=_POLICIES.get(pod.annotations.get(NODE_POLICY, "")),
        enforcement=enforcement,
    )


def read_choice(profile: Profile, annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations of a choice, bounded."""
    names: tuple[str, ...]
    more: Iterable[str] = ()
    if isinstance(profile, CoresProfile):
        names = (profile.predicate_node, profile.predicate_time, profile.assigned, CHOICE_DIGEST)
        beginnings = (profile.predicate, profile.predicate_uuid)
        # In an order independent of the API server: of too many keys the same keys are kept, written or read.
        more = nsmallest(_KEYS_MAX, (key for key in annotations if key.startswith(beginnings)))
    else:
        names = (*profile.allocated, profile.chosen_node, profile.chosen_time, CHOICE_DIGEST)
    keys = chain((key for key in names if key in annotations), more)
    # Any user may write a quarter of a megabyte of annotations, on every pod that the user may create.
    return {key: annotations[key][:_LONGEST] for key in keys}
