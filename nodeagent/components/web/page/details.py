"""The permanent addresses: a page for each GPU, pod and condition, made of the same sections as the overview; pure."""

from collections.abc import Sequence

from nodeagent.components.web.api.gpu_records import find_gpu_record
from nodeagent.components.web.api.records import FractionHolder, GpuRecord, StateRecord
from nodeagent.components.web.page.chains import build_chains, find_about
from nodeagent.components.web.page.charts import render_charts
from nodeagent.components.web.page.condition import DEFINITIONS, render_condition_page
from nodeagent.components.web.page.gpus import (
    decide_style,
    describe_vacancy,
    render_cordons,
    render_gpu_facts,
    render_meters,
    render_mig,
)
from nodeagent.components.web.page.markup import SYMBOLS, esc, mark, section, verdict
from nodeagent.components.web.page.overview import Page, PageView, Steps, describe_all, finish, render_overview
from nodeagent.components.web.page.sections import (
    render_allocation_table,
    render_events,
    render_fraction_table,
    render_receipts,
    select_receipts,
)
from nodeagent.model.allocation import Allocation
from nodeagent.model.gpu import Gpu
from nodeagent.rules.ids import find_uuid

HISTORY_CHAINS = 40


def is_page(path: str) -> bool:
    """Whether there is, or may be, a page at this address."""
    match path.split("/")[1:]:
        case [""] | ["gpus", _] | ["pods", _, _]:
            return path.startswith("/")
        case ["conditions", code]:
            return path.startswith("/") and code in DEFINITIONS
        case _:
            return False


def render_path(path: str, view: PageView) -> Page | None:
    """The page at this address; `None` where no page could ever be."""
    return finish(render_steps(path, view))


def render_steps(path: str, view: PageView) -> Steps:
    """The page in steps, if large."""
    if path == "/":
        return (yield from render_overview(view))
    return _render_detail(path, view)


def _render_detail(path: str, view: PageView) -> Page | None:
    match path.split("/")[1:]:
        case ["gpus", name]:
            return render_gpu_page(name, view)
        case ["pods", namespace, name]:
            return render_pod_page(namespace, name, view)
        case ["conditions", code]:
            return render_condition_page(code, view)
        case _:
            return None


def render_gpu_page(name: str, view: PageView) -> Page:
    """The page of a GPU; a former address of a GPU still has an answer."""
    state = view.state
    record = find_gpu_record(state.gpus, name) if state.gpus is not None else None
    if record is None:
        sentence = "The agent does not know it now. It may have been replaced, or the driver may not list it."
        return _absent(f"GPU {name}", sentence, view)
    gpu = record.gpu
    style, word, reason = decide_style(record)
    own = {str(gpu.uuid), *(str(device.uuid) for device in gpu.mig_devices)}
    happened = [*((one.seq, one.value) for one in view.past), *((one.seq, one.value) for one in view.history)]
    about = find_about(happened, own)
    chains = build_chains(describe_all(view), HISTORY_CHAINS, about=about)
    ended = render_receipts(select_receipts(view.receipts, own), state.time_seconds)
    return Page(
        title=f"{SYMBOLS[style]} GPU {gpu.index} · {state.node}",
        node=f"{state.node}: GPU {gpu.index}",
        style=style,
        time_seconds=state.time_seconds,
        sections={
            "verdict": verdict(style, f"GPU {gpu.index}: {word}", reason or gpu.name),
            "now": section("now", "The last minutes", f'<div class="card">{_now(record, view)}</div>'),
            "holders": section("holders", "Held by", f'<div class="card">{_holders(record, view)}{ended}</div>'),
            "events": render_events(chains),
            **render_charts(gpu, record.sample, view.periods.get(gpu.uuid, ())),
            "identity": section("identity", "Identity and state", render_gpu_facts(record, state)),
        },
    )


def _now(record: GpuRecord, view: PageView) -> str:
    meters = render_meters(record, view.trend.get(record.gpu.uuid, ()))
    return (meters or "<p>It gives no readings now.</p>") + render_mig(record)


def _holders(record: GpuRecord, view: PageView) -> str:
    parts = [(record.gpu, one) for one in record.parts]
    cordons = render_cordons(record, view.state.time_seconds)
    if record.allocations or parts:
        return cordons + _tabulate_held(record.allocations, parts, view.state)
    if record.door is not None and not record.door.is_open and not cordons:
        return f"<p>Nobody: {esc(record.door.explain())}</p>"
    vacancy = describe_vacancy(record)
    return f"{cordons}<p>Nobody{f': {vacancy}' if vacancy and not cordons else ''}.</p>"


def _tabulate_held(held: Sequence[Allocation], parts: Sequence[tuple[Gpu, FractionHolder]], state: StateRecord) -> str:
    """The tables of devices and of fractions, unless empty."""
    devices = render_allocation_table(held, state.gpus, state.time_seconds) if held else ""
    return devices + (render_fraction_table(parts, state.time_seconds) if parts else "")


def render_pod_page(namespace: str, name: str, view: PageView) -> Page:
    """The page of a pod with its devices, or without any."""
    state = view.state
    held = tuple(
        one
        for one in state.allocations
        if one.pod is not None and (one.pod.namespace, one.pod.name) == (namespace, name)
    )
    gpus = state.gpus.gpus if state.gpus is not None else ()
    parts = [
        (record.gpu, one)
        for record in gpus
        for one in record.parts
        if (one.pod.namespace, one.pod.name) == (namespace, name)
    ]
    title = f"pod {namespace}/{name}"
    if not held and not parts:
        return _absent(title, "It holds no device of this node now.", view)
    own = {find_uuid(device) for one in held for device in one.devices} | {str(gpu.uuid) for gpu, _ in parts}
    records = [
        record
        for record in gpus
        if own & {str(record.gpu.uuid), *(str(device.uuid) for device in record.gpu.mig_devices)}
    ]
    judged = [decide_style(record) for record in records]
    style = next((one for one in ("bad", "warn") if one in {found[0] for found in judged}), "ok")
    told = ", ".join(f"GPU {record.gpu.index} {word}" for record, (_, word, _) in zip(records, judged, strict=True))
    body = _tabulate_held(held, parts, state)
    return Page(
        title=f"{SYMBOLS[style]} {namespace}/{name} · {state.node}",
        node=f"{state.node}: {title}",
        style=style,
        time_seconds=state.time_seconds,
        sections={
            "verdict": verdict(style, title, told),
            "holders": section("holders", "What it holds", f'<div class="card">{body}</div>'),
        },
    )


def _absent(title: str, sentence: str, view: PageView) -> Page:
    return Page(
        title=f"{title} · {view.state.node}",
        node=f"{view.state.node}: {title}",
        style="warn",
        time_seconds=view.state.time_seconds,
        sections={
            "verdict": f'<div id="verdict" class="verdict warn" role="status"><p>{mark("warn", title)}: {esc(sentence)}'
            ' <a href="/">The whole node</a></p></div>'
        },
        status=404,
    )
