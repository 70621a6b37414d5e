"""The exposition read by the parsers of prometheus-client equals the samples given, whatever the texts contain."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.components.exporter.catalogue.all_fields import FIELDS, list_extras, list_readings
from nodeagent.components.exporter.catalogue.field import LabelField
from nodeagent.components.exporter.catalogue.selection import parse_selection
from nodeagent.components.exporter.exposition import OPENMETRICS_END, join_openmetrics, join_text
from nodeagent.components.exporter.series.node_series import Knowledge, NodeSeries, SeriesSelection
from nodeagent.config.sections.cluster import MetricsSettings
from nodeagent.model.gpu import Inventory
from nodeagent.model.telemetry import GpuSample, ProcessSample
from tests.support.examples import examples
from tests.support.samples import make_mig, make_uuid
from tests.support.texts.exposition import read_openmetrics, read_text
from tests.unit.components.exporter.builders import START, allocate, know, make_mig_shares, make_node, make_table

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20)
COUNTS = st.one_of(st.none(), st.integers(0, 2**63))
NUMBERS = {
    name: COUNTS
    for name in GpuSample.__struct_fields__
    if name not in {"uuid", "lost", "profiling", "processes", "mig", "unreadable", "extras"}
}
READINGS = list_readings(list_extras())
EXTRAS = st.dictionaries(st.sampled_from(READINGS), st.integers(0, 2**63), max_size=8)
SAMPLES = st.fixed_dictionaries(NUMBERS)
EVERYTHING = parse_selection(
    "\n".join(
        f"{field.name}, {'label' if isinstance(field, LabelField) else 'counter'}, h"
        for field in (*FIELDS, *list_extras())
    )
)
METRICS = st.builds(
    MetricsSettings,
    host_label=st.sampled_from(["Hostname", "hostname", "none"]),
    replace_blanks_in_model_name=st.booleans(),
    old_namespace_labels=st.booleans(),
    pod_uid=st.booleans(),
)


@settings(max_examples=examples(60))
@given(SAMPLES, EXTRAS, TEXTS, TEXTS, TEXTS, TEXTS, METRICS, TEXTS, st.integers(0, 2))
def test_every_exposition_reads_back_equal_in_both_formats(
    values: dict[str, int | None],
    extras: dict[str, float],
    model: str,
    pod: str,
    container: str,
    uid: str,
    metrics: MetricsSettings,
    host: str,
    mig: int,
) -> None:
    """No text of a pod or board can break a scrape, forge a label, or make a series twice."""
    known = know(mig=mig)
    gpu = replace(known.inventory.gpus[0], name=model, serial=pod)
    holder = allocate(pod, make_mig(0, mig).devices[0].uuid if mig else make_uuid(0), container=container, uid=uid)
    known = Knowledge(Inventory(generation=1, gpus=(gpu,)), known.driver, make_table(holder))
    sample = GpuSample(
        uuid=make_uuid(0),
        processes=(ProcessSample(pid=1, memory_used_bytes=1),),
        mig=make_mig_shares(0, mig),
        extras=extras,
        **values,  # type: ignore[arg-type]  # names and kinds come from the class itself
    )
    requests = SeriesSelection(EVERYTHING, metrics, host)
    blocks = list(NodeSeries().render(make_node(sample, seconds=START), known, requests))
    text, openmetrics = join_text(blocks).decode(), (join_openmetrics(blocks) + OPENMETRICS_END).decode()
    series = read_text(text)
    assert read_openmetrics(openmetrics) == series
    pod_label = "pod_name" if metrics.old_namespace_labels else "pod"
    pods = {dict(labels)[pod_label] for (name, labels) in series if name.startswith("nodeagent_pod_")}
    assert pods == {pod}
