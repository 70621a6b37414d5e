"""Who holds what, and which devices a pod would be given."""

import json

import pytest
from msgspec.structs import asdict, replace

from nodeagent.cli.answers.asking import name_devices
from nodeagent.cli.answers.table import Layout, lay_out
from nodeagent.cli.node.allocations import (
    HEAD,
    HEAD_OF_RECEIPTS,
    describe_fraction,
    tabulate_receipts,
    tabulate_rows,
)
from nodeagent.components.web.api.fractions import record_fractions
from nodeagent.model.allocation import AllocationRow, PodIdentity
from nodeagent.model.ids import GpuUuid, ResourceName
from nodeagent.model.journal import Binding, FractionTable, GpuFraction, Reservation
from nodeagent.rules.receipts import HeldGpu, Receipt, SeenFault, find_verdict
from nodeagent.rules.signals import Severity
from tests.support.gpus import gpu_uuid, make_gpu
from tests.support.journals import make_seen
from tests.support.programs.command_line import run_here


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
    lines = lay_out(
        tabulate_rows((_row("train", None), _row("", 160.0)), {"GPU-1": "3"}, now_seconds=400.0), Layout(200)
    )
    assert lines[1].split() == ["ml/train", "-", "nvidia.com/gpu", "5", "min", "held", "3", "GPU-1"]
    assert lines[2].split() == ["-", "-", "nvidia.com/gpu", "1", "min", "held", "3", "GPU-1"]


def test_a_narrow_terminal_shows_who_holds_which_gpu_for_how_long() -> None:
    """UUIDs, resource and container give way; a device that is gone says so."""
    row = replace(_row("a-training-with-a-long-name", None), devices=("GPU-1::3", "MIG-1", "GPU-9"), container="c" * 20)
    head, line = lay_out(tabulate_rows((row,), {"GPU-1": "3", "MIG-1": "4:0"}, now_seconds=400.0), Layout(80))
    assert [word for word in head.split() if word in HEAD] == ["POD", "FOR", "STATE", "GPUS"]
    assert line.split() == ["ml/a-training-with-a-long-name", "5", "min", "held", "3,4:0,gone"]


def test_devices_have_the_numbers_that_commands_take() -> None:
    """A GPU its index, a MIG device the index on its GPU."""
    cut = make_gpu(1, mig=["1g.10gb"])
    assert name_devices([make_gpu(0), cut]) == {gpu_uuid(0): "0", gpu_uuid(1): "1", cut.mig_devices[0].uuid: "1:0"}


def test_a_container_with_parts_is_a_row_as_others() -> None:
    """It has a GPU, too, and who looks for its pod looks here."""
    reservation = Reservation(number=4, resource=ResourceName("tencent.com/vcuda-core"), devices=(), since_seconds=90.0)
    binding = Binding(
        number=5,
        reservations=(4,),
        pod=PodIdentity(namespace="ml", name="infer", uid="u"),
        container="main",
        parts=(GpuFraction(gpu=gpu_uuid(1), cores=30, memory_bytes=0),),
        since_seconds=100.0,
    )
    table = FractionTable(reservations={4: reservation}, bindings={5: binding})
    (record,) = record_fractions(table, None).bound
    (line,) = lay_out(tabulate_rows((describe_fraction(record),), {gpu_uuid(1): "1"}, now_seconds=400.0), Layout(200))[
        1:
    ]
    assert line.split()[:9] == ["ml/infer", "main", "tencent.com/vcuda-core", "5", "min", "held", "in", "parts", "1"]


def test_nothing_held_is_said() -> None:
    """An empty table would look like a failure."""
    assert lay_out(tabulate_rows((), {}, now_seconds=0.0), Layout(80)) == ["no allocation"]


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


def test_a_device_of_another_kind_is_no_gpu_that_is_gone() -> None:
    row = replace(_row("train", None), devices=("DEV-kvm-5b500c-kvm",), resource="devices.nodeagent.io/kvm")
    line = lay_out(tabulate_rows((row,), {}, now_seconds=400.0), Layout(200))[1]
    assert line.split()[-2:] == ["-", "DEV-kvm-5b500c-kvm"]


def make_receipt(*faults: SeenFault, index: int | None = 3) -> Receipt:
    row = _row("train", 160.0)
    gpus = (HeldGpu(uuid="GPU-1", index=index),)
    verdict = find_verdict(faults)
    return Receipt(**asdict(row), pod_uid="u", gpus=gpus, verdict=verdict, faults=faults)


def test_a_receipt_tells_whom_the_faults_blame_and_when_they_came() -> None:
    """Before the end, which is what a person compares; a late word of the driver is at the end."""
    storm = replace(make_seen(31, severity=Severity.WARN, at_seconds=90.0), count=200)
    switch = replace(make_seen(11, at_seconds=161.0), gpu=GpuUuid(""))
    receipts = (make_receipt(storm, make_seen(79, at_seconds=148.0), switch), make_receipt())
    table = tabulate_receipts(receipts, {"GPU-1": "3"}, now_seconds=400.0)
    head, first, second = lay_out(table, Layout(200))
    assert head.split() == list(HEAD_OF_RECEIPTS)
    faults = "XID 31 x200 1 min 10 s before, XID 79 12 s before, SXID 11 at the end"
    assert first.split()[:2] + first.split()[3:] == [
        *("ml/train", "-", "1", "min", "4", "min", "ago", "3", "hardware"),
        *faults.split(),
        *("held", "GPU-1"),
    ]
    assert "none" in second.split()
    assert table.names == ["ml/train", "ml/train"]


def test_no_receipt_is_said() -> None:
    assert lay_out(tabulate_receipts((), {}, now_seconds=0.0), Layout(80)) == ["no receipt"]


def test_a_narrow_terminal_shows_whose_fault_it_was() -> None:
    receipt = replace(make_receipt(make_seen(79, at_seconds=148.0)), pod="a-training-with-a-very-long-name")
    head, line = lay_out(tabulate_receipts((receipt,), {"GPU-1": "3"}, now_seconds=400.0), Layout(80))
    assert [word for word in head.split() if word in HEAD_OF_RECEIPTS] == ["POD", "ENDED", "GPUS", "BLAMED", "FAULTS"]
    assert line.endswith("hardware  XID 79 12 s bef…")
