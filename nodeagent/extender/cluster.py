"""The extender's index of the cluster: nodes and pods, with answers that list nothing.

Owns the place where a pod counts: a bound pod on its node, a pod with a choice on the chosen node until the choice is
too old, a finished pod nowhere. A pod deleted before its end counts for a while: the containers run on for a moment,
and the node frees their fractions only once sure. Times are of this process, by a clock that never jumps: clocks of
other replicas decide nothing.

Refuses to count a choice made by no extender, and to count a choice longer because of its removal and return. Belongs
to one thread; nothing here waits.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nodeagent.extender.gpu_pod import CHOICE_DIGEST, GpuPod, read_gpu_pod
from nodeagent.extender.node_space import NodeSpace, Tenant
from nodeagent.extender.place_pod import Fractions
from nodeagent.extender.trust.digest import ChoiceDigests
from nodeagent.model.errors import PublicationUnreadable
from nodeagent.model.scheduling import SeenNode, SeenPod
from nodeagent.model.values import Value
from nodeagent.rules.fractions.by_class import read_by_class
from nodeagent.rules.fractions.demands import PodDemand, Profiles
from nodeagent.rules.fractions.foreign_nodes import read_node
from nodeagent.rules.fractions.profiles import CoresProfile, CountedProfile
from nodeagent.rules.fractions.published import Published
from nodeagent.rules.placement.hierarchy import Tree

T = TypeVar("T")
_POOLED_MAX: Final = 65536
_SPENT_MAX: Final = 64
"""The most choices remembered of one pod."""


def number_of(version: str) -> int:
    """The number of a version: versions of one server grow with time."""
    return int(version) if version.isascii() and version.isdigit() else 0


def earlier_of(uid: str) -> str:
    """The key of a pod's earlier choice."""
    return f"{uid}/earlier"


class Hold(Value, frozen=True):
    """A choice for an unbound pod, or the rest of a bound pod that was deleted."""

    node: str
    until_seconds: float
    pod: GpuPod
    parts: Fractions | None = None
    """The promised fractions; `None` for a choice read from the pod."""
    written: Mapping[str, str] | None = None
    """The annotations being written on the pod, until the watch reports them; `None` where nothing is written."""

    def is_awaited(self, pod: GpuPod) -> bool:
        """Whether the seen pod may be older than the promise, so that the promise stands."""
        if self.parts is None:
            return False
        return self.written is None or not self.written.items() <= pod.choice.items()


class _Pool(Generic[T]):
    """The first of equal values, so that a thousand equal values weigh as much as one."""

    def __init__(self) -> None:
        self._known: dict[T, T] = {}

    def share(self, value: T) -> T:
        """The kept value equal to `value`."""
        if len(self._known) >= _POOLED_MAX:
            self._known.clear()
        return self._known.setdefault(value, value)


class NodeEntry(Struct):
    """A node of the cluster."""

    said: object = None
    """The annotations and capacity that the entry was read from."""
    published: Published | None = None
    """The node's GPUs for fractions; `None` on most nodes."""
    classes: Mapping[str, Published] = {}
    """The node's devices for fractions, by class."""
    problem: str = ""
    """Why the node's annotations are unreadable."""
    accounts: dict[str, NodeSpace] = {}
    """By class, of the driver's GPUs by an empty name; made at the first question, and dropped with the next change."""

    def find_published(self, device_class: str) -> Published | None:
        """The node's devices of a class for fractions; the driver's GPUs by an empty name."""
        return self.classes.get(device_class) if device_class else self.published


class Cluster:
    """All known nodes and pods."""

    def __init__(
        self,
        profiles: Profiles,
        *,
        assume_seconds: float,
        linger_seconds: float = 0.0,
        on_foreign: Callable[[GpuPod], None] = lambda _pod: None,
    ) -> None:
        """`on_foreign` is called once for each pod with a choice made by no extender."""
        self.profiles, self._assume_seconds, self._linger_seconds = profiles, assume_seconds, linger_seconds
        self._on_foreign = on_foreign
        self.nodes: dict[str, NodeEntry] = {}
        self.pods: dict[str, GpuPod] = {}
        """Unfinished pods with fractions, by uid."""
        self.holds: dict[str, Hold] = {}
        """By uid; an earlier choice of a pod by `earlier_of` the uid."""
        self._uids: dict[str, set[str]] = {}
        self._by_title: dict[str, str] = {}
        self._trees = _Pool[Tree]()
        """Nodes of one kind share one tree: most of a node's memory, and the key of cached answers."""
        self._demands = _Pool[PodDemand]()
        self.expired = 0
        """How many choices were never bound."""
        self.digests = ChoiceDigests()
        self.foreign = 0
        """How many pods had a choice made by no extender."""
        self.suspects: set[str] = set()
        """Unbound pods with a choice made by no extender, by uid."""
        self._spent: dict[str, list[str]] = {}
        """Digests of counted choices, by the pod's uid: a choice counts once, however often written."""

    def note_node(self, node: SeenNode) -> None:
        """A node is there, or has changed."""
        entry = self.nodes.get(node.name)
        if entry is None:
            entry = self.nodes[node.name] = NodeEntry()
        said = (node.annotations, node.capacity)
        if entry.said == said:
            return
        entry.said, entry.accounts = said, {}
        try:
            cores, shares = self.profiles.cores or CoresProfile(), self.profiles.shares or CountedProfile()
            published = read_node(cores, shares, node.annotations, node.capacity)
            classes, entry.problem = read_by_class(node.annotations) if self.profiles.classes else {}, ""
        except PublicationUnreadable as error:
            published, classes, entry.problem = None, {}, str(error)
        entry.published = None if published is None else self._share_tree(published)
        entry.classes = {name: self._share_tree(each) for name, each in classes.items()}

    def _share_tree(self, published: Published) -> Published:
        space = published.space
        return replace(published, space=replace(space, tree=self._trees.share(space.tree)))

    def drop_node(self, name: str) -> None:
        """A node is gone; the node's pods are kept until their own end, as the node may come back."""
        self.nodes.pop(name, None)

    def keep_nodes(self, names: Collection[str]) -> None:
        """After a list: nodes off the list are gone."""
        for name in self.nodes.keys() - set(names):
            self.drop_node(name)

    def note_pod(self, seen: SeenPod, now: float) -> None:
        """A pod is there, or has changed."""
        pod = None if seen.is_finished else read_gpu_pod(self.profiles, seen)
        if pod is None or pod.demand is None:
            self.drop_pod(seen.uid)
            return
        pod = self._share_demand(pod)
        if pod.node:
            self.drop_earlier(pod.uid)
            self._forget_choices(pod.uid)
        before, hold = self.pods.get(pod.uid), self.holds.get(pod.uid)
        if before is not None and hold is None and pod.node and replace(before, version=pod.version) == pod:
            # Another list, or a change without a meaning here: the node's account stands.
            self.pods[pod.uid] = pod
            return
        self._forget(pod.uid)
        if before is None or before.title != pod.title:
            self._by_title[pod.title] = pod.uid
        self.pods[pod.uid] = pod
        if not pod.node:
            hold = self._decide_hold(pod, hold, before, now)
            if hold is not None:
                self.holds[pod.uid] = hold
        self._count(pod.uid)

    def drop_pod(self, uid: str, deleted_at: float | None = None) -> None:
        """A pod is gone, or has finished: the pod's fractions are free.

        A pod deleted before its end, at `deleted_at`, counts on its node for a while from then on.
        """
        self._forget(uid)
        self.drop_earlier(uid)
        self._forget_choices(uid)
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        if self._by_title.get(pod.title) == uid:
            del self._by_title[pod.title]
        if deleted_at is not None and pod.node and self._linger_seconds:
            self.holds[uid] = Hold(node=pod.node, until_seconds=deleted_at + self._linger_seconds, pod=pod)
            self._count(uid)

    def keep_pods(self, uids: Collection[str], now: float | None = None) -> None:
        """After a list: pods off the list are gone; a promise of a moment ago may be younger than the list."""
        for uid in self.pods.keys() - set(uids):
            self.drop_pod(uid, now)

    def assume(
        self, pod: GpuPod, node: str, parts: Fractions, written: Mapping[str, str] | None, until_seconds: float
    ) -> None:
        """A pod was promised fractions on a node, seen by the API server or not."""
        self._forget(pod.uid)
        self.suspects.discard(pod.uid)
        if pod.uid in self.pods:
            self._spend(pod.uid, (written or {}).get(CHOICE_DIGEST, ""))
        self.holds[pod.uid] = Hold(node=node, until_seconds=until_seconds, pod=pod, parts=parts, written=written)
        self._count(pod.uid)

    def release(self, uid: str) -> None:
        """The promise to a pod is void, and the choice in the annotations too."""
        if uid in self.holds:
            self._forget(uid)
            self._count(uid)

    def restore(self, hold: Hold) -> None:
        """A pod counts by an earlier choice again, as it may be bound by the choice; a bound pod counts on its node."""
        self._forget(hold.pod.uid)
        known = self.pods.get(hold.pod.uid)
        if known is None or not known.node:
            self.holds[hold.pod.uid] = hold
        self._count(hold.pod.uid)

    def keep_earlier(self, hold: Hold) -> None:
        """Count an earlier choice beside the next choice, until the next choice is written.

        The pod may have been bound by the earlier choice, in a lost answer; until the watch reports either, both places
        are taken.
        """
        key = earlier_of(hold.pod.uid)
        self._forget(key)
        self.holds[key] = hold
        self._count(key)

    def drop_earlier(self, uid: str) -> None:
        """The earlier choice of a pod is void."""
        self._forget(earlier_of(uid))

    @contextmanager
    def aside(self, uid: str) -> Iterator[None]:
        """Inside the block the pod counts nowhere; afterwards the pod counts as before."""
        hold = self.holds.get(uid)
        self._forget(uid)
        try:
            yield
        finally:
            if hold is not None:
                self.holds[uid] = hold
            self._count(uid)

    def expire(self, now: float) -> None:
        """Choices without a binding for too long count no more."""
        for uid, hold in [(uid, hold) for uid, hold in self.holds.items() if hold.until_seconds <= now]:
            self.release(uid)
            self.expired += not hold.pod.node

    def use_digests(self, digests: ChoiceDigests, now: float) -> None:
        """Use new keys: a choice without a proof by the old keys counts if a new key proves it."""
        self.digests = digests
        for uid in sorted(self.suspects):
            hold = self._decide_hold(self.pods[uid], self.holds.get(uid), None, now)
            self._forget(uid)
            if hold is not None:
                self.holds[uid] = hold
            self._count(uid)

    def find_space(self, name: str, device_class: str = "") -> NodeSpace | None:
        """A node's account as of now: of the driver's GPUs, or of a class's devices.

        `None` for an unknown node and a node without such fractions.
        """
        entry = self.nodes.get(name)
        published = entry.find_published(device_class) if entry is not None else None
        if entry is None or published is None:
            return None
        account = entry.accounts.get(device_class)
        if account is None:
            account = NodeSpace(self.profiles, published, self._list_tenants(name, device_class))
            entry.accounts[device_class] = account
        return account

    def prepare(self, names: Iterable[str]) -> None:
        """Make the accounts of these nodes and their numbers ahead of questions."""
        for name in names:
            for device_class in ("", *(each.device_class for each in self.profiles.classes)):
                account = self.find_space(name, device_class)
                if account is not None:
                    account.prepare()

    def find_pod(self, title: str) -> GpuPod | None:
        """The pod with this namespace and name."""
        return self.pods.get(self._by_title.get(title, ""))

    def read_pod(self, seen: SeenPod) -> GpuPod | None:
        """A pod as in the question; `None` for a pod without fractions."""
        pod = read_gpu_pod(self.profiles, seen)
        return pod if pod is None or pod.demand is None else self._share_demand(pod)

    def _decide_hold(self, pod: GpuPod, hold: Hold | None, before: GpuPod | None, now: float) -> Hold | None:
        """The hold of an unbound pod, if the pod counts on any node."""
        if hold is not None and hold.is_awaited(pod):
            return hold
        is_same = before is not None and before.choice == pod.choice
        if hold is not None and (is_same or hold.written):
            # A choice read from annotations goes on counting, whatever was written over the annotations since.
            is_other = hold.parts is None and hold.pod.choice != pod.choice
            return hold if is_other else replace(hold, pod=pod, written={})
        # The same choice without a hold has been too old for a while, or was released.
        if is_same or not pod.chosen_node:
            return None
        if not self._is_new_choice(pod):
            # The scheduler may be about to bind the pod by the choice before, whose room stays.
            return hold
        return Hold(node=pod.chosen_node, until_seconds=now + self._assume_seconds, pod=pod)

    def _is_new_choice(self, pod: GpuPod) -> bool:
        """Whether an extender made the pod's choice, and the choice has not counted before."""
        if not self.digests.keys:
            return True
        if not self.digests.proves(pod):
            if pod.uid not in self.suspects:
                self.suspects.add(pod.uid)
                self.foreign += 1
                self._on_foreign(pod)
            return False
        self.suspects.discard(pod.uid)
        return self._spend(pod.uid, pod.choice[CHOICE_DIGEST])

    def _spend(self, uid: str, digest: str) -> bool:
        """Remember that a choice counts; whether for the first time."""
        if not digest:
            return True
        spent = self._spent.setdefault(uid, [])
        if digest in spent:
            return False
        spent.append(digest)
        del spent[:-_SPENT_MAX]
        return True

    def _forget_choices(self, uid: str) -> None:
        self._spent.pop(uid, None)
        self.suspects.discard(uid)

    def _list_tenants(self, name: str, device_class: str) -> dict[str, Tenant]:
        found: dict[str, Tenant] = {}
        for uid in self._uids.get(name, ()):
            hold = self.holds.get(uid)
            tenant = Tenant(self.pods[uid]) if hold is None else Tenant(hold.pod, hold.parts)
            if tenant.pod.device_class == device_class:
                found[uid] = tenant
        return found

    def _find_place(self, uid: str) -> str:
        pod, hold = self.pods.get(uid), self.holds.get(uid)
        if hold is not None:
            return hold.node
        return pod.node if pod is not None else ""

    def _count(self, uid: str) -> None:
        name = self._find_place(uid)
        if name:
            self._uids.setdefault(name, set()).add(uid)
            self._touch(name)

    def _forget(self, uid: str) -> None:
        """Count a pod nowhere."""
        name = self._find_place(uid)
        self.holds.pop(uid, None)
        if name and name in self._uids:
            self._uids[name].discard(uid)
            if not self._uids[name]:
                del self._uids[name]
            self._touch(name)

    def _touch(self, name: str) -> None:
        entry = self.nodes.get(name)
        if entry is not None:
            entry.accounts = {}

    def _share_demand(self, pod: GpuPod) -> GpuPod:
        """The pod with the demand shared among pods of one kind."""
        assert pod.demand is not None
        return replace(pod, demand=self._demands.share(pod.demand))
