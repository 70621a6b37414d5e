"""Parts of GPUs as series: limits as long as they stand, use while it is known."""

from msgspec.structs import replace

from nodeagent.components.exporter.exposition import render_exposition
from nodeagent.components.exporter.families.fractions import build_fraction_families
from nodeagent.components.exporter.families.other_names import build_hami_families
from nodeagent.components.usage.measure import measure
from nodeagent.config.sections.cluster import MetricsSettings
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.usage import FractionUsage
from tests.support.samples import make_inventory, make_uuid
from tests.support.texts.exposition import Series, read_text
from tests.unit.components.exporter.builders import find, find_value
from tests.unit.components.usage.builders import GIB, bind, place, run, sample, tabulate


def read(usage: FractionUsage, metrics: MetricsSettings | None = None) -> Series:
    return read_text(render_exposition(build_fraction_families(usage, metrics or MetricsSettings())).decode())


def test_promised_and_used_are_told_of_each_gpu() -> None:
    """In ratios and bytes, under the labels of the pods' own series."""
    table = tabulate(bind(1, "a", cores=30, gib=8), bind(2, "b", cores=20, core_limit=60))
    now = sample(run(10, 12, 3), run(11, 5, 1))
    series = read(measure(table, make_inventory(), now, {10: place("a"), 11: place("a")}, {}))
    labels = {"gpu": "0", "UUID": str(make_uuid(0)), "namespace": "ml", "pod": "a", "container": "main"}
    assert find_value(series, "nodeagent_fraction_cores_ratio", **labels) == 0.3
    assert find_value(series, "nodeagent_fraction_memory_bytes", **labels) == 8 * GIB
    assert find_value(series, "nodeagent_fraction_cores_used_ratio", **labels) == 0.17
    assert find_value(series, "nodeagent_fraction_memory_used_bytes", **labels) == 4 * GIB
    assert find_value(series, "nodeagent_fraction_processes", **labels) == 2
    assert find_value(series, "nodeagent_fraction_cores_max_ratio", pod="b") == 0.6
    assert not find(series, "nodeagent_fraction_cores_max_ratio", pod="a"), "it may use no more than its part"
    assert find_value(series, "nodeagent_fraction_info", pod="b", enforcement="advise") == 1
    assert find_value(series, "nodeagent_fraction_processes", pod="b") == 0


def test_choices_that_were_not_obeyed_are_counted_by_reason() -> None:
    text = render_exposition(build_fraction_families(FractionUsage(), MetricsSettings(), {"impossible": 2})).decode()
    assert find_value(read_text(text), "nodeagent_fraction_choices_overruled_total", reason="impossible") == 2


def test_what_is_not_known_is_absent() -> None:
    """What is promised stays; a GPU that is gone has no number."""
    series = read(measure(tabulate(bind(1, "a", gpus=(7,))), make_inventory(), None, {}, {}))
    assert {name for name, _ in series} == {
        "nodeagent_fraction_cores_ratio",
        "nodeagent_fraction_memory_bytes",
        "nodeagent_fraction_info",
    }
    assert find_value(series, "nodeagent_fraction_cores_ratio", UUID=str(make_uuid(7))) == 0.3
    assert not find(series, "nodeagent_fraction_cores_ratio", gpu="7")


def test_pods_without_a_name_wait_for_their_series() -> None:
    """Two of them on one GPU would be one series twice, and Prometheus would take nothing of this node."""
    nameless = [
        replace(bind(number, "", uid=f"u-{number}"), pod=PodIdentity("", "", f"u-{number}")) for number in (1, 2)
    ]
    table = tabulate(*nameless, bind(3, "a"))
    usage = measure(table, make_inventory(), sample(run(10)), {10: place("a")}, {})
    for series in (read(usage), read_hami(usage)):
        assert {dict(labels).get("pod", "a") for _, labels in series} == {"a"}


def read_hami(usage: FractionUsage) -> Series:
    return read_text(render_exposition(build_hami_families(usage, make_inventory(), None, "n1")).decode())


def test_what_cannot_be_divided_has_no_container() -> None:
    """A sum over the pod is right; no container has what may be its neighbour's."""
    table = tabulate(bind(1, "a", "left"), bind(2, "a", "right"))
    usage = measure(table, make_inventory(), sample(run(10)), {10: place("a", "l")}, {})
    series = read(usage, MetricsSettings(pod_uid=True))
    (labels,) = [dict(labels) for name, labels in series if name == "nodeagent_fraction_cores_used_ratio"]
    assert labels == {"gpu": "0", "UUID": str(make_uuid(0)), "namespace": "ml", "pod": "a", "pod_uid": "u-a"}
    assert len([name for name, _ in series if name == "nodeagent_fraction_memory_bytes"]) == 2
