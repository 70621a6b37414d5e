"""Cordons on the page: who keeps a GPU from new pods, and whom the cordon waits for."""

from msgspec.structs import replace

from nodeagent.components.web.page.details import render_path
from nodeagent.components.web.page.overview import PageView, render_document
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, ModeHolder
from tests.support.nodes import make_view


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
