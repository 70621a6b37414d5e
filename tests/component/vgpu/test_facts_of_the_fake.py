"""The questions that are asked of a real driver in `tests/gpu`, asked of the fake one: they are well asked."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.component.vgpu.cuda_talk import Caller, call_driver
from tests.fakes.cuda.driver import FakeDriver
from tests.gpu.__main__ import find_reason
from tests.gpu.facts import MIB, ON_THE_FAKE, check_null_outputs, measure_context, measure_graph, measure_odd_allocation

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="the driver is C"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

WANTED: dict[Callable[[Caller], int], int] = {
    check_null_outputs: 3,
    measure_context: 300 * MIB,
    measure_odd_allocation: 5 * MIB + 1,
    measure_graph: 64 * MIB,
}


@pytest.mark.parametrize("fact", ON_THE_FAKE, ids=lambda fact: fact.__name__)
def test_the_fake_answers_as_it_was_made(tmp_path: Path, fact: Callable[[Caller], int]) -> None:
    with call_driver(FakeDriver(tmp_path, context_bytes=300 * MIB)) as one:
        one.start()
        assert fact(one) == WANTED.get(fact, 1)


def test_a_machine_without_a_gpu_is_told_why(tmp_path: Path) -> None:
    """No device node, and a driver that does not start."""
    assert find_reason(tmp_path / "nvidiactl", "libcuda.so.1") == f"no {tmp_path / 'nvidiactl'}"
    (tmp_path / "nvidiactl").touch()
    assert find_reason(tmp_path / "nvidiactl", "libnobody.so.1") == "libnobody.so.1 cannot be loaded"
