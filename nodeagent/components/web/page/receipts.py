"""Receipts on the page: the pods that ended after a fault of their GPUs, and whom the faults blame; pure."""

from collections.abc import Collection, Sequence
from typing import Final

from nodeagent.components.web.page.markup import age, esc, gpu_path, mark, table
from nodeagent.rules.receipts import HeldGpu, Receipt, Verdict, describe_fault

SHOWN: Final = 8
_STYLES: Final = {Verdict.HARDWARE: "bad", Verdict.APPLICATION: "warn"}


def render_receipts(receipts: Sequence[Receipt], now_seconds: float) -> str:
    """A row for each of the first receipts; empty without a receipt."""
    rows = [
        (
            esc(f"{one.namespace}/{one.pod}" if one.pod else "pod not known"),
            "<br>".join(map(_render_gpu, one.gpus)) or "–",
            "<br>".join(esc(describe_fault(fault, one.until_seconds)) for fault in one.faults),
            mark(_STYLES[one.verdict], one.verdict) if one.verdict in _STYLES else esc(one.verdict),
            f"{age(one.until_seconds or now_seconds, now_seconds)} ago",
        )
        for one in receipts[:SHOWN]
    ]
    return table("Ended after a fault", ("Pod", "GPUs", "Faults", "Blamed", "Ended"), rows) if rows else ""


def select_receipts(receipts: Sequence[Receipt], devices: Collection[str]) -> tuple[Receipt, ...]:
    """The receipts of a GPU, by the UUIDs of the GPU and its MIG devices."""
    return tuple(one for one in receipts if any(held.uuid in devices for held in one.gpus))


def _render_gpu(held: HeldGpu) -> str:
    name = esc(held.uuid) if held.index is None else f"GPU {held.index}"
    return f'<a href="{gpu_path(held.uuid)}">{name}</a>'
