"""Cordons on the page: who keeps a GPU from new pods, and whom the cordon waits for."""

from msgspec.structs import replace

from nodeagent.components.web.page.details import render_path
from nodeagent.components.web.page.overview import PageView, render_document
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, ModeHolder
from tests.support.nodes import make_brake, make_cordon, make_mode, make_view


def _render(view: PageView) -> str:
    page = render_path("/", view)
    assert page is not None
    return render_document(page, "v-1")


def test_a_cordoned_gpu_says_by_whom_beside_its_pod() -> None:
    """On its tile: the pod keeps the GPU, and the person on call sees whom the cordon waits for."""
    view = make_view()
    assert view.state.gpus is not None
    first, *rest = view.state.gpus.gpus
    door = GpuAllocationMode(
        gpu=first.gpu.uuid,
        index=0,
        address=first.gpu.pci.address,
        door=AllocationMode.WHOLE,
        wanted=AllocationMode.WHOLE,
        reason="the default",
        is_open=False,
        cordons=(Cordon(gpu=first.gpu.uuid, source=CordonSource.COMMAND, named="0", reason="fan", who="ann"),),
        held_by=(ModeHolder(door=AllocationMode.WHOLE, name="allocation 9"),),
    )
    for allocations in (first.allocations, ()):
        gpus = (replace(first, door=door, allocations=allocations), *rest)
        page = _render(replace(view, state=replace(view.state, gpus=replace(view.state.gpus, gpus=gpus))))
        tile = next(part for part in page.split('<li class="tile') if "GPU 0" in part and "</header>" in part)
        assert "cordoned by ann: fan, which waits for allocation 9" in tile


def _render_gpu(door: GpuAllocationMode, *, is_held: bool = False) -> str:
    view = make_view()
    assert view.state.gpus is not None
    first, *rest = view.state.gpus.gpus
    record = replace(first, door=door, allocations=first.allocations if is_held else (), parts=())
    state = replace(view.state, gpus=replace(view.state.gpus, gpus=(record, *rest)))
    page = render_path(f"/gpus/{first.gpu.uuid}", replace(view, state=state))
    assert page is not None
    return page.sections["holders"]


def test_the_page_of_a_braked_gpu_says_what_opens_it() -> None:
    """With the pause and the number of closings, beside the pod that keeps the GPU too."""
    for is_held in (True, False):
        text = _render_gpu(make_mode(0, make_brake(until_seconds=1_000.0, closings=2)), is_held=is_held)
        assert "cordoned</span> by the brake: 3 starts were lost, until 1970-01-01T00:16:40Z" in text
        assert "Closed 2 times in a row, " in text
        assert "a single pod that lasts after 1970-01-01T00:16:40Z; <code>nodeagent gpu uncordon 0</code>" in text
        assert ("Nobody." in text) is not is_held


def test_the_page_of_a_gpu_on_trial_says_that_one_pod_may_have_it() -> None:
    text = _render_gpu(make_mode(trial=make_brake()))
    assert "open to a single pod</span> after the brake: 3 starts were lost" in text
    assert "Closed once, " in text


def test_a_person_s_cordon_has_no_closings() -> None:
    text = _render_gpu(make_mode(0, make_cordon()))
    assert "<b>What opens it:</b> <code>nodeagent gpu uncordon 0</code>" in text
    assert "Closed" not in text
    assert "What opens it" not in _render_gpu(make_mode())
