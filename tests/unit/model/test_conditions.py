"""What follows from what in the list of conditions: of one cause one thing is told."""

import anyio
import pytest

from nodeagent.cli.gpu.source import TROUBLES
from nodeagent.components.health.evidence.xids import CATALOGUE as XIDS
from nodeagent.components.health.evidence.xids import find_xid
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.values import ActiveConditions, Envelope, name_type
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.events import FACTS, STATES
from nodeagent.model.gpu import Inventory
from nodeagent.model.remedies import Remedy
from tests.support.virtual_time import FakeClock
from tests.unit.deploy.queries import read_rules

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(
    ("cause", "follows"),
    [("claims-without-api", "slices-not-written"), ("api-unreachable", "slices-not-written")],
)
async def test_what_follows_is_not_told_beside_its_cause(clock: FakeClock, cause: str, follows: str) -> None:
    """Whose remedy would be the wrong one."""
    bus = Bus(clock)
    conditions = Conditions(bus, clock, CATALOGUE)
    async with anyio.create_task_group() as tasks:
        await tasks.start(conditions.run)
        for code in (cause, follows):
            conditions.set(code, detail="why")
        await anyio.sleep(3600)
        told = bus.latest(ActiveConditions)
        assert told is not None
        assert [each.code for each in told.value.conditions] == [cause]
        tasks.cancel_scope.cancel()


CONDITIONS = {one.code: one.remedy for one in CATALOGUE}
DEVICES = {str(one): one.sentence for one in Remedy}
"""Read in `nodeagent gpu health`, and in the details of conditions."""
SURFACES: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "status, page and readyz": (CONDITIONS | DEVICES, ("nodeagent status", "status page", "/readyz")),
    "gpu health": (
        DEVICES | {code: remedy for code, remedy in CONDITIONS.items() if code in TROUBLES},
        ("nodeagent gpu health",),
    ),
    "gpu xids": ({str(xid): entry.remedy.sentence for xid, entry in XIDS.items()}, ("nodeagent gpu xids",)),
    "alerts": (
        {rule["alert"]: rule["annotations"]["action"] for rule in read_rules() if "alert" in rule},
        ("docs/alerts", "this alert"),
    ),
}


@pytest.mark.parametrize("surface", SURFACES)
def test_a_remedy_never_points_at_the_surface_it_stands_on(surface: str) -> None:
    """Who reads it is there already."""
    remedies, here = SURFACES[surface]
    assert [name for name, remedy in remedies.items() if any(word in remedy for word in here)] == []
    assert all(remedies.values())


def test_one_finding_has_one_remedy() -> None:
    """A GPU that fell off the bus: its XID, its condition and its alert say the same."""
    (alert,) = [rule for rule in read_rules() if rule.get("alert") == "GpuLost"]
    said = {CONDITIONS["gpu-lost"], find_xid(79).remedy.sentence, alert["annotations"]["action"]}
    assert len(said) == 1, said


PROMISED = {
    "ChosenDoors",
    "ClaimBook",
    "ClusterWishes",
    "DoorChanged",
    "DoorChosen",
    "PartBound",
    "PartOffers",
    "PartProcessEnded",
    "PartReasons",
    "PartRefused",
    "PartReleased",
    "PartTable",
    "PartUsage",
    "WishRefused",
}
"""Names in filters of `/api/v1/events` and in stored histories, older than the code's present words."""


def test_an_event_keeps_its_name_for_users() -> None:
    """Clients filter by the name, and a history from before an upgrade has it."""
    assert {name_type(kind) for kind in (*STATES, *FACTS) if hasattr(kind, "shown_as")} == PROMISED


def test_the_name_of_an_event_is_its_class_unless_said_otherwise() -> None:
    """An envelope says the name of its value; no two events share a name."""
    assert Envelope(Inventory(generation=1), "", 1, 0.0, "inventory").type_name == "Inventory"
    names = [name_type(kind) for kind in (*STATES, *FACTS)]
    assert len(set(names)) == len(names)
