"""A remedy leads somewhere: never back to the surface on which it is read."""

import pytest

from nodeagent.cli.gpu.source import TROUBLES
from nodeagent.components.health.evidence.xids import CATALOGUE as XIDS
from nodeagent.components.health.evidence.xids import find_xid
from nodeagent.components.health.remedies import Remedy
from nodeagent.model.conditions import CATALOGUE
from tests.unit.deploy.queries import read_rules

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
