"""The Prometheus text format, judged by the parser of prometheus-client."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from nodeagent.components.exporter.exposition import (
    Family,
    Labels,
    RememberedBlocks,
    make_family,
    render_exposition,
    render_families,
    render_number,
)
from nodeagent.components.exporter.families.agent import (
    AgentFacts,
    build_agent_families,
)
from nodeagent.core.values import ActiveCondition, ComponentReport, GateState, ListenerStatistics, LoopLag, Phase
from nodeagent.model.cluster import ApiCall
from nodeagent.model.gpu import Inventory, StoredGpu
from nodeagent.model.plugin import Distribution, OfferSummary
from nodeagent.model.telemetry import NodeSample
from tests.support.samples import make_address, make_gpu, make_uuid

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,20}", fullmatch=True)
TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=40)
GONE = StoredGpu(uuid=make_uuid(2), name="GPU", index=2, address=make_address(2))
NUMBERS = st.one_of(st.integers(-(10**15), 10**15), st.floats(allow_nan=False))


@given(st.dictionaries(st.tuples(TEXTS, TEXTS), NUMBERS, min_size=1, max_size=5), TEXTS)
def test_what_is_rendered_reads_back_equal(samples: dict[tuple[str, str], float], text: str) -> None:
    """Hostile label values and odd numbers survive the round trip."""
    wanted: dict[Labels, float] = {(("one", one), ("two", two)): value for (one, two), value in samples.items()}
    exposition = render_exposition([make_family("metric", "gauge", text, wanted.items())]).decode()
    families = list(text_string_to_metric_families(exposition))
    assert [family.name for family in families] == ["metric"]
    read = {tuple(sorted(sample.labels.items())): sample.value for sample in families[0].samples}
    assert read == {labels: float(value) for labels, value in wanted.items()}


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "1"), (0, "0"), (2.0, "2"), (0.1, "0.1"), (nan, "NaN"), (inf, "+Inf"), (-inf, "-Inf"), (1e300, "1e+300")],
)
def test_numbers_are_written_short(value: float, text: str) -> None:
    """Whole numbers carry no point, special ones have the names the format gives them."""
    assert render_number(value) == text


def test_remembered_blocks_are_those_that_rendering_gives() -> None:
    """What is the same again is not rendered again; what changed, came or went is as if nothing were remembered."""
    remembered = RememberedBlocks()
    same = make_family("same", "gauge", "Same.", [((("a", "b"),), 1.5)])
    for value in (1, 1, nan, nan, 2, -inf):
        spread = Distribution(bounds=(1.0,), counts=(1, int(value == 1)), sum=value)
        families = [
            same,
            make_family("moving", "counter", "Moving.", [((), value)]),
            make_family("gone", "gauge", "Gone.", [((), 1)] if value == 1 else []),
            Family(name="spread", type="histogram", help="Spread.", distributions=(((), spread),)),
        ]
        assert remembered.render(families) == render_families(families)
    first, second = remembered.render([same]), remembered.render([same])
    assert first[0] is second[0]


def test_family_without_samples_is_absent() -> None:
    """A metric nobody measured does not appear, not even by its help."""
    assert render_exposition([Family(name="a", type="gauge", help="h", samples=())]) == b""


def _listener(*, depth: int, lost: int) -> ListenerStatistics:
    return ListenerStatistics("web", "listen", (), depth, 0, lost, 0, 0.0, is_slow=False)


def _facts(age: float | None) -> AgentFacts:
    return AgentFacts(
        version="1",
        driver_ready=True,
        gates=(GateState("driver_ready", True, 0.0, ""), GateState("plugin_registered", False, 0.0, "")),
        components=(ComponentReport("web", Phase.RUNNING, 1.0, True, 2, None, None, ()),),
        conditions=(ActiveCondition("gpu-lost", "GPU-1", "error", "", "", "", 0.0, None),),
        listeners=(
            _listener(depth=1, lost=0),
            _listener(depth=2, lost=3),
        ),
        bus_published=10,
        loop_lag=LoopLag(p50_seconds=0.0, p99_seconds=0.001, max_seconds=0.5, samples=9),
        inventory=Inventory(generation=1, gpus=(make_gpu(0), make_gpu(1, lost="gone")), vanished=(GONE,)),
        now_seconds=10.0,
        sample=None if age is None else NodeSample(time_seconds=10.0 - age),
        account=OfferSummary(gpus=1, devices_offered=1),
        resident_bytes=1,
        open_fds=2,
        cpu_seconds=0.5,
        start_time_seconds=3.0,
        api_calls={ApiCall(verb="PATCH", outcome="200"): 4, ApiCall(verb="WATCH", outcome="none"): 1},
    )


def test_the_agent_describes_itself() -> None:
    """Every fact is found again under its name, and two listeners of one client are one series."""
    text = render_exposition(build_agent_families(_facts(0.25))).decode()
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["nodeagent_gpus", (("state", "lost"),)] == 1
    assert samples["nodeagent_gpus", (("state", "vanished"),)] == 1
    assert samples["nodeagent_gpus", (("state", "offered"),)] == samples["nodeagent_devices_offered", ()] == 1
    assert samples["nodeagent_bus_listener_depth", (("client", "web"),)] == 3
    assert samples["nodeagent_bus_listener_lost_total", (("client", "web"),)] == 3
    assert samples["nodeagent_condition_active", (("code", "gpu-lost"), ("key", "GPU-1"), ("severity", "error"))] == 1
    assert samples["nodeagent_sample_age_seconds", ()] == 0.25
    assert samples["nodeagent_loop_lag_seconds", (("quantile", "0.99"),)] == 0.001
    assert samples["nodeagent_gate_passed", (("gate", "driver_ready"),)] == 1
    assert samples["nodeagent_api_requests_total", (("code", "200"), ("verb", "PATCH"))] == 4
    assert samples["nodeagent_api_requests_total", (("code", "none"), ("verb", "WATCH"))] == 1


def test_without_a_device_plugin_nothing_is_said_of_offers() -> None:
    """No zero, which an alert would take for a node that offers nothing."""
    text = render_exposition(build_agent_families(replace(_facts(0.25), account=None)))
    assert b"nodeagent_devices_offered" not in text
    assert b'state="offered"' not in text


def test_no_sample_yet_means_no_age() -> None:
    """Before the first sample there is no age to report, rather than an age of zero."""
    assert b"sample_age" not in render_exposition(build_agent_families(_facts(None)))
