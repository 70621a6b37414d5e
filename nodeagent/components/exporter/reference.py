"""Renders the reference of all metrics, `docs/metrics.md`, from their definitions; pure."""

import re
from collections.abc import Iterable, Iterator

from nodeagent.components.exporter.catalogue.all_fields import FIELDS, list_extras
from nodeagent.components.exporter.catalogue.field import Field, LabelField
from nodeagent.components.exporter.catalogue.missing import COMMON_MISSING, explain_missing
from nodeagent.components.exporter.exposition import Family
from nodeagent.components.exporter.families.admission import (
    build_claim_families,
    build_repair_families,
    build_signal_families,
    build_upgrade_families,
)
from nodeagent.components.exporter.families.agent import AgentFacts, build_agent_families
from nodeagent.components.exporter.families.devices import build_device_families
from nodeagent.components.exporter.families.fractions import build_fraction_families
from nodeagent.components.exporter.families.gpus import (
    build_cordon_families,
    build_mig_families,
    build_mps_families,
    build_proof_families,
    build_reading_families,
    build_standing_families,
)
from nodeagent.components.exporter.families.node_status import NodeStatus, build_status_families
from nodeagent.components.exporter.families.pods import build_pod_families
from nodeagent.components.exporter.series.xid_history import XidHistory
from nodeagent.config.sections.cluster import MetricsSettings
from nodeagent.model.devices import DeviceTable
from nodeagent.model.mig import MigState
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import Offering
from nodeagent.model.plugin import AdmissionFacts, Distribution, OfferSummary
from nodeagent.model.usage import FractionUsage

_INTRODUCTION = """# Metrics

Made from the code by `python -m tests.generate`; do not edit.

`GET /metrics` serves the series of DCGM exporter under their names, with the same labels in the same order, and series
of nodeagent's own. The format is Prometheus text 0.0.4, or OpenMetrics 1.0 where the `Accept` header prefers it; gzip
where `Accept-Encoding` allows it. In OpenMetrics a counter must be called `_total`, so the counters of DCGM that
are not are of type unknown there; names and values are the same.

All GPU series come from one sample and are rendered once for it. A scrape asks no hardware. When the newest sample is
older than `metrics.stale_after_seconds`, the series that come from samples are left out; `nodeagent_sample_age_seconds`
shows the age from the first second, and `nodeagent_gpu_present` stays.

What the hardware does not give is absent, never zero. `nodeagent metrics list` says on the node which fields are
shown, which could be, and why others are missing.
"""

_NUMBER = re.compile(r"(_L|NVDEC|NVJPG|NVOFA|HISTORY_)\d+")
_ON_DEMAND = """
## Fields that are sampled on demand

Read only while `metrics.fields_file` names them; each costs the driver a question at every sample. `<n>` is a number
from 0 on.
"""

_LABELS = """
## Labels of DCGM's series

In this order: `gpu`, `UUID`, `pci_bus_id`, `device`, `modelName`; on MIG instances `GPU_I_PROFILE` and `GPU_I_ID`; then
`Hostname` (or as `metrics.host_label` says); then the label fields of the list by name; then `container`, `namespace`
and `pod` when exactly one container holds the device. A free device has none of the three, and so has a device that
several containers share, because no part of its values can be told to be theirs: their shares are in the pods' own
series.

DCGM exporter writes `Hostname` up to release 4.8.2, and `hostname` in later builds of its branch `main`. For dashboards
made for the latter set `metrics.host_label: hostname`; with `none` the series have no label of the host.

A GPU cut into MIG instances has one series for each instance instead of its own. What exists once a board (clocks,
temperatures, power, energy, errors) is repeated on each instance, as DCGM exporter does; to add it up, use the
`nodeagent_gpu_…` series, which are one a GPU.
"""

_BY_TEAM = (
    "sum by (label_team) (rate(nodeagent_pod_gpu_energy_joules_total[5m])"
    " * on (namespace, pod) group_left (label_team) nodeagent_pod_labels_info)"
)
_PODS = f"""
## Pods

Labels: `gpu`, `UUID`, on MIG `GPU_I_PROFILE` and `GPU_I_ID`, then `container`, `namespace`, `pod`. A series ends with
the allocation. Nothing is counted twice: memory and SM time come from the processes of the pod; the energy of a GPU is
divided by SM time (on MIG by size and activity of the instances), and evenly while all holders are idle.

| Question | Query |
|---|---|
| memory of each pod | `sum by (namespace, pod) (nodeagent_pod_gpu_memory_used_bytes)` |
| joules of each namespace in an hour | `sum by (namespace) (increase(nodeagent_pod_gpu_energy_joules_total[1h]))` |
| GPUs held but idle, as a number of GPUs | `sum by (namespace) (rate(nodeagent_pod_gpu_idle_seconds_total[10m]))` |
| energy of a node's GPUs, whoever used them | `sum(increase(nodeagent_gpu_energy_joules_total[1h]))` |
| SM time of each pod, as a number of GPUs | `sum by (namespace, pod) (nodeagent_pod_gpu_sm_ratio)` |
| energy by a label of the pods, `team` | `{_BY_TEAM}` |

With `metrics.pod_labels` each pod that holds a device has a series `nodeagent_pod_labels_info` with its labels: the key
with everything but letters, digits and underscores made an underscore, and `label_` before it.
`metrics.pod_label_allowlist` says which keys. It needs the rights of `deploy/rbac-pod-labels.yaml`, and one watch of
the node's own pods.

A GPU that a pod was given by dynamic resource allocation, through the DRA driver `gpu.nvidia.com`, names that pod like
any other, and beside it `dra_claim_name`, `dra_claim_namespace`, `dra_driver_name`, `dra_pool_name` and
`dra_device_name`, on MIG instances also `dra_mig_profile` and `dra_mig_device_uuid`. The kubelet tells of the claim;
the device is found by the driver's name for it, `gpu-<minor number>` or
`gpu-<minor number>-mig-<profile>-<start>-<size>`.
"""


_REPAIRS = """
## Repairs and upgrades of the driver

Fault sessions, where `repairs.mode` is not `off`; see [repairs](repairs.md). Upgrades, where `driver.upgrade` is not
`off`; see [driver](driver.md#upgrade-the-driver).
"""
_CLAIMS = """
## Claims and slices

Where GPUs are given by [claims](claims.md). Labels of what schedulers see of them: `driver` and `pool`;
see [slices](slices.md).
"""
_MPS = """
## MPS daemons

Where GPUs are shared by [MPS](mps.md). Labels: `daemon`, and `owner`, the resource or claim that it serves.
"""
_FRACTIONS = """
## Parts of GPUs

Where GPUs are given in [fractions](fractions-usage.md). Labels: `gpu`, `UUID`, `container`, `namespace`, `pod`. What is
promised is there as long as the container is; what is used only while the newest sample tells it. What several
containers of one pod use of one GPU, while nothing tells which of them it is, has no `container`. The series
`nodeagent_pod_gpu_…` are of devices that are held, not of parts: nothing is in both.

| Question | Query |
|---|---|
| who is over its memory | `nodeagent_fraction_memory_used_bytes > nodeagent_fraction_memory_bytes` |
| how full each part is | `nodeagent_fraction_memory_used_bytes / nodeagent_fraction_memory_bytes` |
| how much of each GPU's compute is promised | `sum by (instance, gpu) (nodeagent_fraction_cores_ratio)` |
| part of each GPU's compute that parts use | `sum by (instance, gpu) (nodeagent_fraction_cores_used_ratio)` |
"""


_DEVICES = """
## Devices of the configured classes

Where the configuration has [classes of devices](devices.md). Labels: `resource`, `device`, `id`.

| Question | Query |
|---|---|
| which devices do not work | `nodeagent_device_healthy == 0` |
| which are gone under a container | `nodeagent_device_gone == 1` |
| how many shares of each resource are held | `sum by (instance, resource) (nodeagent_device_shares_held)` |
| how hot each device is | `max by (instance, id) (nodeagent_device_temperature_celsius)` |
| which devices had uncorrected errors | `nodeagent_device_errors_total{kind="uncorrected"} > 0` |
"""


def render_reference() -> str:
    """The whole page."""
    return "\n".join(_list_lines()) + "\n"


def _list_lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Fields of DCGM exporter\n"
    yield "Fields marked * are on the default list; `metrics.fields_file` replaces it.\n"
    yield "| Field | Type | |\n|---|---|---|"
    for field in FIELDS:
        kind = "label" if isinstance(field, LabelField) else field.type
        yield f"| `{field.name}`{' *' if field.default else ''} | {kind} | {field.help} |"
    yield _ON_DEMAND
    yield "| Field | Type | |\n|---|---|---|"
    yield from _list_on_demand()
    yield _LABELS
    yield "## Fields that lists often name and nodeagent does not have\n"
    yield "| Field | Why |\n|---|---|"
    for name in COMMON_MISSING:
        yield f"| `{name}` | {explain_missing(name)} |"
    yield "\n## GPUs\n\nOne series a GPU, labels `gpu` and `UUID`, and those that the text names.\n"
    yield from _tabulate((*build_standing_families(None, None, XidHistory(), frozenset()), *build_reading_families(())))
    yield from _tabulate(build_cordon_families(Offering()))
    yield _PODS
    yield from _tabulate(build_pod_families({}, (), MetricsSettings()))
    yield _FRACTIONS
    yield from _tabulate(build_fraction_families(FractionUsage(), MetricsSettings()))
    yield _MPS
    yield from _tabulate(build_mps_families(MpsState()))
    yield _DEVICES
    yield from _tabulate(build_device_families(DeviceTable(), None, None))
    yield "\n## MIG layouts\n\nWhere this agent cuts GPUs, `mig.manage`; see [MIG layouts](mig.md).\n"
    yield from _tabulate(build_mig_families(MigState(), None))
    yield _CLAIMS
    yield from _tabulate(build_claim_families(None, None))
    yield "\n## Signals\n\nFaults of GPUs told to pods and in containers; see [signals](signals.md).\n"
    yield from _tabulate(build_signal_families(None, None, None))
    yield _REPAIRS
    yield from _tabulate((*build_repair_families(None), *build_upgrade_families(None)))
    yield "\n## Proofs\n\nWhere `proof.idle` or `proof.before_binding` is not `off`; see [proof](proof.md).\n"
    yield from _tabulate(build_proof_families(None, None))
    yield "\n## The agent\n"
    yield from _tabulate(build_agent_families(_NOTHING))
    yield "\n## Node status\n\nUnder the names of the GPU operator's node-status exporter, with its one label `node`.\n"
    yield from _tabulate(build_status_families(NodeStatus(started_seconds=0.0)))


def _list_on_demand() -> Iterator[str]:
    """A row for all fields with names that differ by a number alone."""
    rows: dict[str, list[Field]] = {}
    for field in list_extras():
        rows.setdefault(_NUMBER.sub(r"\1<n>", field.name), []).append(field)
    for name, fields in rows.items():
        one = fields[0]
        shown, text = (one.name, one.help) if len(fields) == 1 else (name, re.sub(r"\b0\b", "<n>", one.help))
        yield f"| `{shown}` | {one.type} | {text} |"


def _tabulate(families: Iterable[Family]) -> Iterator[str]:
    yield "| Metric | Type | |\n|---|---|---|"
    for family in families:
        yield f"| `{family.name}` | {family.type} | {family.help} |"


_NOTHING = AgentFacts(
    account=OfferSummary(gpus=1, devices_offered=1),
    admission=AdmissionFacts(
        calls=(),
        journal_writes=0,
        journal_failures=0,
        journal_syncs=Distribution(bounds=(), counts=(0,), sum=0.0),
    ),
)
