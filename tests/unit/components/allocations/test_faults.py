"""Which holdings have a fault in their receipts, and how long receipts are kept."""

import pytest
from msgspec.structs import replace

from nodeagent.components.allocations.faults import KEEP_SECONDS, forget_old, note_fault
from nodeagent.components.allocations.ledger import Ledger, Record, open_record, replay
from nodeagent.components.allocations.roles.claims import Prepared, Unprepared
from nodeagent.components.allocations.roles.fractions import Bound, Released
from nodeagent.components.allocations.roles.grants import Freed, Granted
from nodeagent.model.allocation import AllocationSource, PodIdentity
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.ids import DeviceId
from nodeagent.model.journal import PreparedClaim, PreparedDevice
from nodeagent.rules.signals import ENDED_SECONDS, Severity
from tests.support.allocations import make_entry
from tests.support.journals import gpu, make_binding, make_claim, make_part, reserved
from tests.unit.rules.test_signals import make_fault

CRITICAL, WARN, USER = Severity.CRITICAL, Severity.WARN, Severity.USER
A, B = gpu("a"), gpu("b")


def on(*names: str, number: int = 79) -> GpuFaultReported:
    """A fault that hits these GPUs."""
    return make_fault(number, gpu=gpu(names[0]), devices=tuple(map(gpu, names)))


def granted(number: int, devices: str, pod: str = "") -> Granted:
    return Granted(entry=make_entry(number, devices, pod=pod))


def claim(uid: str, *names: str) -> PreparedClaim:
    pods = tuple(PodIdentity(namespace="team", name=name, uid=name) for name in names)
    return replace(make_claim(uid, "a"), pods=pods)


def seen(ledger: Ledger) -> dict[str, list[tuple[int, Severity, int]]]:
    """The faults of living holdings: number, severity and count."""
    return {key: [(one.number, one.severity, one.count) for one in faults] for key, faults in ledger.faults.items()}


def ended(ledger: Ledger) -> list[tuple[str, list[int]]]:
    """The receipts: pod and numbers."""
    pods = [(one.allocation.pod.name if one.allocation.pod else "-") for one in ledger.history]
    return list(zip(pods, [[fault.number for fault in one.faults] for one in ledger.history], strict=True))


def note(ledger: Ledger, *faults: GpuFaultReported, at: float = 5.0) -> Ledger:
    for fault in faults:
        ledger = note_fault(ledger, fault, at).ledger
    return ledger


@pytest.mark.parametrize(
    ("held", "end"),
    [
        ([granted(1, "a", "train")], Freed(number=1, at_seconds=9.0, why="given back")),
        ([reserved(1), Bound(binding=make_binding(2, (1,)))], Released(number=2, at_seconds=9.0, why="ended")),
        ([Prepared(claim=claim("c", "x", "y"))], Unprepared(uid="c", at_seconds=9.0, why="ended")),
    ],
    ids=["grant", "fraction", "claim"],
)
def test_a_fault_is_in_the_receipt_of_every_way_of_holding(held: list[Record], end: Record) -> None:
    """Also where the journal was begun anew between fault and end; nothing of the holding is left."""
    noted = note_fault(replay(held, 10), on("a"), 5.0)
    assert noted.is_new
    after = replay([open_record(noted.ledger, "m", "b"), end], 10)
    assert after.faults == {}
    assert [(one.until_seconds, [fault.number for fault in one.faults]) for one in after.history] == [
        (9.0, [79]) for _ in after.history
    ]
    assert after.history


def test_a_claim_has_a_receipt_for_each_of_its_pods() -> None:
    """Not for devices that are only looked at, and not for a claim that was never ready or never had a pod."""
    admin = PreparedDevice(requests=("r",), pool="node", device="gpu-b", uuid=B, is_admin=True)
    looked_at = replace(claim("l", "l"), devices=(admin,))
    both = replace(claim("c", "x", "y"), devices=(*claim("c").devices, admin))
    every = (both, looked_at, replace(claim("h", "h"), is_ready=False), claim("n"))
    ends = [Unprepared(uid=one.uid, at_seconds=9.0, why="ended") for one in every]
    after = replay([*(Prepared(claim=one) for one in every), *ends], 10)
    assert ended(after) == [("x", []), ("y", [])]
    first = after.history[0].allocation
    assert first.resource == "claim team/c"
    assert first.devices == (DeviceId(A),)
    assert first.source is AllocationSource.CLAIM


def test_only_who_holds_a_device_of_the_fault_has_it() -> None:
    """Each kind once, with the number of times; what nobody holds is nobody's."""
    ledger = replay([granted(1, "a"), granted(2, "b"), granted(3, "c")], 10)
    faults = (on("a"), on("a"), on("a", number=48), on("b", "c", number=31))
    assert seen(note(ledger, *faults)) == {
        "1": [(79, CRITICAL, 2), (48, CRITICAL, 1)],
        "2": [(31, WARN, 1)],
        "3": [(31, WARN, 1)],
    }
    assert note_fault(ledger, on("d"), 5.0) == (ledger, False)


def test_a_repetition_is_nothing_new() -> None:
    """A fault of another GPU, or of another number, is."""
    ledger = replay([granted(1, "ab", "train")], 10)
    noted = note_fault(ledger, on("a"), 5.0)
    again = note_fault(noted.ledger, on("a"), 7.0)
    assert (noted.is_new, again.is_new) == (True, False)
    (fault,) = again.ledger.faults["1"]
    assert (fault.first_seconds, fault.last_seconds, fault.count) == (5.0, 7.0, 2)
    assert note_fault(again.ledger, on("a", number=48), 7.0).is_new


def test_a_program_is_blamed_only_where_its_pod_is_alone() -> None:
    """Two containers of a pod are one pod; a container whose pod nobody has named is a pod of its own."""
    user = on("a", number=31)
    alone = replay([granted(1, "a", "train")], 10)
    assert seen(note(alone, user)) == {"1": [(31, USER, 1)]}
    assert seen(note(replay([granted(1, "a")], 10), user)) == {"1": [(31, USER, 1)]}
    binding = make_binding(3, (2,))
    shared = replay([granted(1, "a"), reserved(2), Bound(binding=binding)], 10)
    assert seen(note(shared, user)) == {"1": [(31, WARN, 1)], "3": [(31, WARN, 1)]}
    own = replace(binding, pod=PodIdentity(namespace="team", name="train"))
    both = replay([granted(1, "a", "train"), reserved(2), Bound(binding=own)], 10)
    assert seen(note(both, user)) == {"1": [(31, USER, 1)], "3": [(31, USER, 1)]}


def test_a_late_fault_is_in_the_receipt_of_who_has_just_ended() -> None:
    """A fault of a program only where nobody has the GPU by then; a device handed on within a pod has one receipt."""
    end = Freed(number=1, at_seconds=10.0, why="given back")
    former = replay([granted(1, "a", "first"), end], 10)
    late = 10.0 + ENDED_SECONDS
    assert note_fault(former, on("a", number=31), late - 1).is_new
    assert ended(note(former, on("a", number=31), on("a", number=31), at=late - 1)) == [("first", [31])]
    assert ended(note(former, on("a"), at=late)) == ended(note(former, on("b"), at=11.0)) == [("first", [])]
    followed = replay([granted(1, "a", "first"), end, granted(2, "a", "next")], 10)
    both = note(followed, on("a"), on("a", number=31), at=11.0)
    assert (ended(both), seen(both)) == ([("first", [79])], {"2": [(79, CRITICAL, 1), (31, USER, 1)]})
    handed_on = replay([granted(1, "a", "train"), granted(2, "a", "train")], 10)
    assert ended(note(handed_on, on("a"))) == [("train", [])]
    nameless = replay([granted(1, "a"), end], 10)
    assert ended(note(nameless, on("a"), at=11.0)) == [("-", [79])]


def test_what_ended_long_ago_is_forgotten() -> None:
    """And so are faults of nobody; a ledger without either is the same ledger."""
    ends = [Freed(number=number, at_seconds=1000.0 * number, why="given back") for number in (1, 2)]
    ledger = replay([granted(1, "a", "old"), granted(2, "b", "new"), granted(3, "c", "here"), *ends], 10)
    ledger = note(ledger, on("c"))
    assert forget_old(ledger, 2000.0) is ledger
    later = forget_old(replace(ledger, faults={**ledger.faults, "9": ledger.faults["3"]}), 1000.0 + KEEP_SECONDS)
    assert (ended(later), list(later.faults)) == ([("new", [])], ["3"])
    assert later.entries == ledger.entries


def test_a_part_and_a_claim_keep_the_faults_seen() -> None:
    """A ledger with faults goes on being the ledger of its records."""
    ledger = note(replay([reserved(1), Bound(binding=make_binding(2, (1,), make_part("a")))], 10), on("a"))
    changed = replay([open_record(ledger, "m", "b"), Bound(binding=make_binding(2, (1,), make_part("a", 40)))], 10)
    assert (seen(changed), changed.faults) == ({"2": [(79, CRITICAL, 1)]}, ledger.faults)
