"""The best free devices for a container: the answer to GetPreferredAllocation.

Owns the order of concerns: required devices, then known, fit and unheld devices, then the links between GPUs
(`hierarchy`, `mesh`) or the spread of replicas (`spread`).

Everything needed is read from the inventory beforehand, so that a request asks no driver.
Refuses nothing: an odd request gets the best valid answer, and a contradictory one gets an empty answer, which
leaves the choice to the kubelet.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from nodeagent.model.ids import DeviceId
from nodeagent.model.values import Value
from nodeagent.rules.offer.devices import Resource
from nodeagent.rules.placement.grouping import Choice, Request, Scores, mask_of, positions_of
from nodeagent.rules.placement.hierarchy import choose_in_hierarchy, plan_tree
from nodeagent.rules.placement.mesh import MESH_MAX, choose_in_mesh
from nodeagent.rules.placement.spread import Policy, Spread
from nodeagent.rules.placement.topology import Topology

GROUP_MAX: Final = 32
"""More whole GPUs than this on one node are given out in index order; 32 take up to a tenth of a second."""

_REMEMBERED_MAX: Final = 4096


class Group(Value, frozen=True):
    """A group of whole GPUs with the group's worth."""

    devices: tuple[DeviceId, ...]
    score: int
    """How well these GPUs are connected with one another."""
    total: int
    """The same with the best groups of this size made of the left-over GPUs."""


class Explanation(Value, frozen=True):
    """An answer with the reason."""

    devices: tuple[DeviceId, ...]
    rule: str
    """The deciding rule, in words."""
    choice: Group | None = None
    """The answer as a group, where connections decided."""
    runner_up: Group | None = None
    """The best other group, if there is one."""
    exact: bool = True
    """Whether no better group exists; not so for irregular meshes too large to search."""


class Preference:
    """The answers for one resource; built anew after a change of devices, connections or policy."""

    def __init__(self, resource: Resource, topology: Topology, policy: Policy) -> None:
        self._devices = {device.id: device for device in resource.devices}
        self._withheld = frozenset(device.id for device in resource.devices if device.withheld)
        self._policy = policy
        self._spread = Spread(resource.devices, policy)
        positions = {gpu: position for position, gpu in enumerate(topology.gpus)}
        self._ids = {positions[device.gpu]: device.id for device in resource.devices if device.gpu in positions}
        self._positions = {name: position for position, name in self._ids.items()}
        self._scores: Scores = topology.scores
        self._whole = (
            all(device.replica is None and device.gpu_instance_id is None for device in resource.devices)
            and len(self._ids) == len(resource.devices) <= GROUP_MAX
        )
        self._remembered: dict[Request, tuple[Choice, bool]] = {}

    def prefer(
        self,
        available: Iterable[DeviceId],
        must_include: Iterable[DeviceId],
        size: int,
        avoid: Collection[DeviceId] = (),
    ) -> tuple[DeviceId, ...]:
        """The devices for one container: the required ones first, then the best of the others.

        `avoid` names available devices to hand out only when no other is left.
        """
        return self._answer(available, must_include, size, avoid)[0]

    def explain(self, available: Iterable[DeviceId], must_include: Iterable[DeviceId], size: int) -> Explanation:
        """The same answer with reasons; slower, for people."""
        answer, rule, request = self._answer(available, must_include, size, ())
        if request is None:
            return Explanation(devices=answer, rule=rule)
        choice, exact = self._solve(request)
        others = [
            self._solve(replace(request, forbidden=1 << position))[0]
            for position in positions_of(choice.group & ~request.required)
            if request.available.bit_count() > request.size
        ]
        runner_up = max(others, key=lambda other: other.order, default=None)
        return Explanation(
            devices=answer,
            rule=rule,
            choice=self._name(choice),
            runner_up=None if runner_up is None else self._name(runner_up),
            exact=exact,
        )

    def _answer(
        self, available: Iterable[DeviceId], must_include: Iterable[DeviceId], size: int, avoid: Collection[DeviceId]
    ) -> tuple[tuple[DeviceId, ...], str, Request | None]:
        """The answer, the deciding rule, and the search behind it, if any."""
        answer = tuple(dict.fromkeys(must_include))
        if size <= 0 or size < len(answer):
            return (), "the request contradicts itself: the kubelet chooses", None
        for tier in self._tiers(available, answer, avoid):
            missing = size - len(answer)
            if missing == 0:
                break
            if missing < len(tier):
                return self._choose(answer, tier, missing)
            answer += tuple(tier)
        return answer, "nothing is left to choose", None

    def _tiers(
        self, available: Iterable[DeviceId], required: Iterable[DeviceId], avoid: Collection[DeviceId]
    ) -> tuple[list[DeviceId], ...]:
        """The choices, best first: good devices, those better avoided, unknown ones."""
        names = set(available).difference(required)
        known = [name for name in self._devices if name in names]
        avoided = self._withheld.union(avoid).intersection(known)
        return (
            [name for name in known if name not in avoided] if avoided else known,
            [name for name in known if name in avoided] if avoided else [],
            sorted(names - self._devices.keys()) if len(known) < len(names) else [],
        )

    def _choose(
        self, included: tuple[DeviceId, ...], tier: Sequence[DeviceId], count: int
    ) -> tuple[tuple[DeviceId, ...], str, Request | None]:
        """Add the best of a tier with more than enough."""
        if tier[0] not in self._devices:
            return included + tuple(tier[:count]), "only devices that are not known here are left", None
        if not self._whole:
            free = [self._devices[name] for name in tier]
            return included + self._spread.choose(free, count), f"shares and MIG devices are {self._policy}", None
        held = [self._positions[name] for name in included if name in self._positions]
        required = mask_of(held)
        free_positions = mask_of([self._positions[name] for name in tier])
        request = Request(available=required | free_positions, required=required, size=len(held) + count)
        group = self._solve(request)[0].group
        chosen = tuple(self._ids[position] for position in positions_of(group & ~required))
        return included + chosen, "the best connected group whose loss leaves the best groups", request

    def _solve(self, request: Request) -> tuple[Choice, bool]:
        """The best group, and whether it is proven; remembered, since the topology does not change."""
        known = self._remembered.get(request)
        if known is not None:
            return known
        tree = plan_tree(self._scores, request.available)
        regular = tree.fits(self._scores)
        if regular or request.available.bit_count() > MESH_MAX:
            solved = choose_in_hierarchy(self._scores, request, tree), regular
        else:
            solved = choose_in_mesh(self._scores, request), True
        if len(self._remembered) >= _REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[request] = solved
        return solved

    def _name(self, choice: Choice) -> Group:
        devices = tuple(self._ids[position] for position in positions_of(choice.group))
        return Group(devices=devices, score=choice.own, total=choice.total)
