"""The agent's metrics about itself; pure."""

from collections.abc import Mapping

from msgspec import field

from nodeagent.components.exporter.attribution.entities import find_lost
from nodeagent.components.exporter.exposition import Family, Labels, counter, gauge, make_family
from nodeagent.components.exporter.families.access import build_access_families
from nodeagent.components.exporter.families.admission import build_admission_families
from nodeagent.core.values import ActiveCondition, ComponentReport, GateState, ListenerStatistics, LoopLag
from nodeagent.model.cluster import ApiCall
from nodeagent.model.gpu import Inventory
from nodeagent.model.plugin import AdmissionFacts, OfferSummary
from nodeagent.model.telemetry import NodeSample
from nodeagent.model.values import Value


class ExporterFacts(Value, frozen=True):
    """Cost and failures of rendering metrics."""

    scrapes: int = 0
    scrape_seconds: float = 0.0
    renders: int = 0
    render_seconds: float = 0.0
    series_bytes: int = 0
    unusable_fields: int = 0
    is_stale: bool = False


class AgentFacts(Value, frozen=True):
    """The facts for the families of this module."""

    version: str = ""
    now_seconds: float = 0.0
    driver_ready: bool = False
    gates: tuple[GateState, ...] = ()
    components: tuple[ComponentReport, ...] = ()
    conditions: tuple[ActiveCondition, ...] = ()
    listeners: tuple[ListenerStatistics, ...] = ()
    bus_published: int = 0
    loop_lag: LoopLag = LoopLag(0.0, 0.0, 0.0, 0)
    inventory: Inventory = Inventory(generation=0)
    sample: NodeSample | None = None
    account: OfferSummary | None = None
    api_calls: Mapping[ApiCall, int] = field(default_factory=dict)
    """Requests to the API server."""
    resident_bytes: int = 0
    open_fds: int = 0
    cpu_seconds: float = 0.0
    start_time_seconds: float = 0.0
    exporter: ExporterFacts = ExporterFacts()
    admission: AdmissionFacts | None = None


def build_agent_families(facts: AgentFacts) -> tuple[Family, ...]:
    """The agent's own metrics, in a fixed order."""
    access = build_access_families(facts.sample.access if facts.sample is not None else None)
    admission = build_admission_families(facts.admission) if facts.admission is not None else ()
    return (*_life(facts), *_work(facts), *access, *admission, *_exporter(facts.exporter), *_process(facts))


def _life(facts: AgentFacts) -> tuple[Family, ...]:
    return (
        gauge("nodeagent_build_info", "Version of the agent; always 1.", [((("version", facts.version),), 1)]),
        gauge(
            "nodeagent_gate_passed",
            "Whether the start has passed a milestone; it stays so when what it stands for fails later.",
            [((("gate", one.name),), one.is_open) for one in facts.gates],
        ),
        gauge(
            "nodeagent_component_phase",
            "Phase of each component; 1 for the present one.",
            [((("component", one.name), ("phase", one.phase)), 1) for one in facts.components],
        ),
        counter(
            "nodeagent_component_restarts_total",
            "Restarts of each component since the agent started.",
            [((("component", one.name),), one.restarts) for one in facts.components],
        ),
        gauge(
            "nodeagent_condition_active",
            "Conditions that are true now, as on the status page; 1 each.",
            [((("code", one.code), ("key", one.key), ("severity", one.severity)), 1) for one in facts.conditions],
        ),
        gauge("nodeagent_driver_ready", "Whether the driver works now.", _bare(facts.driver_ready)),
    )


def _work(facts: AgentFacts) -> tuple[Family, ...]:
    inventory, sample = facts.inventory, facts.sample
    silent = find_lost(sample.gpus) if sample is not None else {}
    lost = sum(bool(gpu.lost) or gpu.uuid in silent for gpu in inventory.gpus)
    age = max(0.0, facts.now_seconds - sample.time_seconds) if sample is not None else None
    return (
        gauge(
            "nodeagent_gpus",
            "GPUs of the node by state.",
            [
                ((("state", "present"),), len(inventory.gpus) - lost),
                ((("state", "lost"),), lost),
                ((("state", "missing"),), len(inventory.missing)),
                ((("state", "vanished"),), len(inventory.vanished)),
                *_count_offers(facts.account),
            ],
        ),
        gauge(
            "nodeagent_devices_offered",
            "GPUs and MIG devices that pods can get now, however many shares each has.",
            _bare(facts.account.devices_offered if facts.account is not None else None),
        ),
        gauge("nodeagent_sample_age_seconds", "Age of the newest sample.", _bare(age)),
        gauge(
            "nodeagent_sample_duration_seconds",
            "Time the newest sample took.",
            _bare(sample.took_seconds if sample is not None else None),
        ),
        gauge(
            "nodeagent_sample_calls",
            "Calls that the newest sample took.",
            _bare(sample.call_count if sample is not None else None),
        ),
        counter("nodeagent_bus_published_total", "Events published on the bus.", _bare(facts.bus_published)),
        gauge(
            "nodeagent_bus_listener_depth",
            "Events that wait for a listener.",
            _sum_by_client(facts.listeners, lost=False),
        ),
        counter(
            "nodeagent_bus_listener_lost_total",
            "Events dropped because a listener was slow.",
            _sum_by_client(facts.listeners, lost=True),
        ),
        counter(
            "nodeagent_api_requests_total",
            "Requests to the API server by verb and status; none where there was no answer.",
            [
                ((("code", call.outcome), ("verb", call.verb)), count)
                for call, count in sorted(facts.api_calls.items(), key=lambda item: (item[0].verb, item[0].outcome))
            ],
        ),
        make_family(
            "nodeagent_loop_lag_seconds",
            "summary",
            "How late the event loop was, by quantile over the last minutes.",
            [
                ((("quantile", "0.5"),), facts.loop_lag.p50_seconds),
                ((("quantile", "0.99"),), facts.loop_lag.p99_seconds),
                ((("quantile", "1"),), facts.loop_lag.max_seconds),
            ],
        ),
    )


def _count_offers(account: OfferSummary | None) -> list[tuple[Labels, float]]:
    """Offered devices, on a node with a device plugin."""
    if account is None:
        return []
    withheld = account.gpus - account.gpus_offered - account.gpus_excluded
    return [
        ((("state", "offered"),), account.gpus_offered),
        ((("state", "excluded"),), account.gpus_excluded),
        ((("state", "withheld"),), withheld),
    ]


def _exporter(facts: ExporterFacts) -> tuple[Family, ...]:
    return (
        counter("nodeagent_scrapes_total", "Scrapes answered.", _bare(facts.scrapes)),
        counter(
            "nodeagent_scrape_seconds_total",
            "Time spent putting answers to scrapes together.",
            _bare(facts.scrape_seconds),
        ),
        counter("nodeagent_renders_total", "Samples rendered.", _bare(facts.renders)),
        counter("nodeagent_render_seconds_total", "Time spent rendering samples.", _bare(facts.render_seconds)),
        gauge("nodeagent_rendered_bytes", "Size of the rendered GPU series.", _bare(facts.series_bytes)),
        gauge(
            "nodeagent_unusable_fields",
            "Lines of the list of fields that cannot be used.",
            _bare(facts.unusable_fields),
        ),
        gauge(
            "nodeagent_samples_stale",
            "Whether GPU series are left out because the newest sample is too old.",
            _bare(facts.is_stale),
        ),
    )


def _bare(value: float | None) -> list[tuple[Labels, float | None]]:
    """The only series, without labels."""
    return [((), value)]


def _sum_by_client(listeners: tuple[ListenerStatistics, ...], *, lost: bool) -> list[tuple[Labels, float]]:
    """One series for each client: a component may listen more than once under one name."""
    sums: dict[Labels, float] = {}
    for one in listeners:
        labels = (("client", one.client),)
        sums[labels] = sums.get(labels, 0) + (one.lost if lost else one.depth)
    return list(sums.items())


def _process(facts: AgentFacts) -> tuple[Family, ...]:
    return (
        counter("process_cpu_seconds_total", "CPU time of the agent's process.", _bare(facts.cpu_seconds)),
        gauge("process_open_fds", "Open file descriptors.", _bare(facts.open_fds)),
        gauge("process_resident_memory_bytes", "Resident memory.", _bare(facts.resident_bytes)),
        gauge("process_start_time_seconds", "Start of the process, Unix time.", _bare(facts.start_time_seconds)),
    )
