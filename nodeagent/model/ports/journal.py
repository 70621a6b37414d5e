"""What parts ask of the journal beside the kubelet's own questions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from nodeagent.model.claims import ClaimBook
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.journal import Binding, Change, EndedClaim, GpuPart, PartTable, PreparedClaim, Reservation, Step
from nodeagent.model.offering import Door


class GpuDoorKeeper(Protocol):
    """Remembers the doors that a person has set; told to everybody as `ChosenDoors`."""

    async def set_door(self, gpu: GpuUuid, door: Door | None) -> None:
        """Make the choice of a door durable; `None` leaves it to the configuration again.

        Raises:
            JournalUnavailable: it could not be made durable, and all is as before.
        """
        ...

    def doors(self) -> Mapping[GpuUuid, Door] | None:
        """The doors that are set; `None` while nobody knows, which is not the same as no door."""
        ...


class ChangeKeeper(Protocol):
    """Keeps what is written of changes of GPUs in several steps, each before it is taken."""

    async def begin_change(self, owner: str, gpu: GpuUuid, step: Step) -> int:
        """Write down that a change begins; answers with its number.

        Raises:
            JournalUnavailable: it could not be made durable, and must not begin.
        """
        ...

    async def step_change(self, number: int, step: Step) -> None:
        """Write down the next step.

        Raises:
            JournalUnavailable: it could not be made durable, and must not be taken.
        """
        ...

    async def settle_change(self, number: int, outcome: str) -> None:
        """Write down that a change is over.

        Raises:
            JournalUnavailable: it could not be made durable; it is found again after a restart.
        """
        ...

    def changes(self, owner: str) -> tuple[Change, ...] | None:
        """Those of this part that are under way; `None` while nobody knows."""
        ...


class PartLedger(Protocol):
    """Keeps what is given of GPUs in parts; told to everybody as `PartTable`. It has one user, who decides."""

    def parts(self) -> PartTable | None:
        """What is promised and bound; `None` while nobody knows, which is not the same as nothing."""
        ...

    async def reserve(self, resource: ResourceName, devices: Sequence[DeviceId], cdi_name: str) -> Reservation:
        """Promise ids before anybody knows to which container.

        Raises:
            JournalUnavailable: it could not be made durable.
        """
        ...

    async def bind(
        self, binding: Binding, capacities: Iterable[GpuPart] | None, leaving: Sequence[int] = ()
    ) -> Binding:
        """Give a container its parts, or others than it had; a new one, of number 0, is given its number.

        Args:
            binding: what it has from now on.
            capacities: how much each GPU has to give; `None` for what runs already, and is adopted as it is.
            leaving: numbers of bindings that have ended and are released with it. Ids of theirs that it does not
                have stay promised, by the same name: their containers may start again.

        Raises:
            AllocationError: it goes against the account, or could not be made durable.
        """
        ...

    async def release(self, reasons: Mapping[int, str]) -> None:
        """End bindings, with their reservations, or roll reservations back, by number with the reason.

        Raises:
            JournalUnavailable: it could not be written down, and all is as before.
        """
        ...


class ClaimKeeper(Protocol):
    """Keeps which claims are made ready; told to everybody as `ClaimBook`. It has one user, who decides."""

    def claim_book(self) -> ClaimBook | None:
        """What is prepared; `None` while nobody knows."""
        ...

    def ended_claim(self, uid: str) -> EndedClaim | None:
        """A claim that was put away not long ago; `None` of any other."""
        ...

    async def prepare_claim(self, claim: PreparedClaim, capacities: Iterable[GpuPart]) -> None:
        """Write down that a claim is ready, or that it is being made so; `capacities` is what GPUs have to share.

        Raises:
            ClaimRefused: somebody else has one of its devices.
            JournalUnavailable: it could not be made durable.
        """
        ...

    async def unprepare_claim(self, uid: str, why: str) -> None:
        """Write down that a claim was put away.

        Raises:
            JournalUnavailable: it could not be made durable, and all is as before.
        """
        ...
