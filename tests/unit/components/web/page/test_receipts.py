"""Receipts on the page: the pods that ended after a fault of their GPUs."""

from msgspec.structs import replace

from nodeagent.components.web.page.details import render_path
from nodeagent.components.web.page.overview import PageView, render_document
from nodeagent.components.web.page.sections import RECEIPTS_SHOWN, render_allocations, render_receipts
from nodeagent.rules.receipts import HeldGpu, Receipt, Verdict
from nodeagent.rules.signals import Severity
from tests.support.journals import make_seen
from tests.support.nodes import make_view
from tests.support.samples import make_uuid
from tests.support.texts.html import Page


def make_receipt(number: int, pod: str = "train", *, index: int | None = 0) -> Receipt:
    return Receipt(
        number=number,
        resource="nvidia.com/gpu",
        devices=(make_uuid(0),),
        namespace="ml",
        pod=pod,
        container="main",
        since_seconds=0.0,
        until_seconds=14.0,
        state="given back",
        source="journal",
        pod_uid="u",
        gpus=(HeldGpu(uuid=make_uuid(0), index=index),),
        verdict=Verdict.HARDWARE,
        faults=(make_seen(79),),
    )


def _read(path: str, view: PageView) -> str:
    page = render_path(path, view)
    assert page is not None
    return Page(render_document(page, "v-1")).text


def test_the_last_pods_with_a_fault_stand_on_the_overview_and_at_their_gpu() -> None:
    """With the GPU, the fault and its distance from the end, and whom the fault blames; not at another GPU."""
    view = replace(make_view(), receipts=(make_receipt(1), make_receipt(2, "<b>", index=None)))
    for path in ("/", f"/gpus/{make_uuid(0)}"):
        text = _read(path, view)
        assert "Ended after a fault" in text
        assert "ml/train" in text
        assert "XID 79 12 s before" in text
        assert "✗ hardware" in text
        assert "ml/<b>" in text
    assert "Ended after a fault" not in _read(f"/gpus/{make_uuid(1)}", view)
    assert "Ended after a fault" not in _read("/", make_view())


def test_the_table_stays_short_and_blames_nobody_without_a_reason() -> None:
    warned = replace(
        make_receipt(1, ""), verdict=Verdict.NONE, faults=(make_seen(99, severity=Severity.WARN),), gpus=()
    )
    text = render_receipts([warned] * (RECEIPTS_SHOWN + 5), 20.0)
    assert text.count("<tr>") == RECEIPTS_SHOWN + 1
    assert "pod not known" in text
    assert "<div>none</div>" in text


def test_a_node_whose_pods_have_all_ended_tells_of_the_faults() -> None:
    state = replace(make_view().state, allocations=(), gpus=None, mps=None)
    text = render_allocations(state, (make_receipt(1),))
    assert "No device is handed out." in text
    assert "Ended after a fault" in text
