"""The agent's metrics about itself; pure."""

from msgspec import field

from nodeagent.components.exporter.exposition import Family, Labels, make_family
from nodeagent.components.exporter.families.access import build_access_families
from nodeagent.components.exporter.families.admission import build_admission_families
from nodeagent.core.values import ActiveCondition, ComponentReport, GateState, ListenerStatistics, LoopLag
from nodeagent.model.plugin import AdmissionFacts, OfferSummary
from nodeagent.model.telemetry import DriverAccess
from nodeagent.model.values import Value


class AgentFacts(Value, frozen=True):
    """The facts for the families of this module."""

    version: str
    driver_ready: bool
    gates: tuple[GateState, ...]
    components: tuple[ComponentReport, ...]
    conditions: tuple[ActiveCondition, ...]
    listeners: tuple[ListenerStatistics, ...]
    bus_published: int
    loop_lag: LoopLag
    gpus_present: int
    gpus_lost: int
    gpus_missing: int
    gpus_vanished: int
    sample_age_seconds: float | None
    sample_duration_seconds: float | None
    resident_bytes: int
    open_fds: int
    cpu_seconds: float
    start_time_seconds: float
    sample_calls: int | None = None
    access: DriverAccess | None = None
    account: OfferSummary | None = None
    api_calls: dict[tuple[str, str], int] = field(default_factory=dict)
    """Requests to the API server by verb and outcome."""
    exporter: "ExporterFacts | None" = None
    admission: AdmissionFacts | None = None


class ExporterFacts(Value, frozen=True):
    """Cost and failures of rendering metrics."""

    scrapes: int
    scrape_seconds: float
    renders: int
    render_seconds: float
    series_bytes: int
    unusable_fields: int
    is_stale: bool


def build_agent_families(facts: AgentFacts) -> tuple[Family, ...]:
    """The agent's own metrics, in a fixed order."""
    exporter = _exporter(facts.exporter) if facts.exporter is not None else ()
    admission = build_admission_families(facts.admission) if facts.admission is not None else ()
    return (*_life(facts), *_work(facts), *build_access_families(facts.access), *admission, *exporter, *_process(facts))


def _life(facts: AgentFacts) -> tuple[Family, ...]:
    return (
        make_family(
            "nodeagent_build_info", "gauge", "Version of the agent; always 1.", [((("version", facts.version),), 1)]
        ),
        make_family(
            "nodeagent_gate_passed",
            "gauge",
            "Whether the start has passed a milestone; it stays so when what it stands for fails later.",
            [((("gate", one.name),), one.is_open) for one in facts.gates],
        ),
        make_family(
            "nodeagent_component_phase",
            "gauge",
            "Phase of each component; 1 for the present one.",
            [((("component", one.name), ("phase", one.phase)), 1) for one in facts.components],
        ),
        make_family(
            "nodeagent_component_restarts_total",
            "counter",
            "Restarts of each component since the agent started.",
            [((("component", one.name),), one.restarts) for one in facts.components],
        ),
        make_family(
            "nodeagent_condition_active",
            "gauge",
            "Conditions that are true now, as on the status page; 1 each.",
            [((("code", one.code), ("key", one.key), ("severity", one.severity)), 1) for one in facts.conditions],
        ),
        make_family("nodeagent_driver_ready", "gauge", "Whether the driver works now.", _bare(facts.driver_ready)),
    )


def _work(facts: AgentFacts) -> tuple[Family, ...]:
    age, duration = facts.sample_age_seconds, facts.sample_duration_seconds
    return (
        make_family(
            "nodeagent_gpus",
            "gauge",
            "GPUs of the node by state.",
            [
                ((("state", "present"),), facts.gpus_present),
                ((("state", "lost"),), facts.gpus_lost),
                ((("state", "missing"),), facts.gpus_missing),
                ((("state", "vanished"),), facts.gpus_vanished),
                *_count_offers(facts.account),
            ],
        ),
        make_family(
            "nodeagent_devices_offered",
            "gauge",
            "GPUs and MIG devices that pods can get now, however many shares each has.",
            _bare(facts.account.devices_offered if facts.account is not None else None),
        ),
        make_family("nodeagent_sample_age_seconds", "gauge", "Age of the newest sample.", _bare(age)),
        make_family(
            "nodeagent_sample_duration_seconds",
            "gauge",
            "Time the newest sample took.",
            _bare(duration),
        ),
        make_family("nodeagent_sample_calls", "gauge", "Calls that the newest sample took.", _bare(facts.sample_calls)),
        make_family(
            "nodeagent_bus_published_total", "counter", "Events published on the bus.", _bare(facts.bus_published)
        ),
        make_family(
            "nodeagent_bus_listener_depth",
            "gauge",
            "Events that wait for a listener.",
            _sum_by_client(facts.listeners, lost=False),
        ),
        make_family(
            "nodeagent_bus_listener_lost_total",
            "counter",
            "Events dropped because a listener was slow.",
            _sum_by_client(facts.listeners, lost=True),
        ),
        make_family(
            "nodeagent_api_requests_total",
            "counter",
            "Requests to the API server by verb and status; none where there was no answer.",
            [((("code", code), ("verb", verb)), count) for (verb, code), count in sorted(facts.api_calls.items())],
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
        make_family("nodeagent_scrapes_total", "counter", "Scrapes answered.", _bare(facts.scrapes)),
        make_family(
            "nodeagent_scrape_seconds_total",
            "counter",
            "Time spent putting answers to scrapes together.",
            _bare(facts.scrape_seconds),
        ),
        make_family("nodeagent_renders_total", "counter", "Samples rendered.", _bare(facts.renders)),
        make_family(
            "nodeagent_render_seconds_total", "counter", "Time spent rendering samples.", _bare(facts.render_seconds)
        ),
        make_family("nodeagent_rendered_bytes", "gauge", "Size of the rendered GPU series.", _bare(facts.series_bytes)),
        make_family(
            "nodeagent_unusable_fields",
            "gauge",
            "Lines of the list of fields that cannot be used.",
            _bare(facts.unusable_fields),
        ),
        make_family(
            "nodeagent_samples_stale",
            "gauge",
            "Whether GPU series are left out because the newest sample is too old.",
            _bare(facts.is_stale),
        ),
    )


def _bare(value: float | None) -> list[tuple[Labels, float]]:
    """A series without labels; no series without a value."""
    return [] if value is None else [((), value)]


def _sum_by_client(listeners: tuple[ListenerStatistics, ...], *, lost: bool) -> list[tuple[Labels, float]]:
    """One series for each client: a component may listen more than once under one name."""
    sums: dict[Labels, float] = {}
    for one in listeners:
        labels = (("client", one.client),)
        sums[labels] = sums.get(labels, 0) + (one.lost if lost else one.depth)
    return list(sums.items())


def _process(facts: AgentFacts) -> tuple[Family, ...]:
    return (
        make_family(
            "process_cpu_seconds_total", "counter", "CPU time of the agent's process.", _bare(facts.cpu_seconds)
        ),
        make_family("process_open_fds", "gauge", "Open file descriptors.", _bare(facts.open_fds)),
        make_family("process_resident_memory_bytes", "gauge", "Resident memory.", _bare(facts.resident_bytes)),
        make_family(
            "process_start_time_seconds", "gauge", "Start of the process, Unix time.", _bare(facts.start_time_seconds)
        ),
    )
