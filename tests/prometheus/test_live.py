"""Dashboards and rules on a living node, by the real Prometheus."""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.prometheus.server import Scene, running_scene
from tests.unit.deploy.queries import list_names, read_panels, read_rules

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
EMPTY_WHEN_WELL = {"node: What is wrong now"}
"""Panels that have nothing to show on a node without a fault."""
EMPTY_WHEN_WHOLE = {
    "node: Compute promised in parts",
    "pods: Compute used of a part, by pod",
    "pods: Memory used of a part, by pod",
}
"""Those that have nothing to show on a node that gives its GPUs whole."""
MINUTE, POLL_INTERVAL_SECONDS = 60.0, 0.5
LATE_SECONDS = 3.5
"""One sample, one scrape, a look of ours, and the time all of them take on a busy machine."""
SHAPE = re.compile(r"\$(instance|gpu|namespace)\b")


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """One node with pods that come and go; two dozen scrapes of it."""
    with running_scene("dgx-h100") as made:
        made.wait(
            lambda: made.query("nodeagent_pod_gpu_held_seconds_total > 15"), "a pod that has held a GPU for a while"
        )
        yield made


def fill(query: str) -> str:
    """A dashboard's query with everything chosen."""
    return SHAPE.sub(".*", query).replace("$__rate_interval", "10s").replace("$__range", "15s")


def test_every_panel_has_something_to_show(scene: Scene) -> None:
    """Against real series, not against names in a list."""
    empty = {place for place, query in read_panels() if not scene.query(fill(query))}
    assert empty <= EMPTY_WHEN_WELL | EMPTY_WHEN_WHOLE


def test_every_rule_is_evaluated_without_an_error(scene: Scene) -> None:
    """All of them, and none fires on a healthy node."""
    rules = scene.wait(lambda: [rule for rule in scene.rules() if rule["health"] == "ok"], "evaluated rules")
    assert [rule["name"] for rule in scene.rules() if rule.get("lastError")] == []
    assert len(rules) == len(read_rules())
    assert [rule["name"] for rule in rules if rule.get("state") == "firing"] == []


def test_no_scrape_was_refused_and_no_series_twice(scene: Scene) -> None:
    """Prometheus takes every sample that is served."""
    assert scene.query('min_over_time(up{job="nodeagent"}[10s]) == 1')
    assert scene.query("scrape_samples_scraped - scrape_samples_post_metric_relabeling == 0")


def test_no_series_outlives_its_pod(scene: Scene) -> None:
    """For a minute of pods that come and go: a pod that is gone is out of the next sample and the next scrape."""
    seen = watch_pods(scene)
    began, ended = seen[0][0], seen[-1][0]
    everybody = frozenset[str]().union(*(pods for _, pods in seen))
    always = frozenset[str].intersection(*(pods for _, pods in seen))
    assert everybody - always, "pods came and went"
    for family in ("nodeagent_pod_gpu_held_seconds_total", "DCGM_FI_DEV_GPU_TEMP{pod!=''}"):
        for series in scene.query_range(f"count by (pod) ({family})", began + LATE_SECONDS, ended):
            pod = series["metric"]["pod"]
            for moment, _ in series["values"]:
                held = frozenset[str]().union(
                    *(pods for at, pods in seen if moment - LATE_SECONDS <= at <= moment + POLL_INTERVAL_SECONDS)
                )
                assert pod in held, f"{family} still named {pod} {LATE_SECONDS} s after it had gone"
    assert not scene.query("count by (UUID) (nodeagent_pod_gpu_held_seconds_total) > 1")


def watch_pods(scene: Scene) -> list[tuple[float, frozenset[str]]]:
    """Who held a GPU at which moment, for a minute."""
    seen = []
    end = time.monotonic() + MINUTE
    while time.monotonic() < end:
        seen.append((time.time(), scene.list_holders()))
        time.sleep(POLL_INTERVAL_SECONDS)
    return seen


def test_own_metrics_are_clean_for_promtool(scene: Scene) -> None:
    """What promtool says of names that others chose is theirs; of ours it says nothing."""
    program = shutil.which("promtool")
    assert program is not None
    checked = subprocess.run(
        [program, "check", "metrics"], input=scene.exposition(), capture_output=True, text=True, check=False, timeout=30
    )
    said = (checked.stdout + checked.stderr).splitlines()
    assert [line for line in said if not line.startswith(("DCGM_", "gpu_operator_"))] == []


@pytest.mark.parametrize(
    ("fault", "alert"),
    [
        (("ecc", "2", "uncorrected"), "GpuEccUncorrected"),
        (("thermal", "1"), "GpuHeldBackByHeat"),
        (("driver", "gone"), "NodeagentDriverNotReady"),
        (("driver", "mismatch"), "NodeagentDegraded"),
        (("row-remap", "4", "failed"), "GpuRowRemapFailed"),
        (("xid", "79", "3"), "GpuXidCritical"),
        (("lost", "3"), "GpuLost"),
        (("hang", "sample", "forever"), "NodeagentSamplesStale"),
    ],
)
def test_a_fault_sets_off_its_alert(scene: Scene, fault: tuple[str, ...], alert: str) -> None:
    """It fires; the shipped rules wait longer before they do, which is promtool's test."""
    assert list_names(next(rule["expr"] for rule in read_rules() if rule.get("alert") == alert))
    scene.break_it(*fault)
    try:
        scene.wait(lambda: scene.query(f'ALERTS{{alertname="{alert}",alertstate="firing"}}'), alert)
    finally:
        scene.break_it("clear")
