"""What a call of the kubelet crosses is recorded in a simulation that runs."""

import pytest

from tests.architecture.house.crossings import measure_crossings
from tests.architecture.house.report import CALLS

# What has been reached, on the way to the goals of `report.CALLS`.
REACHED = {"allocate nvidia.com/gpu": 17, "pre_start tencent.com/vcuda-core": 45}


@pytest.mark.long
def test_a_call_crosses_no_more_files_than_before() -> None:
    """The journal is in each call, and the way there has become no longer."""
    crossed = measure_crossings(frozenset(CALLS))
    for call, reached in REACHED.items():
        files = crossed[call]
        assert "components/allocations/journal_task.py" in files
        assert len(files) <= reached, files
