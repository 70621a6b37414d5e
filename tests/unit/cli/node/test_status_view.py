"""The node in a terminal."""

from msgspec.structs import replace

from nodeagent.cli.answers.table import Layout, clean, paint, render_table, shorten
from nodeagent.cli.node.status_view import WIDE_HEAD, render_status
from nodeagent.components.web.api.records import (
    ComponentRecord,
    ConditionRecord,
    GateRecord,
    GpuRecord,
    GpusRecord,
    StateRecord,
)
from nodeagent.model.allocation import Allocation, PodIdentity
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.health import DeviceHealth, Verdict
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.offering import AllocationMode, GpuAllocationMode
from nodeagent.model.telemetry import GpuSample
from tests.support.fractions import make_holders
from tests.support.nodes import make_brake, make_mode, make_rich_state
from tests.support.samples import make_gpu, make_uuid

ESCAPE = "\x1b"


def _state() -> StateRecord:
    held = Allocation(
        number=1,
        resource=ResourceName("nvidia.com/gpu"),
        devices=(DeviceId(make_uuid(0)),),
        since_seconds=1.0,
        pod=PodIdentity(namespace="ml", name="train"),
    )
    sample = GpuSample(
        uuid=make_uuid(0),
        gpu_utilization_percent=42,
        memory_used_bytes=1 << 30,
        memory_total_bytes=1 << 36,
        power_milliwatts=350_400,
        gpu_temperature_celsius=61,
    )
    health = DeviceHealth(device=make_uuid(0), gpu=make_uuid(0), verdict=Verdict.SUSPECT, since_seconds=0.0)
    return StateRecord(
        api="v1",
        version="1",
        node="node-a",
        gpu_source="nvml",
        pid=1,
        started_seconds=0.0,
        time_seconds=70.0,
        verdict="broken",
        sentence="a GPU is lost",
        ready=False,
        gates=(GateRecord(name="plugin_registered", open=False, since_seconds=0.0),),
        components=(
            ComponentRecord(name="web", phase="running", since_seconds=0.0, vital=True),
            ComponentRecord(name="cdi", phase="failed", since_seconds=0.0, vital=False, restarts=6, last_error="boom"),
        ),
        conditions=(
            ConditionRecord(
                code="gpu-lost",
                severity="error",
                title="a GPU no longer answers",
                remedy="reboot",
                since_seconds=10.0,
                detail=f"GPU 1{ESCAPE}[2J",
            ),
            ConditionRecord(code="note", severity="info", title="by the way", remedy="nothing", since_seconds=60.0),
        ),
        driver=DriverState(phase=DriverPhase.READY, driver_version="580.1"),
        gpus=GpusRecord(
            generation=1,
            gpus=(
                GpuRecord(gpu=make_gpu(0), sample=sample, health=(health,), allocations=(held,)),
                GpuRecord(gpu=make_gpu(1, lost="fell off")),
                GpuRecord(gpu=make_gpu(2), sample=GpuSample(uuid=make_uuid(2))),
            ),
        ),
        allocations=(held,),
        notices=("section cdi is not built",),
    )


def test_readings_of_long_ago_are_not_shown_as_if_they_were_of_now() -> None:
    """Their age stands below the table, and no number of theirs in it."""
    state = _state()
    assert state.gpus is not None
    now = render_status(state, Layout(200), colour=False)
    old = replace(state.gpus.gpus[0], sample_is_old=True, sample_age_seconds=44.0)
    text = render_status(replace(state, gpus=replace(state.gpus, gpus=(old,))), Layout(200), colour=False)
    assert "the last readings are 44 s old and not shown" in text
    assert " %" in now
    assert " %" not in text


def test_everything_a_paged_person_needs_is_there() -> None:
    """Verdict, condition with remedy and age, troubled parts, and every GPU, without any escape from outside."""
    text = render_status(_state(), Layout(200), colour=False)
    for part in (
        "✗ broken  node-a: a GPU is lost",
        "up 1 min 10 s",
        "driver 580.1",
        "error a GPU no longer answers (since 1 min, gpu-lost)",
        "do:   reboot",
        "waiting for: plugin_registered",
        "cdi        failed  6",
        "42 %",
        "350 W",
        "61 °C",
        "suspect",
        "LOST",
        "ml/train",
        "note: section cdi is not built",
    ):
        assert part in text
    assert ESCAPE not in text


def test_colour_only_where_it_is_asked_for() -> None:
    """Colours are on top of words and symbols, never instead of them."""
    assert ESCAPE in render_status(_state(), Layout(200), colour=True)


def test_no_line_is_wider_than_the_terminal_where_it_can_be_cut() -> None:
    """Tables give way on narrow terminals; remedies never do."""
    state = _state()
    lines = render_status(replace(state, conditions=()), Layout(60), colour=False).splitlines()
    assert max(map(len, lines)) <= 61


def test_an_agent_that_just_started_fits_on_a_few_lines() -> None:
    state = replace(
        _state(), conditions=(), gpus=None, driver=None, components=(), gates=(), allocations=(), notices=()
    )
    assert len(render_status(state, Layout(80), colour=False).splitlines()) == 2


def test_table_helpers() -> None:
    """Hostile characters are made visible, long cells cut with a sign, colours wrapped and reset."""
    assert clean("a\x07b") == "a�b"
    assert shorten("abcdef", 4) == "abc…"
    assert paint("x", "good", colour=True) == f"{ESCAPE}[32mx{ESCAPE}[0m"
    assert paint("x", "good", colour=False) == "x"
    assert render_table(("A", "B"), [("1", "2")], width=80) == ["A  B", "1  2"]
    assert render_table(("A",), [("1",)], width=80) == ["A", "1"]


def test_a_narrow_terminal_keeps_what_matters() -> None:
    """Columns give way one by one; index, health and holder stay, and the remedy is never cut."""
    remedy = "drain the node and reboot it, and replace the GPU if it happens again"
    state = replace(_state(), conditions=tuple(replace(one, remedy=remedy) for one in _state().conditions))
    for width in (40, 60, 80, 120):
        text = render_status(state, Layout(width), colour=False)
        assert remedy in " ".join(text.split())
        assert all(word in text for word in ("GPU", "HEALTH", "UTIL", "HELD BY"))
        assert max(len(line) for line in text.splitlines() if not line.startswith(("error", "info"))) <= width + 4
    assert "PCI" not in render_status(state, Layout(100), colour=False)
    assert "PCI" in render_status(state, Layout(160), colour=False)


def test_software_and_missing_gpus_are_named() -> None:
    """What the kubelet holds, which runtime serves it, and which GPU is not listed stand below the table."""
    text = " ".join(render_status(make_rich_state(), Layout(100), colour=False).split())
    assert "nvidia.com/gpu: 1 of 2 healthy" in text
    assert "containerd 2.1" in text
    assert "is missing: word" in text


def test_hostile_text_stays_text() -> None:
    """No name from hardware, pods or settings reaches the terminal as a command to it."""
    hostile = render_status(make_rich_state(f"a{ESCAPE}]0;x\x07\u202e\nb"), Layout(80), colour=False)
    assert {ESCAPE, "\x07", "\u202e"}.isdisjoint(hostile)


def test_wide_has_every_reading_and_cuts_nothing() -> None:
    """Clocks and what holds them back, fan, ECC, links: only where asked for; a GPU without sample has dashes."""
    state = _state()
    assert "CLOCKS" not in render_status(state, Layout(200), colour=False)
    lines = render_status(state, Layout(60, wide=True), colour=False).splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("GPU  ")]
    assert all(name in lines[at] for name in WIDE_HEAD)
    assert state.gpus is not None
    silent = replace(state, gpus=replace(state.gpus, gpus=tuple(replace(one, sample=None) for one in state.gpus.gpus)))
    row = render_status(silent, Layout(60, wide=True), colour=False).splitlines()[at + 1]
    assert row.count("  -") >= len(WIDE_HEAD)
    bare = render_status(state, Layout(60, wide=True, headers=False), colour=False)
    assert "CLOCKS" not in bare


def test_a_gpu_that_nobody_gets_is_not_shown_as_free() -> None:
    """Where nobody has it, the door says why; where somebody has, who."""
    state = _state()
    assert state.gpus is not None
    closed = GpuAllocationMode(
        gpu=make_uuid(0),
        index=0,
        address=make_gpu(0).pci.address,
        door=AllocationMode.NONE,
        wanted=AllocationMode.NONE,
        reason="set by a person",
        is_open=False,
    )
    gpus = tuple(replace(record, door=closed) for record in state.gpus.gpus)
    free = tuple(replace(record, allocations=()) for record in gpus)
    assert "door none" not in _render_gpus(state, gpus[:1])
    assert "door none" in _render_gpus(state, free[:1])
    cordon = Cordon(gpu=make_uuid(0), source=CordonSource.COMMAND, named="0", reason="fan")
    cordoned = tuple(replace(record, door=replace(closed, cordons=(cordon,))) for record in free)
    assert "cordoned by a person" in _render_gpus(state, cordoned[:1])


def test_a_cordon_is_told_beside_the_pod_that_keeps_the_gpu() -> None:
    """With its source and its end; the reason has its place in the conditions."""
    state = _state()
    assert state.gpus is not None
    (first, *_), brake = state.gpus.gpus, make_brake(until_seconds=1_000.0)
    closed = replace(first, door=make_mode(0, brake))
    text = _render_gpus(state, (closed,))
    assert text.rstrip().splitlines()[-3].endswith("ml/train; cordoned by the brake, until 1970-01-01T00:16:40Z")
    trial = replace(first, door=make_mode(trial=brake), allocations=())
    assert "open to a single pod, after the brake" in _render_gpus(state, (trial,))
    assert "brake" not in _render_gpus(state, (replace(first, door=make_mode()),))


def _render_gpus(state: StateRecord, records: tuple[GpuRecord, ...]) -> str:
    assert state.gpus is not None
    return render_status(replace(state, gpus=replace(state.gpus, gpus=records)), Layout(200), colour=False)


def test_pods_with_parts_are_named_at_their_gpu() -> None:
    """Each once, and counted below."""
    state = _state()
    assert state.gpus is not None
    parts = make_holders("a", "b", "a")
    records = state.gpus
    (first, *rest) = records.gpus

    def show(count: int) -> str:
        gpus = replace(records, gpus=(replace(first, parts=parts[:count]), *rest))
        return render_status(replace(state, gpus=gpus), Layout(width=300), colour=False)

    assert "ml/train, ml/a, ml/b" in show(3)
    assert "3 parts of GPUs" in show(3)
    assert "1 part of GPUs" in show(1)
    assert "of GPUs" not in show(0)
