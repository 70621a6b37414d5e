"""The names of events are a promise to users, whatever the code calls their classes."""

from nodeagent.core.values import Envelope, name_type
from nodeagent.model.events import FACTS, STATES
from nodeagent.model.gpu import Inventory

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
