"""THE list of the doctor's checks; pure."""

from collections.abc import Callable, Iterator

from nodeagent.cli.doctor.check_cluster import (
    check_agent,
    check_allocatable,
    check_api,
    check_cordons,
    check_devices,
    check_endings,
    check_kubelet,
    check_kubernetes,
    check_registration,
)
from nodeagent.cli.doctor.check_hardware import (
    check_driver,
    check_fabric,
    check_hardware,
    check_nodes,
    check_nvml,
    check_versions,
)
from nodeagent.cli.doctor.check_host import (
    check_cdi,
    check_clock,
    check_configuration,
    check_conflicts,
    check_disk,
    check_mps,
    check_runtime,
    check_shim,
    check_user,
)
from nodeagent.cli.doctor.facts import Facts
from nodeagent.cli.doctor.verdicts import Check, Grade

CHECKS: tuple[Callable[[Facts], Iterator[Check]], ...] = (
    check_configuration,
    check_user,
    check_hardware,
    check_driver,
    check_nodes,
    check_versions,
    check_nvml,
    check_fabric,
    check_agent,
    check_kubelet,
    check_registration,
    check_devices,
    check_cordons,
    check_allocatable,
    check_cdi,
    check_runtime,
    check_shim,
    check_mps,
    check_api,
    check_kubernetes,
    check_endings,
    check_disk,
    check_clock,
    check_conflicts,
)
"""Checks in order of dependence: each rests on earlier checks."""


def run_checks(facts: Facts) -> tuple[Check, ...]:
    """All checks."""
    return tuple(check for judge in CHECKS for check in judge(facts))


def find_worst(checks: tuple[Check, ...]) -> Grade:
    """The worst grade of all checks."""
    order = list(Grade)
    return max((check.grade for check in checks), key=order.index, default=Grade.OK)
