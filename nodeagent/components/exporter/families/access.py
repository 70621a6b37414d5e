"""Cost and failures of driver calls; pure."""

from nodeagent.components.exporter.exposition import Family, make_family
from nodeagent.model.telemetry import DriverAccess

_NONE = DriverAccess()


def build_access_families(access: DriverAccess | None) -> tuple[Family, ...]:
    """Calls, time and failures by function, and the worker processes."""
    told = access or _NONE
    is_real = access is not None
    return (
        make_family(
            "nodeagent_nvml_calls_total",
            "counter",
            "Calls of the driver's library by function.",
            [((("function", one.function),), one.count) for one in told.calls],
        ),
        make_family(
            "nodeagent_nvml_call_seconds_total",
            "counter",
            "Time spent in calls of the driver's library by function.",
            [((("function", one.function),), one.seconds) for one in told.calls],
        ),
        make_family(
            "nodeagent_nvml_call_failures_total",
            "counter",
            "Calls that did not succeed by function and NVML code; 3 is what this hardware does not support.",
            [((("function", one.function), ("code", str(one.code))), one.count) for one in told.failures],
        ),
        make_family(
            "nodeagent_nvml_worker_starts_total",
            "counter",
            "Processes started to call the driver's library.",
            [((), told.worker_starts)] if is_real else (),
        ),
        make_family(
            "nodeagent_nvml_worker_replaced_total",
            "counter",
            "Such processes that were replaced: their call did not come back, or they died.",
            [((("reason", "stuck"),), told.worker_stuck), ((("reason", "died"),), told.worker_died)] if is_real else (),
        ),
        make_family(
            "nodeagent_nvml_workers_left_behind",
            "gauge",
            "Such processes that cannot be ended because they sleep in the driver.",
            [((), len(told.left_behind))] if is_real else (),
        ),
    )
