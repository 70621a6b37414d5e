"""Files that are made from the code: `python -m tests.generate` writes them, `--check` says which ones are out of date.

One line of the table per file; a test runs the check, so that what is committed is what the code says.
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from nodeagent.cli.frame.manual import render_manual
from nodeagent.cli.frame.reference import render_cli_page
from nodeagent.components.exporter.reference import render_reference
from nodeagent.config.reference import render_example, render_markdown
from tests.bench.curves import AXES
from tests.generators import bench_pages, dashboards, kubelet_proto
from tests.generators.alerts import render_alerts_page, render_chart_alerts
from tests.generators.api_page import render_api_page
from tests.generators.chart import (
    render_chart_permissions,
    render_claim_permissions,
    render_cluster_status_permissions,
    render_extender_permissions,
    render_flow_control,
    render_fraction_permissions,
    render_mig_permissions,
    render_pod_condition_permissions,
    render_pod_label_permissions,
    render_proof_permissions,
    render_refused_pod_permissions,
    render_repair_permissions,
    render_runtime_class,
    render_validation_permissions,
)
from tests.generators.claim_policy import render_chart_claim_policy, render_claim_policy
from tests.generators.concepts_picture import render_concepts
from tests.generators.glossary_page import render_glossary
from tests.generators.signals_page import render_signals
from tests.generators.tree import render_architecture
from tests.generators.versions_table import render_installation
from tests.generators.vocabulary import render_conditions, render_events
from tests.generators.xid_page import render_xid_page
from tests.golden.metrics.scenes import render_scene

ROOT: Final = Path(__file__).parent.parent

GENERATED: Final[dict[str, Callable[[], str]]] = {
    "docs/architecture.md": render_architecture,
    "docs/configuration.md": render_markdown,
    "docs/installation.md": render_installation,
    "docs/signals.md": render_signals,
    "docs/api.md": render_api_page,
    "docs/cli.md": render_cli_page,
    "docs/development/glossary.md": render_glossary,
    "docs/nodeagent.1": render_manual,
    "docs/events.md": render_events,
    "docs/conditions.md": render_conditions,
    "deploy/config.example.yaml": render_example,
    "deploy/chart/templates/rbac.yaml": render_chart_permissions,
    "deploy/chart/templates/rbac-mig.yaml": render_mig_permissions,
    "deploy/chart/templates/rbac-repairs.yaml": render_repair_permissions,
    "deploy/chart/templates/rbac-pod-labels.yaml": render_pod_label_permissions,
    "deploy/chart/templates/rbac-claims.yaml": render_claim_permissions,
    "deploy/claim-policy.yaml": render_claim_policy,
    "deploy/chart/templates/claim-policy.yaml": render_chart_claim_policy,
    "deploy/chart/templates/rbac-fractions.yaml": render_fraction_permissions,
    "deploy/chart/templates/rbac-pod-conditions.yaml": render_pod_condition_permissions,
    "deploy/chart/templates/rbac-proof.yaml": render_proof_permissions,
    "deploy/chart/templates/rbac-refused-pods.yaml": render_refused_pod_permissions,
    "deploy/chart/templates/rbac-validation.yaml": render_validation_permissions,
    "deploy/chart/templates/rbac-extender.yaml": render_extender_permissions,
    "deploy/chart/templates/rbac-cluster-status.yaml": render_cluster_status_permissions,
    "deploy/chart/templates/flow-control.yaml": render_flow_control,
    "deploy/chart/templates/runtimeclass.yaml": render_runtime_class,
    "deploy/chart/files/alerts.yaml": render_chart_alerts,
    "docs/alerts.md": render_alerts_page,
    "docs/xids.md": render_xid_page,
    "docs/metrics.md": render_reference,
    "docs/images/concepts.svg": render_concepts,
    "docs/extender.md": lambda: bench_pages.render_page("extender.md"),
    "docs/performance.md": lambda: bench_pages.render_page("performance.md"),
    "docs/reliability.md": lambda: bench_pages.render_page("reliability.md"),
    **{
        f"docs/images/cost-of-{axis.lower().replace(' ', '-')}.svg": partial(bench_pages.render_picture, axis)
        for axis in AXES
    },
    # The chart's own copies, since Helm reads no file outside of a chart.
    "deploy/chart/files/dashboards/node.json": lambda: dashboards.render_dashboard(dashboards.NODE),
    "deploy/chart/files/dashboards/pods.json": lambda: dashboards.render_dashboard(dashboards.PODS),
    "deploy/chart/files/dashboards/cluster.json": lambda: dashboards.render_dashboard(dashboards.CLUSTER),
    "deploy/dashboards/node.json": lambda: dashboards.render_dashboard(dashboards.NODE),
    "deploy/dashboards/pods.json": lambda: dashboards.render_dashboard(dashboards.PODS),
    "deploy/dashboards/cluster.json": lambda: dashboards.render_dashboard(dashboards.CLUSTER),
    "tests/golden/metrics/l40s.prom": lambda: render_scene("l40s"),
    "tests/golden/metrics/a100-80gb-mig.prom": lambda: render_scene("a100-80gb-mig"),
    "tests/golden/metrics/dgx-h100-every-field.openmetrics": lambda: render_scene(
        "dgx-h100", every_field=True, openmetrics=True
    ),
}


def find_stale(root: Path = ROOT) -> list[str]:
    """The files that differ from what the code says, or are missing."""
    return [name for name, render in GENERATED.items() if _read(root / name) != render()]


def write_stale(names: Iterable[str], root: Path = ROOT) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(GENERATED[name](), encoding="utf-8")


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Write, or with --check only name, the files that are out of date."""
    parser = argparse.ArgumentParser(prog="python -m tests.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    check = parser.parse_args(arguments).check
    stale = find_stale(root)
    if not check:
        write_stale(stale, root)
        for name, text in kubelet_proto.render().items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
    for name in stale:
        sys.stdout.write(f"{name}: {'out of date, run `make generate`' if check else 'written'}\n")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
