"""Who holds what, and which devices a pod would be given."""

import json

import pytest

from nodeagent.cli.allocations import tabulate_rows
from nodeagent.cli.table import Layout, lay_out
from nodeagent.model.allocation import AllocationRow
from tests.support.command_line import run_here


def _row(pod: str, until_seconds: float | None) -> AllocationRow:
    return AllocationRow(
        number=1,
        resource="nvidia.com/gpu",
        devices=("GPU-1",),
        namespace="ml" if pod else "",
        pod=pod,
        container="",
        since_seconds=100.0,
        until_seconds=until_seconds,
        state="held",
        source="journal",
    )


def test_rows_tell_pod_devices_and_time() -> None:
    """A living allocation is as old as now says, an ended one as long as it lasted; an unnamed pod is a dash."""
    lines = lay_out(tabulate_rows((_row("train", None), _row("", 160.0)), now_seconds=400.0), Layout(200))
    assert lines[1].split() == ["ml/train", "-", "nvidia.com/gpu", "GPU-1", "5", "min", "held"]
    assert lines[2].split() == ["-", "-", "nvidia.com/gpu", "GPU-1", "1", "min", "held"]


def test_nothing_held_is_said() -> None:
    """An empty table would look like a failure."""
    assert lay_out(tabulate_rows((), now_seconds=0.0), Layout(80)) == ["no allocation"]


def test_a_preference_is_explained() -> None:
    """The choice, its score and the runner-up, for a node that is not here."""
    code, out, _ = run_here("gpu", "prefer", "--gpus", "simulated:dgx-h100", "--available", "0,1,2,5", "--size", "2")
    assert code == 0
    assert "score" in out
    assert "runner-up" in out
    code, out, _ = run_here(
        "gpu", "prefer", "--gpus", "simulated:dgx-h100", "--size", "3", "--must-include", "7", "--json"
    )
    assert len(json.loads(out)["devices"]) == 3


@pytest.mark.parametrize(
    ("words", "needle"),
    [
        (("--size", "0"), "--size 0"),
        (("--size", "2", "--available", "0,99"), "'99'"),
        (("--size", "2", "--resource", "nvidia.com/mig-9g"), "this node offers nvidia.com/gpu"),
    ],
)
def test_a_slip_is_named(words: tuple[str, ...], needle: str) -> None:
    """A person who asks about a device that is not there learns so, with code 2."""
    code, _, err = run_here("gpu", "prefer", "--gpus", "simulated:dgx-h100", *words)
    assert code == 2
    assert needle in err
