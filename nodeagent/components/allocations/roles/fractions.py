"""Fractions: reserved at Allocate, bound to a container and to GPUs at PreStart, released at the container's end.

Owns that a binding redeems living reservations without another binding, that a binding stays on its GPUs, and that the
bindings of a GPU never exceed the capacity. The records alone cannot prove the last: `refuse_binding` decides before
a record is written, and a container already running is adopted even beyond the capacity.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from nodeagent.components.allocations.roles.grants import Ended
from nodeagent.model.allocation import Allocation
from nodeagent.model.errors import BindingRefused
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Binding, FractionTable, GpuFraction, Reservation
from nodeagent.model.values import Value
from nodeagent.model.wording import render_bytes


class Reserved(Value, frozen=True, tag="reserved"):
    """Device ids were reserved for a container not known by name yet."""

    reservation: Reservation


class Bound(Value, frozen=True, tag="bound"):
    """A container has its fractions; a repeated record changes limits and names."""

    binding: Binding


class Released(Value, frozen=True, tag="released"):
    """A binding has ended with its reservations; or an unredeemed reservation is rolled back."""

    number: int
    at_seconds: float
    why: str


FractionRecord = Reserved | Bound | Released


def refuse_binding(
    fractions: FractionTable, binding: Binding, capacities: Iterable[GpuFraction], leaving: Collection[int] = ()
) -> str:
    """Why a binding must not be recorded, in words; empty for a permitted binding.

    `binding` is new, or a living binding with other limits; `leaving` are released in the same commit.
    """
    if flaw := find_flaw(fractions, binding):
        return flaw
    by_gpu = {capacity.gpu: capacity for capacity in capacities}
    without = {binding.number, *leaving}
    living = fractions.bindings.get(binding.number)
    for fraction in binding.parts:
        if living is not None and any(_is_within(fraction, each) for each in living.parts):
            # A binding beyond the capacity may shrink step by step.
            continue
        capacity = by_gpu.get(fraction.gpu)
        if capacity is None:
            return f"nothing of {fraction.gpu} is given in parts"
        if problem := _find_excess(fraction, fractions.sum_fractions(fraction.gpu, without), capacity):
            return problem
    return ""


def plan_binding(
    fractions: FractionTable,
    binding: Binding,
    capacities: Iterable[GpuFraction] | None,
    leaving: Sequence[int],
    claimed: Collection[GpuUuid],
    next_number: int,
    at_seconds: float,
) -> tuple[Sequence[FractionRecord], Binding]:
    """The records that give a container its fractions, and the binding with its number.

    A new binding has number 0. Without capacities a running container is adopted as it is; `claimed` are the GPUs of
    prepared claims.

    Raises:
        BindingRefused: The binding must not be recorded.
    """
    kept = [
        Reserved(reservation=replace(each, number=next_number + count))
        for count, each in enumerate(list_kept(fractions, binding, leaving))
    ]
    new = binding if binding.number else replace(binding, number=next_number + len(kept))
    reason = find_flaw(fractions, new) if capacities is None else refuse_binding(fractions, new, capacities, leaving)
    reason = reason or next((f"a claim has {fraction.gpu}" for fraction in new.parts if fraction.gpu in claimed), "")
    if reason:
        raise BindingRefused(reason)
    ended = [Released(number=number, at_seconds=at_seconds, why="superseded") for number in leaving]
    return [*ended, *kept, Bound(binding=new)], new


def _is_within(part: GpuFraction, held: GpuFraction) -> bool:
    return part.gpu == held.gpu and part.cores <= held.cores and part.memory_bytes <= held.memory_bytes


def list_kept(fractions: FractionTable, new: Binding, leaving: Iterable[int]) -> tuple[Reservation, ...]:
    """The reservations that outlive the leaving bindings: all except reservations of the new binding's ids.

    An init container starts again after a reboot with its old ids, and the kubelet does not ask for them again.
    The same container's earlier ids are forgotten by the kubelet, and may be another container's by now.
    """
    taken = {each.tokens for each in map(fractions.reservations.get, new.reservations) if each}
    return tuple(
        reservation
        for number in leaving
        if (binding := fractions.bindings.get(number)) is not None and binding.container != new.container
        for reservation in map(fractions.reservations.__getitem__, binding.reservations)
        if reservation.tokens not in taken
    )


def find_flaw(fractions: FractionTable, binding: Binding) -> str:
    """The flaw of a binding apart from capacities; empty for a sound binding."""
    living = fractions.bindings.get(binding.number)
    if living is not None:
        return _find_difference(living, binding)
    if not binding.reservations or len(set(binding.reservations)) < len(binding.reservations):
        return "a binding redeems reservations, each once"
    for number in binding.reservations:
        if number not in fractions.reservations:
            return f"there is no reservation {number}"
        if number in fractions.redeemed:
            return f"reservation {number} is redeemed by binding {fractions.redeemed[number]}"
    return _find_odd_fractions(binding.parts)


def _find_difference(living: Binding, binding: Binding) -> str:
    """Why a living binding cannot change so: reservations and GPUs of a running container are fixed."""
    if living.reservations != binding.reservations:
        return f"binding {living.number} has other reservations"
    if [fraction.gpu for fraction in living.parts] != [fraction.gpu for fraction in binding.parts]:
        return f"binding {living.number} is on other GPUs"
    return _find_odd_fractions(binding.parts)


def _find_odd_fractions(parts: Sequence[GpuFraction]) -> str:
    counts = Counter(fraction.gpu for fraction in parts)
    if not parts or max(counts.values()) > 1:
        return "a binding has one part of each of its GPUs"
    if any(min(fraction.cores, fraction.memory_bytes) < 0 for fraction in parts):
        return "a part of a GPU is not negative"
    return ""


def _find_excess(part: GpuFraction, taken: GpuFraction, capacity: GpuFraction) -> str:
    cores_left = capacity.cores - taken.cores
    if part.cores > cores_left:
        return f"{part.gpu} has {cores_left} of {capacity.cores} cores left, not {part.cores}"
    memory_left = capacity.memory_bytes - taken.memory_bytes
    if part.memory_bytes > memory_left:
        left, whole = render_bytes(memory_left), render_bytes(capacity.memory_bytes)
        return f"{part.gpu} has {left} of {whole} left, not {render_bytes(part.memory_bytes)}"
    return ""


class FractionDraft:
    """The fractions while records are applied."""

    def __init__(self, fractions: FractionTable) -> None:
        self._reservations, self._bindings = dict(fractions.reservations), dict(fractions.bindings)
        self._redeemed, self._promised = dict(fractions.redeemed), dict(fractions.promised)

    @property
    def fractions(self) -> FractionTable:
        """The fractions now; the value changes as the draft goes on."""
        fractions = FractionTable(reservations=self._reservations, bindings=self._bindings)
        # The place where `cached_property` keeps its value.
        fractions.__dict__["redeemed"], fractions.__dict__["promised"] = self._redeemed, self._promised
        return fractions

    def apply(self, record: FractionRecord, next_number: int) -> Ended | None:
        """Apply a record and return the ended binding; a forbidden record, or a repeated end, changes nothing."""
        if isinstance(record, Released):
            return self._release(record)
        if isinstance(record, Bound):
            self._bind(record.binding, next_number)
        elif record.reservation.number >= next_number:
            self._promise(record.reservation)
        return None

    def _bind(self, binding: Binding, next_number: int) -> None:
        known = binding.number in self._bindings
        if (known or binding.number >= next_number) and not find_flaw(self.fractions, binding):
            self._bindings[binding.number] = binding
            self._redeemed.update(dict.fromkeys(binding.reservations, binding.number))

    def _promise(self, reservation: Reservation) -> None:
        """Add a reservation; the number is the highest, so the reservation is the newest of its device ids."""
        self._reservations[reservation.number] = reservation
        self._promised[reservation.tokens] = (*self._promised.get(reservation.tokens, ()), reservation.number)

    def _withdraw(self, number: int) -> None:
        tokens = self._reservations.pop(number).tokens
        left = tuple(each for each in self._promised.pop(tokens) if each != number)
        if left:
            self._promised[tokens] = left

    def _release(self, record: Released) -> Ended | None:
        """End a binding, or roll a reservation back; a rolled back reservation leaves no history."""
        binding = self._bindings.pop(record.number, None)
        if binding is not None:
            held = self._describe(binding)
            for redeemed in binding.reservations:
                self._withdraw(redeemed)
                del self._redeemed[redeemed]
            return Ended(allocation=held, until_seconds=record.at_seconds, why=record.why)
        if record.number in self._reservations and record.number not in self._redeemed:
            self._withdraw(record.number)
        return None

    def _describe(self, binding: Binding) -> Allocation:
        """The binding as an allocation of whole GPUs, for the history."""
        return Allocation(
            number=binding.number,
            resource=ResourceName(", ".join(self._reservations[number].resource for number in binding.reservations)),
            devices=tuple(DeviceId(fraction.gpu) for fraction in binding.parts),
            since_seconds=binding.since_seconds,
            pod=binding.pod,
            container=binding.container,
        )
