"""What `--gpu` and `--pod` leave of an answer."""

import io

import pytest
from msgspec.structs import replace

from nodeagent.cli.answers.selection import (
    find_gpu,
    list_uuids,
    name_holders,
    name_pod,
    narrow_gpus,
    narrow_rows,
    warn_of_pod,
)
from nodeagent.cli.answers.table import Layout, lay_out
from nodeagent.cli.gpu.view import tabulate_gpus
from nodeagent.cli.main import CommandFailed, Streams
from nodeagent.components.allocations.tabulate import tabulate_living
from nodeagent.components.web.api.records import GpuRecord, GpusRecord
from nodeagent.model.gpu import GpuPair, MissingGpu, PathKind, StoredGpu
from nodeagent.model.health import DeviceHealth, Verdict
from tests.support.fractions import make_holders
from tests.support.samples import make_address, make_gpu, make_mig, make_uuid
from tests.unit.components.exporter.builders import allocate, make_table

MIG = make_mig(1, 2)
WHOLE = allocate("bert-0", make_uuid(0))
PART = allocate("tiny", f"{MIG.devices[1].uuid}::3")


def make_records() -> GpusRecord:
    """A GPU that one pod holds, one cut in two of which a pod holds the second, and one that is missing."""
    cut = make_gpu(1, mig=MIG)
    whole = DeviceHealth(device=cut.uuid, gpu=cut.uuid, verdict=Verdict.HEALTHY, since_seconds=1.0)
    health = (whole, *(replace(whole, device=one.uuid) for one in MIG.devices))
    pair = GpuPair(left=make_uuid(0), right=make_uuid(1), path=PathKind.NODE)
    return GpusRecord(
        generation=1,
        gpus=(GpuRecord(gpu=make_gpu(0), allocations=(WHOLE,)), GpuRecord(gpu=cut, health=health, allocations=(PART,))),
        pairs=(pair,),
        missing=(MissingGpu(address=make_address(7), device_id=1, reason="gone"),),
    )


def test_a_gpu_is_found_by_every_name_it_has() -> None:
    """Index, UUID, PCI address, and a device on it."""
    records = make_records()
    for name in ("1", make_uuid(1), make_address(1), MIG.devices[0].uuid):
        assert find_gpu(records, name).gpu.index == 1
    with pytest.raises(CommandFailed, match=r"no GPU 7; name it by index \(0, 1\)"):
        find_gpu(records, "7")
    with pytest.raises(CommandFailed, match=f"did you mean '{make_uuid(1)}'"):
        find_gpu(records, make_uuid(1)[:-4] + "0101")
    with pytest.raises(CommandFailed, match=r"\(none\)"):
        find_gpu(GpusRecord(generation=1), "0")


def test_without_a_filter_everything_stays() -> None:
    """The answer is the agent's own."""
    assert narrow_gpus(make_records(), None, None) == make_records()


def test_one_gpu_is_left_without_what_is_about_others() -> None:
    """No pair with a GPU that is not shown, no word of missing ones."""
    gone = StoredGpu(uuid=make_uuid(7), name="H100", index=7, address=make_address(7))
    left = narrow_gpus(replace(make_records(), vanished=(gone,)), "0", None)
    assert [record.gpu.index for record in left.gpus] == [0]
    assert (left.pairs, left.missing, left.vanished) == ((), (), ())


@pytest.mark.parametrize("pod", ["ml/tiny", "tiny"])
def test_of_a_gpu_that_a_pod_holds_parts_of_those_parts_are_left(pod: str) -> None:
    """With the namespace or without; a replica of a shared device counts as the device."""
    (record,) = narrow_gpus(make_records(), None, pod).gpus
    assert [device.uuid for device in record.gpu.mig_devices] == [MIG.devices[1].uuid]
    assert [one.device for one in record.health] == [make_uuid(1), MIG.devices[1].uuid]
    assert record.allocations == (PART,)


def test_of_a_gpu_that_was_cut_under_its_pod_all_is_left() -> None:
    """It was given the whole, whatever that is made of now."""
    records = make_records()
    held = allocate("tiny", make_uuid(1))
    cut = replace(records.gpus[1], allocations=(held,))
    (record,) = narrow_gpus(replace(records, gpus=(cut,)), None, "tiny").gpus
    assert record == cut


def test_a_pod_that_holds_nothing_leaves_nothing() -> None:
    """In its own namespace only, and together with a GPU that it does not hold."""
    assert narrow_gpus(make_records(), None, "other/tiny").gpus == ()
    assert narrow_gpus(make_records(), "1", "bert-0").gpus == ()
    assert [one.gpu.index for one in narrow_gpus(make_records(), "0", "bert-0").gpus] == [0]


def test_allocations_are_narrowed_alike() -> None:
    """By device, MIG device and pod."""
    rows = tabulate_living(make_table(WHOLE, PART, replace(PART, pod=None)))
    cut = list_uuids(make_records().gpus[1])
    assert [row.number for row in narrow_rows(rows, None, None)] == [1, 2, 3]
    assert [row.number for row in narrow_rows(rows, cut, None)] == [2, 3]
    assert [row.number for row in narrow_rows(rows, cut, "ml/tiny")] == [2]
    assert [row.number for row in narrow_rows(rows, None, "bert-0")] == [1]


def test_a_pod_that_is_not_there_is_doubted() -> None:
    """It may have ended, so that nothing fails; a misspelt one is asked about."""

    def doubt(pod: str | None, *known: str) -> str:
        streams = Streams(io.StringIO(), io.StringIO())
        warn_of_pod(pod, known, streams)
        assert isinstance(streams.err, io.StringIO)
        return streams.err.getvalue()

    assert doubt(None, "ml/a") == ""
    assert doubt("a", "", "ml/a") == ""
    assert doubt("ml/brt-0", name_pod(WHOLE), name_pod(replace(WHOLE, pod=None))) == (
        "nodeagent: nothing here is held by pod ml/brt-0; did you mean 'ml/bert-0'?\n"
    )
    assert doubt("brt-0", name_pod(WHOLE)).endswith("did you mean 'bert-0'?\n")
    assert doubt("zzz", name_pod(WHOLE)).endswith("held by pod zzz\n")


def test_a_pod_with_a_part_of_a_gpu_holds_it() -> None:
    """Beside who has it whole; of the parts only those of the pod are left."""
    records = make_records()
    first, second = records.gpus
    parts = make_holders("a", "b", "a")
    records = replace(records, gpus=(replace(first, parts=parts), second))
    assert list(name_holders(records.gpus)) == ["ml/bert-0", "ml/a", "ml/b", "ml/tiny"]
    (left,) = narrow_gpus(records, None, "ml/a").gpus
    assert [one.number for one in left.parts] == [0, 2]
    assert left.allocations == ()
    assert "ml/a, ml/b" in lay_out(tabulate_gpus(records), Layout(width=300, wide=True))[1]
