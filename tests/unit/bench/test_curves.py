"""The cost of the main operations grows no faster than what it grows with, and an admission's not with the pods.

Processor time in ratios of one size to a quarter of it, the best of many turns: what else the machine does hits both.
What grows with the square gives sixteen, what grows in proportion four; the border is between.
"""

import sys
from types import FrameType
from typing import Any

import pytest

from tests.bench.charts import render_chart
from tests.bench.curves import AXES, Curve, Operation, measure
from tests.bench.operations import OPERATIONS

QUARTER = 4
WORSE_THAN_LINEAR = 8.0
ATTEMPTS = 3


@pytest.mark.nightly
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: f"{operation.axis}: {operation.name}")
def test_no_cost_grows_faster_than_what_it_grows_with(operation: Operation) -> None:
    """Four times as many GPUs, devices or pods cost four times as much at most, as far as a busy machine can tell."""
    largest = AXES[operation.axis][-1]
    ratios = []
    for _ in range(ATTEMPTS):
        small, large = measure(operation, (largest // QUARTER, largest)).micros
        ratios.append(large / small)
        if ratios[-1] < WORSE_THAN_LINEAR:
            return
    pytest.fail(f"{operation.name}: {QUARTER} times as many {operation.axis} cost {ratios} times as much")


@pytest.mark.nightly
def test_a_square_is_called_worse_than_linear() -> None:
    """The border is where it must be: work that looks at every pair is over it, work that looks at each is not."""

    def look_at_pairs(size: int) -> Any:
        numbers = list(range(size))
        return lambda: sum(left == right for left in numbers for right in numbers)

    def look_at_each(size: int) -> Any:
        numbers = list(range(size))
        return lambda: sum(number == 0 for number in numbers)

    for make, is_worse in ((look_at_pairs, True), (look_at_each, False)):
        small, large = measure(Operation("looks", "pods", make), (125, 500)).micros
        assert (large / small >= WORSE_THAN_LINEAR) == is_worse


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.flat], ids=lambda operation: operation.name)
def test_an_admission_takes_the_same_steps_however_many_pods_there_are(operation: Operation) -> None:
    """Counted, not timed: not one step of Python more with 500 pods than with eight."""
    assert count_steps(operation, 500) == count_steps(operation, 8)


def count_steps(operation: Operation, size: int) -> int:
    """Instructions of the interpreter for one more of it, once everything has happened before."""
    work, steps = operation.make(size), 0

    def count(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return count

    for _ in range(3):
        work()
    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def test_the_chart_shows_every_curve_by_name() -> None:
    """Names stand apart, marks and special characters are written as XML wants them."""
    curves = [Curve(f"a & b {number}", "pods", (1, 10, 100), (1.0, 10.0, 100.0 + number)) for number in range(12)]
    chart = render_chart("pods", curves)
    places = [line.split('y="')[1].split('"')[0] for line in chart.splitlines() if "a &amp; b" in line]
    assert len(set(places)) == len(curves)
    assert chart.count('class="curve') == len(curves)
    assert "prefers-color-scheme: dark" in chart
