"""The status page as one HTML document, readable without JavaScript; pure.

Everything that comes from hardware, pods or configuration is escaped here and nowhere else.
"""

from html import escape
from string import Template

from nodeagent.components.web.records import ComponentRecord, ConditionRecord, GpuRecord, StateRecord
from nodeagent.model.units import render_age, render_bytes

SYMBOLS = {"ok": "✓", "attention": "!", "broken": "✗", "starting": "…"}

DOCUMENT = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --ok: #1a7f37; --bad: #cf222e; --warn: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --ok: #3fb950; --bad: #ff7b72; --warn: #d29922; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.15rem; margin: 0; } h2 { font-size: 1rem; margin: 1.8rem 0 .5rem; }
.verdict { border-left: .4rem solid var(--warn); background: var(--soft); padding: .7rem 1rem; margin: 1rem 0; }
.verdict.ok { border-color: var(--ok); } .verdict.broken { border-color: var(--bad); }
.tiles { display: grid; gap: .7rem; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); }
.tile { border: 1px solid var(--line); border-radius: .5rem; padding: .7rem .9rem; }
.tile h3 { font-size: .95rem; margin: 0; } .tile p { margin: .2rem 0; } .dim { opacity: .75; font-size: .87rem; }
meter { width: 100%; height: .8rem; }
dl { display: grid; grid-template-columns: auto 1fr; gap: 0 .8rem; margin: .3rem 0; }
dt { opacity: .75; } dd { margin: 0; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.bad { color: var(--bad); } .good { color: var(--ok); } .warn { color: var(--warn); } code { font-size: .9em; }
</style>
</head>
<body>
<header><h1>nodeagent on $node</h1><p class="dim">$facts</p></header>
<main>
<div class="verdict $verdict" role="status"><strong>$symbol $word.</strong> $sentence</div>
$conditions
<h2>GPUs</h2>
$gpus
<h2>Who holds what</h2>
$allocations
<h2>Gates and components</h2>
$parts
</main>
<footer class="dim"><p>$time · <a href="/readyz">readyz</a> · <a href="/metrics">metrics</a> ·
<a href="/api/v1/">API</a> · <a href="/api/v1/events">live events</a></p></footer>
</body>
</html>
""")


def render_page(state: StateRecord) -> str:
    """The page for this state."""
    return DOCUMENT.substitute(
        title=escape(f"{SYMBOLS[state.verdict]} {state.node} · nodeagent"),
        node=escape(state.node),
        facts=escape(_facts(state)),
        verdict=state.verdict,
        symbol=SYMBOLS[state.verdict],
        word=escape(state.verdict),
        sentence=escape(state.sentence),
        conditions=_conditions(state.conditions, state.time_seconds),
        gpus=_gpus(state),
        allocations=_allocations(state),
        parts=_parts(state),
        time=escape(f"up {render_age(state.time_seconds - state.started_seconds)}"),
    )


def _facts(state: StateRecord) -> str:
    facts = [f"nodeagent {state.version}", f"GPUs from {state.gpu_source}", f"pid {state.pid}"]
    driver = state.driver
    if driver is not None and driver.driver_version:
        facts.append(f"driver {driver.driver_version}")
    if driver is not None and driver.cuda_version is not None:
        facts.append("CUDA {}.{}".format(*driver.cuda_version))
    return " · ".join(facts)


def _conditions(conditions: tuple[ConditionRecord, ...], now_seconds: float) -> str:
    if not conditions:
        return ""
    rows = "".join(
        f'<tr id="condition-{escape(one.code)}"><td class="{"bad" if one.severity == "error" else "warn"}">'
        f"{escape(one.severity)}</td><td><strong>{escape(one.title)}</strong>"
        f"{'<br>' + escape(one.detail) if one.detail else ''}<br><em>What to do:</em> {escape(one.remedy)}</td>"
        f"<td>{escape(render_age(now_seconds - one.since_seconds))}</td><td><code>{escape(one.code)}</code></td></tr>"
        for one in conditions
    )
    head = "<tr><th>Severity</th><th>What is wrong</th><th>Since</th><th>Code</th></tr>"
    return f'<h2>Conditions</h2><div class="scroll"><table>{head}{rows}</table></div>'


def _gpus(state: StateRecord) -> str:
    if state.gpus is None or not state.gpus.gpus:
        return "<p>No GPU is known yet.</p>"
    return f'<div class="tiles">{"".join(_tile(record) for record in state.gpus.gpus)}</div>'


def _tile(record: GpuRecord) -> str:
    gpu, sample = record.gpu, record.sample
    rows = [("PCI", gpu.pci.address), ("NUMA", "–" if gpu.numa_node is None else str(gpu.numa_node))]
    meter = ""
    if sample is not None:
        percent = sample.gpu_utilization_percent
        if percent is not None:
            meter = f'<meter min="0" max="100" value="{percent}" aria-label="utilisation">{percent} %</meter>'
            rows.append(("Utilisation", f"{percent} %"))
        if sample.memory_used_bytes is not None and sample.memory_total_bytes is not None:
            used, total = render_bytes(sample.memory_used_bytes), render_bytes(sample.memory_total_bytes)
            rows.append(("Memory", f"{used} of {total}"))
        if sample.power_milliwatts is not None:
            rows.append(("Power", f"{sample.power_milliwatts / 1000:.0f} W"))
        if sample.gpu_temperature_celsius is not None:
            rows.append(("Temperature", f"{sample.gpu_temperature_celsius} °C"))
    if gpu.mig_devices:
        rows.append(("MIG", ", ".join(device.profile for device in gpu.mig_devices)))
    holders = ", ".join(
        f"{one.pod.namespace}/{one.pod.name}" if one.pod is not None else f"allocation {one.number}"
        for one in record.allocations
    )
    rows.append(("Held by", holders or "nobody"))
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    return (
        f'<section class="tile" id="gpu-{escape(gpu.uuid)}"><h3>GPU {gpu.index} · {escape(gpu.name)}</h3>'
        f"<p>{_health(record)}</p>{meter}<dl>{facts}</dl><p class='dim'><code>{escape(gpu.uuid)}</code></p></section>"
    )


def _health(record: GpuRecord) -> str:
    if record.gpu.lost:
        return f'<span class="bad">✗ lost</span>: {escape(record.gpu.lost)}'
    whole = next((one for one in record.health if one.device == record.gpu.uuid), None)
    if whole is None:
        return '<span class="dim">not judged yet</span>'
    words = {"healthy": ("good", "✓"), "suspect": ("warn", "!"), "unhealthy": ("bad", "✗"), "unknown": ("warn", "?")}
    style, symbol = words[whole.verdict]
    reason = f": {escape(whole.reason)}" if whole.reason else ""
    return f'<span class="{style}">{symbol} {escape(whole.verdict)}</span>{reason}'


def _allocations(state: StateRecord) -> str:
    if not state.allocations:
        return "<p>No allocation is known.</p>"
    rows = "".join(
        f"<tr><td>{escape(f'{one.pod.namespace}/{one.pod.name}' if one.pod is not None else '–')}</td>"
        f"<td>{escape(one.container)}</td><td>{escape(one.resource)}</td>"
        f"<td>{escape(', '.join(one.devices))}</td>"
        f"<td>{escape(render_age(state.time_seconds - one.since_seconds))}</td></tr>"
        for one in state.allocations
    )
    head = "<tr><th>Pod</th><th>Container</th><th>Resource</th><th>Devices</th><th>Since</th></tr>"
    return f'<div class="scroll"><table>{head}{rows}</table></div>'


def _parts(state: StateRecord) -> str:
    gates = "".join(
        f'<tr><td>gate {escape(gate.name)}</td><td class="{"good" if gate.open else "warn"}">'
        f"{'✓ open' if gate.open else '… closed'}</td><td>{escape(render_age(state.time_seconds - gate.since_seconds))}"
        "</td><td></td></tr>"
        for gate in state.gates
    )
    components = "".join(_component(one, state.time_seconds) for one in state.components)
    head = "<tr><th>Part</th><th>State</th><th>Since</th><th>Remarks</th></tr>"
    return f'<div class="scroll"><table>{head}{gates}{components}</table></div>'


def _component(one: ComponentRecord, now_seconds: float) -> str:
    style = {"running": "good", "failed": "bad", "backing_off": "bad"}.get(one.phase, "warn")
    remarks = [f"{one.restarts} restarts"] if one.restarts else []
    if one.waiting_for:
        remarks.append("waits for " + ", ".join(one.waiting_for))
    if one.last_error:
        remarks.append(one.last_error)
    age = render_age(now_seconds - one.since_seconds)
    return (
        f'<tr><td>{escape(one.name)}</td><td class="{style}">{escape(one.phase)}</td>'
        f"<td>{escape(age)}</td><td>{escape('; '.join(remarks))}</td></tr>"
    )
