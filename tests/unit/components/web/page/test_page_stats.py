"""The numbers at the top of the page."""

from msgspec.structs import replace

from nodeagent.components.web.page.stats import render_stats
from nodeagent.model.gpu import MissingGpu, StoredGpu
from tests.support.nodes import make_rich_state
from tests.support.samples import make_address, make_uuid
from tests.support.texts.html import Page


def _read(html: str) -> str:
    return Page(f"<html>{html}</html>").text


def test_the_numbers_add_up_over_the_gpus_that_answer() -> None:
    """Fit, held, and sums of what was read; the bad one has a sign and not only a colour.

    One of four is lost, and a fifth is on the bus and not listed.
    """
    text = _read(render_stats(make_rich_state()))
    assert "GPUs fit for work ✗ 3 of 5" in text
    assert "GPUs in use 3 of 4" in text
    assert "simulated GPUs" in text


def test_gpus_that_are_gone_are_not_fit_for_work() -> None:
    """That all of the rest are is no good news; a lost one that is still listed is counted once."""
    state = make_rich_state()
    assert state.gpus is not None
    first, *_, lost, last = state.gpus.gpus
    gone = StoredGpu(uuid=make_uuid(9), name="H100", index=9, address=make_address(9))
    missing = MissingGpu(address=lost.gpu.pci.address, device_id=1, reason="all ones")

    def show(**changes: object) -> str:
        assert state.gpus is not None
        return _read(render_stats(replace(state, gpus=replace(state.gpus, **({"missing": ()} | changes)))))

    assert "GPUs fit for work ✗ 2 of 3" in show(gpus=(first, last), vanished=(gone,))
    assert "GPUs fit for work ✗ 2 of 3" in show(gpus=(first, lost, last), missing=(missing,))
    assert "GPUs fit for work ✓ 2 of 2" in show(gpus=(first, last))
    assert "GPUs fit for work ✗ 0 of 1" in show(gpus=(), vanished=(gone,))


def test_what_is_not_known_is_left_out() -> None:
    """A node without inventory, driver and runtime has only the agent's age to show."""
    state = replace(make_rich_state(), gpus=None, driver=None, runtime=None, gpu_source="nvml")
    assert _read(render_stats(state)).startswith("Agent up for")


def test_gpus_that_tell_nothing_have_no_sums() -> None:
    """Without readings there is no utilisation of zero: it is not shown."""
    state = make_rich_state()
    assert state.gpus is not None
    silent = tuple(replace(record, sample=None) for record in state.gpus.gpus)
    text = _read(render_stats(replace(state, gpus=replace(state.gpus, gpus=silent))))
    assert "Utilisation" not in text
    assert "kW" not in text


def test_averages_leave_out_what_is_old_or_lost() -> None:
    """They are of now: a reading from before a hang is no part of them."""
    state = make_rich_state()
    assert state.gpus is not None
    old = tuple(replace(record, sample_is_old=True) for record in state.gpus.gpus)
    assert "Utilisation" not in _read(render_stats(replace(state, gpus=replace(state.gpus, gpus=old))))
