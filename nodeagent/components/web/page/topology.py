"""The links between the GPUs of this node, drawn, and as a table; pure.

GPUs stand in a row, grouped by NUMA node. Above them the NVLinks, to the switches or from GPU to GPU; below them the
PCIe side. The table repeats the picture, in the words of `nvidia-smi topo -m`.
"""

import math
from collections import Counter
from itertools import groupby

from nodeagent.components.web.api.records import GpuRecord, GpusRecord
from nodeagent.components.web.page.markup import esc, folded, gpu_path, section, table
from nodeagent.model.gpu import Gpu, GpuPair, PathKind
from nodeagent.model.ids import PciAddress
from nodeagent.model.values import Value

BOX, GAP, GROUP_GAP, MARGIN = 76, 14, 34, 20
SWITCH_Y, GPU_Y, NUMA_Y = 24, 150, 236
BOX_HEIGHT, HEIGHT = 44, 290
SCALE = 1.25


class Spot(Value, frozen=True):
    """A GPU and the middle of its box."""

    gpu: Gpu
    middle: int


def render_topology(gpus: GpusRecord | None) -> str:
    """The section of the page, or a note without GPUs."""
    if gpus is None or not gpus.gpus:
        return section("topology", "Topology", '<p class="card">No GPU is known yet.</p>')
    matrix = _render_matrix(gpus) if len(gpus.gpus) > 1 else ""
    drawing = f'<div class="scroll" tabindex="0" role="group" aria-label="Drawing of the topology">{_draw(gpus)}</div>'
    return section("topology", "Topology", f'<div class="card">{drawing}{matrix}</div>')


def plan_spots(records: tuple[GpuRecord, ...]) -> tuple[Spot, ...]:
    """Where each GPU stands: by NUMA node, then by index."""
    ordered = sorted((record.gpu for record in records), key=lambda gpu: (_numa(gpu), gpu.index))
    spots: list[Spot] = []
    left = MARGIN + GROUP_GAP // 2
    for _, group in groupby(ordered, key=_numa):
        for gpu in group:
            spots.append(Spot(gpu=gpu, middle=left + BOX // 2))
            left += BOX + GAP
        left += GROUP_GAP
    return tuple(spots)


def _numa(gpu: Gpu) -> int:
    return -1 if gpu.numa_node is None else gpu.numa_node


def _draw(gpus: GpusRecord) -> str:
    spots = plan_spots(gpus.gpus)
    width = spots[-1].middle + BOX // 2 + GROUP_GAP // 2 + MARGIN
    switches = {
        switch.address: (at * 2 + 1) * width // (len(gpus.switches) * 2) for at, switch in enumerate(gpus.switches)
    }
    direct = _list_direct(gpus)
    parts = [
        *_draw_numa(spots),
        *_draw_switch_links(spots, switches),
        *_draw_arcs(spots, direct),
        *(
            _draw_box(middle, SWITCH_Y, f"NVSwitch {at}", address)
            for at, (address, middle) in enumerate(switches.items())
        ),
        *(_draw_gpu(spot) for spot in spots),
    ]
    count = f"{len(spots)} GPUs" + (f", {len(switches)} NVSwitches" if switches else "")
    label = f"{count}; the table says the same" if len(spots) > 1 else f"GPU {spots[0].gpu.index} and its NUMA node"
    top = 0 if switches else GPU_Y - 20 - max((_rise(spots, pair) for pair in direct), default=0)
    box = f'width="{width * SCALE:.0f}" viewBox="0 {top} {width} {HEIGHT - top}"'
    return f'<svg class="topology" {box} role="group" aria-label="{label}">{"".join(parts)}</svg>'


def _draw_numa(spots: tuple[Spot, ...]) -> list[str]:
    parts = []
    for numa, group in groupby(spots, key=lambda spot: _numa(spot.gpu)):
        members = list(group)
        left, right = members[0].middle - BOX // 2 - 10, members[-1].middle + BOX // 2 + 10
        number = str(numa) if numa >= 0 else "unknown"
        # There is room for so much under a single GPU; `NUMA ?` for an unknown node.
        alone = f"NUMA {number if numa >= 0 else '?'}"
        name = f"NUMA node {number} · PCIe" if len(members) > 1 else alone
        middle = (left + right) // 2
        lines = "".join(f"M{one.middle} {GPU_Y + BOX_HEIGHT}V{NUMA_Y}" for one in members)
        parts.append(
            f'<path class="pcie" d="{lines}"/><rect class="numa" x="{left}" y="{NUMA_Y}" width="{right - left}"'
            f' height="34" rx="6"/><text x="{middle}" y="{NUMA_Y + 21}">{name}</text>'
        )
    return parts


def _draw_switch_links(spots: tuple[Spot, ...], switches: dict[PciAddress, int]) -> list[str]:
    parts = []
    for spot in spots:
        links = Counter(
            link.remote
            for link in spot.gpu.nvlinks
            if link.active and link.remote is not None and link.remote_is_switch
        )
        for address, count in links.items():
            if address in switches:
                parts.append(
                    f'<path d="M{spot.middle} {GPU_Y}C{spot.middle} {GPU_Y - 45} {switches[address]}'
                    f' {SWITCH_Y + BOX_HEIGHT + 45} {switches[address]} {SWITCH_Y + BOX_HEIGHT}"'
                    f' stroke-width="{0.6 + count * 0.35:.1f}"/>'
                )
    return parts


def _list_direct(gpus: GpusRecord) -> list[GpuPair]:
    known = {record.gpu.uuid for record in gpus.gpus}
    return [
        pair
        for pair in gpus.pairs
        if pair.nvlink_count and not pair.through_switch and {pair.left, pair.right} <= known
    ]


def _rise(spots: tuple[Spot, ...], pair: GpuPair) -> int:
    left, right = (spot.middle for spot in spots if spot.gpu.uuid in {pair.left, pair.right})
    return min(GPU_Y - 24, 40 + (right - left) // 5)


def _draw_arcs(spots: tuple[Spot, ...], direct: list[GpuPair]) -> list[str]:
    parts = []
    for pair in direct:
        left, right = (spot.middle for spot in spots if spot.gpu.uuid in {pair.left, pair.right})
        rise, width = _rise(spots, pair), 0.6 + pair.nvlink_count * 0.5
        # Above the arc, however thick: half of its width lies above its middle.
        height = GPU_Y - rise * 3 // 4 - 3 - math.ceil(width / 2)
        parts.append(
            f'<path d="M{left} {GPU_Y}C{left} {GPU_Y - rise} {right} {GPU_Y - rise} {right} {GPU_Y}"'
            f' stroke-width="{width:.1f}"/>'
            f'<text class="minor" x="{(left + right) // 2}" y="{height}">{pair.nvlink_count}×</text>'
        )
    return parts


def _draw_gpu(spot: Spot) -> str:
    gpu = spot.gpu
    links = f"{sum(link.active for link in gpu.nvlinks)} NVLinks" if gpu.nvlinks else gpu.pci.address[5:]
    box = _draw_box(spot.middle, GPU_Y, f"{'✗ ' if gpu.lost else ''}GPU {gpu.index}", links, lost=bool(gpu.lost))
    return f'<a href="{gpu_path(gpu.uuid)}">{box}</a>'


def _draw_box(middle: int, top: int, name: str, below: str, *, lost: bool = False) -> str:
    css = ' class="lost"' if lost else ""
    width = BOX if top == GPU_Y else BOX + 24
    return (
        f'<rect{css} x="{middle - width // 2}" y="{top}" width="{width}" height="{BOX_HEIGHT}" rx="6"/>'
        f'<text x="{middle}" y="{top + 19}">{esc(name)}</text>'
        f'<text class="minor" x="{middle}" y="{top + 35}">{"lost" if lost else esc(below)}</text>'
    )


def describe_pair(pair: GpuPair | None) -> str:
    """`NV18` for eighteen NVLinks, else the PCIe path as `nvidia-smi` spells it."""
    if pair is None:
        return "–"
    return f"NV{pair.nvlink_count}" if pair.nvlink_count else str(pair.path)


def _render_matrix(gpus: GpusRecord) -> str:
    known = {frozenset((pair.left, pair.right)): pair for pair in gpus.pairs}
    all_gpus = sorted((record.gpu for record in gpus.gpus), key=lambda gpu: gpu.index)
    rows = [
        (
            f"<b>GPU {left.index}</b>",
            *(
                str(PathKind.SELF) if left is right else describe_pair(known.get(frozenset((left.uuid, right.uuid))))
                for right in all_gpus
            ),
        )
        for left in all_gpus
    ]
    head = ("from, to", *(f"GPU {gpu.index}" for gpu in all_gpus))
    caption = (
        "NVn: n NVLinks. PIX, PXB: PCIe bridges. PHB: host bridge."
        " NODE: host bridges of one NUMA node. SYS: between NUMA nodes."
    )
    return folded("matrix", "The topology as a table", table(caption, head, rows, name="matrix"))
