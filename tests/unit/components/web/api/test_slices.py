"""Slices on the page, and as the API tells them."""

from msgspec.structs import replace

from nodeagent.components.web.api.claims import SlicesRecord, record_slices
from nodeagent.components.web.page.devices import NAMED_MAX, render_slices
from nodeagent.model.slices import PublishedSlices, SliceContent
from tests.unit.components.web.test_devices import make_state

SLICES = PublishedSlices(driver="gpu.nvidia.com", pool="node-1", generation=2, slices=1, devices=8)


def render(slices: PublishedSlices | None) -> str:
    return render_slices(replace(make_state(), slices=slices))


def test_a_node_that_serves_no_claims_has_no_such_part() -> None:
    """Nor an empty frame of one."""
    assert render(None) == ""


def test_how_slices_stand_is_shown() -> None:
    html = render(SLICES)
    assert "8 devices of gpu.nvidia.com in 1 slice of pool node-1, generation 2" in html
    assert "none" in html
    broken = render(replace(SLICES, problem="no rights to <slices>"))
    assert "not written" in broken
    assert "no rights to &lt;slices&gt;" in broken


def test_devices_that_pods_are_kept_from_are_named() -> None:
    """The first of them; of more than that their number."""
    names = tuple(f"gpu-{number}" for number in range(NAMED_MAX + 3))
    html = render(replace(SLICES, tainted=names))
    assert "<code>gpu-0</code>" in html
    assert f"<code>gpu-{NAMED_MAX}</code>" not in html
    assert "and 3 more" in html
    assert "more" not in render(replace(SLICES, tainted=names[:2]))


def test_what_was_written_is_told_as_it_is() -> None:
    content = SliceContent()
    assert record_slices(SLICES, [content]) == SlicesRecord(published=SLICES, slices=(content,))
    assert record_slices(None, ()) == SlicesRecord()
