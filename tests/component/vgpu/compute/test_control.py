"""The law of the compute limit: each keeps its part whatever runs beside it, and nothing lies idle without need.

By a model of a device that is shared in time. How many multiprocessors one has does not come into it.
"""

import ctypes
import shutil
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.component.vgpu.build import HERE, VGPU
from tests.component.vgpu.compute.control_model import ONE, STEP_MS, WHOLE, WINDOW_MS, Device, Tenant, next_factor
from tests.support.programs.compiled import compile_once

pytestmark = [pytest.mark.nightly, pytest.mark.may_block("nothing here runs on an event loop")]

MEAN_ERROR, SWING = 0.05, 0.15
REST_MS = 3000


def load_law() -> ctypes.CDLL:
    flags = ("-shared", "-fPIC", "-O2", f"-I{VGPU}")
    law = ctypes.CDLL(
        str(
            compile_once(
                HERE / "build", "control.so", [HERE / "src/control.c"], flags, besides=[VGPU / "compute/control.h"]
            )
        )
    )
    law.next_factor.restype, law.next_factor.argtypes = ctypes.c_uint32, [ctypes.c_uint32] * 7
    law.charge.restype, law.charge.argtypes = ctypes.c_uint64, [ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32]
    return law


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc")
@given(
    factor=st.integers(ONE // 16, ONE * 300),
    limit=st.integers(1, 99),
    own=st.integers(0, WHOLE),
    others=st.integers(0, WHOLE),
    waited=st.booleans(),
    soft=st.booleans(),
    sure=st.booleans(),
)
def test_the_model_is_what_the_library_does(
    *, factor: int, limit: int, own: int, others: int, waited: bool, soft: bool, sure: bool
) -> None:
    total = min(WHOLE, own + others)
    wanted = next_factor(factor, limit, own, total, waited=waited, soft=soft, sure=sure)
    assert load_law().next_factor(factor, limit, own, total, waited, soft, sure) == wanted


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc")
def test_a_launch_takes_up_its_part() -> None:
    """A millisecond at a quarter takes up four; twice the factor, half of that; an hour is no overflow."""
    law = load_law()
    assert law.charge(1_000_000, 25, ONE) == 4_000_000
    assert law.charge(1_000_000, 25, 2 * ONE) == 2_000_000
    assert law.charge(3_600_000_000_000, 1, ONE // 16) == 3_600_000_000_000 * 1600


def run(tenants: Sequence[Tenant], *, lag_ms: float, seconds: float, every_ms: float = WINDOW_MS) -> None:
    Device(tenants, lag_ms, every_ms).run(seconds * 1000)


def rate(tenant: Tenant, start_ms: float, end_ms: float) -> float:
    part = tenant.done_ms[int(start_ms / STEP_MS) : int(end_ms / STEP_MS)]
    return sum(part) / (len(part) * STEP_MS)


def swing(tenant: Tenant, window_ms: float, rest_ms: float = REST_MS) -> float:
    """How far the parts of whole windows lie from one another, once it has come to rest."""
    windows = []
    at = float(rest_ms)
    while at + window_ms <= len(tenant.done_ms) * STEP_MS:
        windows.append(rate(tenant, at, at + window_ms))
        at += window_ms
    return max(windows) - min(windows)


@pytest.mark.parametrize("lag_ms", [80, 200])
@pytest.mark.parametrize("kernel_ms", [0.005, 0.2, 5, 60, 500])
@pytest.mark.parametrize("limit", [10, 30, 50, 70, 90])
def test_alone_it_keeps_its_part(limit: int, kernel_ms: float, lag_ms: int) -> None:
    """Within five points in the mean; windows are long enough for some kernels each."""
    one = Tenant(limit, kernel_ms)
    seconds = 10 + 40 * kernel_ms / 500
    run([one], lag_ms=lag_ms, seconds=seconds)
    assert rate(one, REST_MS, seconds * 1000) == pytest.approx(limit / 100, abs=MEAN_ERROR)
    assert swing(one, max(1000, 8 * kernel_ms * 100 / limit)) <= SWING


@pytest.mark.parametrize(("every_ms", "lag_ms"), [(100, 80), (100, 200), (1000, 200)])
@pytest.mark.parametrize(
    "limits", [(10, 90), (30, 70), (50, 50), (20, 30, 50), (10, 20, 30, 40), (10, 10, 10, 10, 10, 10, 20, 20)]
)
@pytest.mark.parametrize("kernels_ms", [(0.005, 5), (0.2, 0.2), (5, 60), (0.05, 20), (60, 60)])
def test_beside_others_each_keeps_its_part(
    limits: tuple[int, ...], kernels_ms: tuple[float, float], every_ms: int, lag_ms: int
) -> None:
    """Though what kernels take beside others is more than what they take alone; also when it is measured once a second.

    Of eight tenants with long kernels each has its turn every few seconds, and some are seen before they come to rest.
    """
    is_slow = max(kernels_ms) * len(limits) > 400
    rest_ms, window_ms = (20_000, 5000) if is_slow else (REST_MS, 2000)
    tenants = [Tenant(limit, kernels_ms[number % 2]) for number, limit in enumerate(limits)]
    run(tenants, lag_ms=lag_ms, seconds=(rest_ms + 8 * window_ms) / 1000, every_ms=every_ms)
    errors = [abs(rate(tenant, rest_ms, rest_ms + 8 * window_ms) - (tenant.limit or 0) / 100) for tenant in tenants]
    assert sum(errors) / len(errors) <= MEAN_ERROR
    assert max(swing(tenant, window_ms, rest_ms) for tenant in tenants) <= SWING


@pytest.mark.parametrize("limit", [10, 40, 70])
def test_beside_one_that_nobody_limits(limit: int) -> None:
    """Never more than its part, and no less than the device's own sharing lets it have."""
    one, other = Tenant(limit, 1), Tenant(None, 1)
    run([one, other], lag_ms=120, seconds=12)
    assert rate(one, REST_MS, 12_000) <= limit / 100 + MEAN_ERROR
    assert rate(one, REST_MS, 12_000) >= min(limit / 100, 0.5) - MEAN_ERROR


def test_soft_leaves_nothing_idle() -> None:
    """Alone it has the device; beside one that is held hard, what that one leaves."""
    alone = Tenant(20, 1, soft=True)
    run([alone], lag_ms=120, seconds=10)
    assert rate(alone, REST_MS, 10_000) > 0.9
    soft, hard = Tenant(20, 1, soft=True), Tenant(30, 1)
    run([soft, hard], lag_ms=120, seconds=12)
    assert rate(soft, REST_MS, 12_000) + rate(hard, REST_MS, 12_000) > 0.85
    assert rate(hard, REST_MS, 12_000) > 0.3 - MEAN_ERROR


def test_who_has_nothing_to_do_is_not_lifted() -> None:
    """Back from a pause it has its part, not all that was saved up."""
    one = Tenant(20, 1, idle=True)
    device = Device([one], 120)
    device.run(3000)
    assert one.factor == ONE
    one.idle = False
    device.run(3000)
    assert rate(one, 3000, 4000) <= 0.2 + MEAN_ERROR
