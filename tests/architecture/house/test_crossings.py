"""What a call of the kubelet crosses is recorded in a simulation that runs."""

import pytest

from tests.architecture.house.crossings import measure_crossings
from tests.architecture.house.report import CALLS


@pytest.mark.long
def test_a_call_crosses_few_files() -> None:
    """The journal is in each call, and the way there is no longer than the goal."""
    crossed = measure_crossings(frozenset(CALLS))
    for call, most in CALLS.items():
        files = crossed[call]
        assert "components/allocations/journal_task.py" in files
        assert len(files) <= most, files
