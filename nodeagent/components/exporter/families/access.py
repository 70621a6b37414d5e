"""Cost and failures of driver calls; pure."""

from nodeagent.components.exporter.exposition import Family, counter, gauge
from nodeagent.model.telemetry import DriverAccess

_NONE = DriverAccess()


def build_access_families(access: DriverAccess | None) -> tuple[Family, ...]:
    """Calls, time and failures by function, and the worker processes."""
    told = access or _NONE
    is_real = access is not None
    return (
        counter(
            "nodeagent_nvml_calls_total",
            "Calls of the driver's library by function.",
            [((("function", one.function),), one.count) for one in told.calls],
        ),
        counter(
            "nodeagent_nvml_call_seconds_total",
            "Time spent in calls of the driver's library by function.",
            [((("function", one.function),), one.seconds) for one in told.calls],
        ),
        counter(
            "nodeagent_nvml_call_failures_total",
            "Calls that did not succeed by function and NVML code; 3 is what this hardware does not support.",
            [((("function", one.function), ("code", str(one.code))), one.count) for one in told.failures],
        ),
        counter(
            "nodeagent_nvml_worker_starts_total",
            "Processes started to call the driver's library.",
            [((), told.worker_starts)] if is_real else (),
        ),
        counter(
            "nodeagent_nvml_worker_replaced_total",
            "Such processes that were replaced: their call did not come back, or they died.",
            [((("reason", "stuck"),), told.worker_stuck), ((("reason", "died"),), told.worker_died)] if is_real else (),
        ),
        gauge(
            "nodeagent_nvml_workers_left_behind",
            "Such processes that cannot be ended because they sleep in the driver.",
            [((), len(told.left_behind))] if is_real else (),
        ),
    )
