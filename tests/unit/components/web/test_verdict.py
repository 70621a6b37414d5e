"""The node in one word and one sentence."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.components.web.api.gpu_records import join_gpus
from nodeagent.components.web.api.records import ComponentRecord, ConditionRecord, GateRecord, GpusRecord
from nodeagent.components.web.health_text import one_line, render_readyz
from nodeagent.components.web.verdict import count_gpus, decide_ready, decide_verdict
from nodeagent.model.gpu import Inventory
from nodeagent.model.plugin import OfferSummary, PluginState, Unoffered, UnofferedCause
from nodeagent.model.telemetry import GpuSample, NodeSample
from tests.support.examples import examples
from tests.support.nodes import make_reader, make_rich_state
from tests.support.samples import make_gpu, make_inventory, make_mig, make_uuid


def _gate(name: str, *, is_open: bool = True, vital: bool = True) -> GateRecord:
    return GateRecord(name=name, open=is_open, since_seconds=0.0, vital=vital)


def _component(phase: str, *, vital: bool = True, last_error: str = "") -> ComponentRecord:
    return ComponentRecord(name="part", phase=phase, since_seconds=0.0, vital=vital, last_error=last_error)


def _condition(severity: str, *, detail: str = "", key: str = "") -> ConditionRecord:
    return ConditionRecord(
        code="a-code", severity=severity, title="title", remedy="do this", since_seconds=0.0, detail=detail, key=key
    )


def unoffered(index: int, cause: UnofferedCause, reason: str) -> Unoffered:
    uuid = make_uuid(index)
    return Unoffered(device=uuid, gpu=uuid, name=f"GPU {index}", cause=cause, reason=reason)


def offering(count: int, *without: Unoffered) -> PluginState:
    return PluginState(account=OfferSummary(gpus=count, devices_offered=count - len(without), unoffered=tuple(without)))


def decide(
    *,
    ready: bool,
    conditions: list[ConditionRecord],
    inventory: Inventory | None = None,
    plugin: PluginState | None = None,
    gates: Sequence[GateRecord] = (),
    gpus: GpusRecord | None = None,
) -> tuple[str, str]:
    return decide_verdict(
        ready=ready, conditions=conditions, inventory=inventory, plugin=plugin, gates=gates, gpus=gpus
    )


def judge(plugin: PluginState) -> tuple[str, str]:
    return decide(ready=True, conditions=[], inventory=make_inventory(8), plugin=plugin)


@pytest.mark.parametrize(
    ("gates", "components", "ready"),
    [
        ([], [], True),
        ([_gate("a")], [_component("running")], True),
        ([_gate("a", is_open=False)], [], False),
        ([_gate("a", is_open=False, vital=False)], [], True),
        ([_gate("a")], [_component("failed")], False),
        ([_gate("a")], [_component("failed", vital=False)], True),
        ([_gate("a")], [_component("degraded")], True),
        ([_gate("a")], [_component("stopping")], False),
    ],
)
def test_only_vital_parts_decide_readiness(
    gates: list[GateRecord], components: list[ComponentRecord], *, ready: bool
) -> None:
    """A node without labels or metrics still runs pods; one without a device plugin does not."""
    assert decide_ready(gates, components) is ready


def test_an_error_is_told_first() -> None:
    """The worst thing is the sentence, and how much else there is follows."""
    verdict, sentence = decide(
        ready=True,
        conditions=[_condition("error", detail="GPU 3"), _condition("error"), _condition("warning")],
    )
    assert (verdict, sentence) == ("broken", "title: GPU 3 (and 2 more conditions)")


def test_a_start_names_what_it_waits_for() -> None:
    """Nobody should have to guess why a node is not ready yet."""
    verdict, sentence = decide(
        ready=False,
        conditions=[],
        inventory=None,
        plugin=None,
        gates=[_gate("driver_ready", is_open=False), _gate("b")],
    )
    assert (verdict, sentence) == ("starting", "starting: waiting for driver_ready")
    assert decide(ready=False, conditions=[])[1].endswith("its components")


def test_warnings_explain_a_start_and_trouble_a_ready_node() -> None:
    """The same warning is the reason of a slow start, or attention on a node that works."""
    warnings = [_condition("warning")]
    assert decide(ready=False, conditions=warnings) == (
        "starting",
        "title",
    )
    assert decide(ready=True, conditions=warnings) == (
        "attention",
        "title",
    )


def test_information_does_not_worry_anybody() -> None:
    """A condition of mere information leaves the node well."""
    verdict, sentence = decide(
        ready=True, conditions=[_condition("info")], inventory=make_inventory(2), plugin=offering(2), gates=[]
    )
    assert (verdict, sentence) == ("ok", "all is well: 2 GPUs")


def test_all_is_well_only_where_nothing_is_left_over() -> None:
    """A device that pods cannot get is no "ok", whatever is (not yet) shown. A plugin that is off is told."""
    unfit = unoffered(3, UnofferedCause.UNFIT, "its health is not known yet")
    assert judge(offering(8, unfit)) == (
        "attention",
        "7 of 8 GPUs offered: GPU 3: its health is not known yet",
    )
    assert judge(offering(8, unfit, unoffered(4, UnofferedCause.UNTOLD, "later")))[1].endswith("yet; GPU 4: later")
    assert judge(PluginState()) == ("ok", "8 GPUs, not offered to pods: `device_plugin.enabled` is false")


@settings(max_examples=examples(200))
@given(age=st.floats(0, 100), period=st.floats(0.1, 20), took=st.floats(0, 5))
def test_all_is_well_only_while_readings_are_of_now(age: float, period: float, took: float) -> None:
    """Not one moment longer than the tiles say so: the same record decides both."""
    sample = NodeSample(
        time_seconds=0.0, gpus=(GpuSample(uuid=make_uuid(0)),), period_seconds=period, took_seconds=took
    )
    gpus = join_gpus(make_inventory(1), make_reader(sample), None, {}, now_seconds=age)
    verdict, sentence = decide(ready=True, conditions=[], inventory=make_inventory(1), plugin=offering(1), gpus=gpus)
    assert gpus.gpus[0].sample_is_old is (verdict != "ok") is ("readings are" in sentence)
    if age > max(2.0, 2 * period) + 3 * took:
        assert verdict == "attention"


def test_readings_that_are_old_on_purpose_say_so() -> None:
    """A driver that was released is not asked: the reason is told, not its echo."""
    sample = NodeSample(time_seconds=0.0, gpus=(GpuSample(uuid=make_uuid(0)),))
    gpus = join_gpus(make_inventory(1), make_reader(sample), None, {}, now_seconds=60.0)
    released = replace(_condition("info", detail="by root"), code="driver-released")
    told = decide(ready=True, conditions=[released, _condition("info")], plugin=offering(1), gpus=gpus)
    assert told == ("attention", "title: by root")


def test_what_somebody_wants_so_is_told_and_well() -> None:
    """GPUs that the configuration leaves alone are counted in the sentence, and are no trouble."""
    excluded = [unoffered(index, UnofferedCause.EXCLUDED, "`gpus.exclude` names it") for index in (0, 1)]
    assert judge(offering(8, *excluded)) == ("ok", "6 of 8 GPUs offered: 2 excluded by configuration")
    draining = unoffered(2, UnofferedCause.DRAINING, "door whole until a is gone, then none")
    elsewhere = unoffered(3, UnofferedCause.DOOR, "door none")
    told = "6 of 8 GPUs offered: 1 behind another door, 1 kept for another door until nobody has it"
    assert judge(offering(8, draining, elsewhere)) == ("ok", told)
    cordoned = unoffered(4, UnofferedCause.CORDONED, "cordoned by ann: fan")
    assert judge(offering(8, cordoned)) == ("ok", "7 of 8 GPUs offered: 1 cordoned")
    assert judge(offering(1)) == ("ok", "all is well: 8 GPUs")
    assert judge(offering(1, unoffered(0, UnofferedCause.VANISHED, "gone")))[1].startswith("0 of 1 GPU offered")


@pytest.mark.parametrize(
    ("inventory", "text"),
    [
        (None, "no GPU"),
        (make_inventory(0), "no GPU"),
        (make_inventory(1), "1 GPU"),
        (Inventory(generation=1, gpus=(make_gpu(0, mig=make_mig(0, 1)),)), "1 GPU, 1 MIG device"),
        (Inventory(generation=1, gpus=(make_gpu(0, mig=make_mig(0, 7)),)), "1 GPU, 7 MIG devices"),
        (Inventory(generation=1, gpus=(make_gpu(0), make_gpu(1, lost="gone"))), "2 GPUs, 1 lost"),
    ],
)
def test_gpus_are_counted_in_words(inventory: Inventory | None, text: str) -> None:
    """Singular and plural are right, and losses are named."""
    assert count_gpus(inventory) == text


def test_readyz_has_a_line_for_everything() -> None:
    """Gates, troubled components and conditions each have a line; the last line is the verdict."""
    state = replace(
        make_rich_state(),
        ready=False,
        gates=(_gate("a"), _gate("b", is_open=False)),
        components=(
            _component("running"),
            _component("failed", last_error="boom"),
            _component("degraded", vital=False),
        ),
        conditions=(_condition("error", detail="de\ntail", key="GPU-1"),),
        sentence="7 of 8\nGPUs",
    )
    assert render_readyz(state).splitlines() == [
        "[+] gate a passed",
        "[-] gate b not passed yet",
        "[-] component part failed: boom",
        "[!] component part degraded",
        "[!] error a-code [GPU-1] title: de tail; do this",
        "[i] 7 of 8 GPUs",
        "not ready",
    ]
    well = replace(state, ready=True, gates=(), components=(), conditions=(), sentence="well")
    assert render_readyz(well) == "[i] well\nready\n"


def test_text_from_outside_stays_on_its_line() -> None:
    """A hostile name cannot forge a line or move the cursor."""
    assert one_line("a\nready\x1b[2J") == "a ready [2J"
