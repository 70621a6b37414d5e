"""Ports of the journal for components, beside the kubelet's own questions.

A change that could not be made durable raises `JournalUnavailable`, and all is as before.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from nodeagent.model.claims import ReadyClaims
from nodeagent.model.cordons import Cordon, CordonSource, CordonTable
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import (
    Binding,
    Change,
    EndedClaim,
    FractionTable,
    GpuFraction,
    PreparedClaim,
    Reservation,
    Step,
)
from nodeagent.model.offering import AllocationMode
from nodeagent.model.repairs import FaultSession
from nodeagent.model.upgrades import DriverUpgrade


class AllocationModeStore(Protocol):
    """Stores the allocation modes set by a person; published as `ChosenAllocationModes`."""

    async def set_allocation_mode(self, gpu: GpuUuid, door: AllocationMode | None) -> None:
        """Make the choice of an allocation mode durable; `None` leaves the mode to the configuration again."""
        ...

    def doors(self) -> Mapping[GpuUuid, AllocationMode] | None:
        """The modes set; `None` before the journal is read, in contrast to no modes."""
        ...


class CordonStore(Protocol):
    """Stores the cordons of all sources; published as `CordonTable`."""

    async def keep_cordons(self, source: CordonSource, cordons: tuple[Cordon, ...]) -> None:
        """Make all cordons of a source durable, in place of the source's cordons before."""
        ...

    def cordons(self) -> CordonTable | None:
        """The cordons of all sources; `None` before the journal is read, in contrast to no cordons."""
        ...


class ChangeJournal(Protocol):
    """Journals changes of GPUs, each step before it is taken; a step that is not durable must not be taken."""

    async def begin_change(self, owner: str, gpu: GpuUuid, step: Step) -> int:
        """Journal the beginning of a change; returns its number."""
        ...

    async def step_change(self, number: int, step: Step) -> None:
        """Journal the next step."""
        ...

    async def settle_change(self, number: int, outcome: str) -> None:
        """Journal the end of a change.

        Raises:
            JournalUnavailable: The end could not be made durable; the change is found again after a restart.
        """
        ...

    def changes(self, owner: str) -> tuple[Change, ...] | None:
        """The owner's changes under way; `None` before the journal is read."""
        ...


class RepairJournal(Protocol):
    """Journals fault sessions, an intent before its act. It has a single user, the component that decides."""

    def read_boot(self) -> str:
        """The id of the present boot."""
        ...

    def sessions(self) -> Mapping[int, FaultSession] | None:
        """The sessions by number, the closed ones while they count; `None` before the journal is read."""
        ...

    async def keep_session(self, session: FaultSession) -> FaultSession:
        """Make a session durable, in place of the session of its number; one with number 0 is given a number."""
        ...


class UpgradeJournal(Protocol):
    """The upgrades of the driver in the journal."""

    def read_boot(self) -> str:
        """The id of the boot for which the journal is open."""
        ...

    def upgrades(self) -> Mapping[int, DriverUpgrade] | None:
        """The upgrades by number; `None` before the journal is read."""
        ...

    async def keep_upgrade(self, upgrade: DriverUpgrade) -> DriverUpgrade:
        """Make an upgrade durable, under its number, or under a new one for number 0."""
        ...


class FractionJournal(Protocol):
    """Journals fractions of GPUs; published as `FractionTable`. It has a single user, the component that decides."""

    def parts(self) -> FractionTable | None:
        """Promised and bound fractions; `None` before the journal is read, in contrast to no fractions."""
        ...

    async def reserve(self, resource: ResourceName, devices: Sequence[DeviceId], cdi_name: str) -> Reservation:
        """Promise device ids before their container is known."""
        ...

    async def bind(
        self, binding: Binding, capacities: Iterable[GpuFraction] | None, leaving: Sequence[int] = ()
    ) -> Binding:
        """Give a container its fractions, or others than before; a new binding, of number 0, is given its number.

        Args:
            binding: the container's fractions from now on.
            capacities: each GPU's capacity; `None` for the adoption of a running container as it is.
            leaving: numbers of ended bindings to release with the change. Their ids not in the new binding stay
                promised, by the same name: their containers may start again.

        Raises:
            AllocationError: The binding conflicts with the ledger, or could not be made durable.
        """
        ...

    async def release(self, reasons: Mapping[int, str]) -> None:
        """End bindings, with their reservations, or roll reservations back, by number with the reason."""
        ...


class ClaimJournal(Protocol):
    """Journals prepared claims; published as `ReadyClaims`. It has a single user, the component that decides."""

    def ready_claims(self) -> ReadyClaims | None:
        """The prepared claims; `None` before the journal is read."""
        ...

    def ended_claim(self, uid: str) -> EndedClaim | None:
        """A claim put away not long ago; `None` for any other."""
        ...

    async def prepare_claim(self, claim: PreparedClaim, capacities: Iterable[GpuFraction]) -> None:
        """Journal a claim as ready, or as being made ready; `capacities` are the GPUs' capacities for fractions.

        Raises:
            ClaimRefused: A device of the claim has another holder.
        """
        ...

    async def unprepare_claim(self, uid: str, why: str) -> None:
        """Journal a claim as put away."""
        ...
