"""The node in one word and one sentence."""

import pytest

from nodeagent.components.web.health_text import one_line, render_readyz
from nodeagent.components.web.records import ComponentRecord, ConditionRecord, GateRecord
from nodeagent.components.web.verdict import count_gpus, decide_ready, decide_verdict
from nodeagent.model.gpu import Inventory
from tests.support.samples import make_gpu, make_inventory, make_mig


def _gate(name: str, *, is_open: bool = True, vital: bool = True) -> GateRecord:
    return GateRecord(name=name, open=is_open, since_seconds=0.0, vital=vital)


def _component(phase: str, *, vital: bool = True, last_error: str = "") -> ComponentRecord:
    return ComponentRecord(name="part", phase=phase, since_seconds=0.0, vital=vital, last_error=last_error)


def _condition(severity: str, *, detail: str = "", key: str = "") -> ConditionRecord:
    return ConditionRecord(
        code="a-code", severity=severity, title="title", remedy="do this", since_seconds=0.0, detail=detail, key=key
    )


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
    verdict, sentence = decide_verdict(
        ready=True,
        conditions=[_condition("error", detail="GPU 3"), _condition("error"), _condition("warning")],
        inventory=None,
        gates=[],
    )
    assert (verdict, sentence) == ("broken", "title: GPU 3 (and 2 more)")


def test_a_start_names_what_it_waits_for() -> None:
    """Nobody should have to guess why a node is not ready yet."""
    verdict, sentence = decide_verdict(
        ready=False, conditions=[], inventory=None, gates=[_gate("driver_ready", is_open=False), _gate("b")]
    )
    assert (verdict, sentence) == ("starting", "starting: waiting for driver_ready")
    assert decide_verdict(ready=False, conditions=[], inventory=None, gates=[])[1].endswith("its components")


def test_warnings_explain_a_start_and_trouble_a_ready_node() -> None:
    """The same warning is the reason of a slow start, or attention on a node that works."""
    warnings = [_condition("warning")]
    assert decide_verdict(ready=False, conditions=warnings, inventory=None, gates=[]) == ("starting", "title")
    assert decide_verdict(ready=True, conditions=warnings, inventory=None, gates=[]) == ("attention", "title")


def test_information_does_not_worry_anybody() -> None:
    """A condition of mere information leaves the node well."""
    verdict, sentence = decide_verdict(
        ready=True, conditions=[_condition("info")], inventory=make_inventory(2), gates=[]
    )
    assert (verdict, sentence) == ("ok", "all is well: 2 GPUs")


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
    text = render_readyz(
        ready=False,
        gates=[_gate("a"), _gate("b", is_open=False)],
        components=[
            _component("running"),
            _component("failed", last_error="boom"),
            _component("degraded", vital=False),
        ],
        conditions=[_condition("error", detail="de\ntail", key="GPU-1")],
    )
    assert text.splitlines() == [
        "[+] gate a open",
        "[-] gate b closed",
        "[-] component part failed: boom",
        "[!] component part degraded",
        "[!] error a-code [GPU-1] title: de tail; do this",
        "not ready",
    ]
    assert render_readyz(ready=True, gates=[], components=[], conditions=[]) == "ready\n"


def test_text_from_outside_stays_on_its_line() -> None:
    """A hostile name cannot forge a line or move the cursor."""
    assert one_line("a\nready\x1b[2J") == "a ready [2J"
