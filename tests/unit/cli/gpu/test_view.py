"""GPUs in a terminal."""

import pytest
from msgspec.structs import replace

from nodeagent.cli.answers.table import UNCUT, Layout, Table, lay_out
from nodeagent.cli.frame.values import parse_xid
from nodeagent.cli.gpu.view import (
    advise,
    explain_topology,
    list_missing,
    list_troubles,
    render_xid,
    tabulate_gpus,
    tabulate_health,
    tabulate_holders,
    tabulate_topology,
    tabulate_xids,
)
from nodeagent.components.health.evidence.xids import CATALOGUE, find_xid
from nodeagent.components.web.api.records import ConditionRecord, GpuRecord, GpusRecord
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.edge.host.processes.device_holders import DeviceHolder
from nodeagent.model.gpu import Gpu, MissingGpu, NvSwitch, PathKind
from nodeagent.model.health import DeviceHealth, Verdict
from nodeagent.model.ids import DeviceUuid, PciAddress
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, mig_uuid


def show(table: Table, *, wide: bool = False) -> list[str]:
    return lay_out(table, Layout(UNCUT, wide=wide))


def show_health(shown: GpusRecord, now_seconds: float, *, colour: bool) -> list[str]:
    return [*show(tabulate_health(shown, now_seconds)), *advise(shown, colour=colour)]


def healthy(gpu: Gpu) -> tuple[DeviceHealth, ...]:
    devices: tuple[DeviceUuid, ...] = (gpu.uuid, *(device.uuid for device in gpu.mig_devices))
    return tuple(
        DeviceHealth(device=uuid, gpu=gpu.uuid, verdict=Verdict.HEALTHY, since_seconds=100) for uuid in devices
    )


def records(*gpus: Gpu, health: bool = True) -> GpusRecord:
    return GpusRecord(
        generation=1, gpus=tuple(GpuRecord(gpu=gpu, health=healthy(gpu) if health else ()) for gpu in gpus)
    )


def test_list_has_a_line_for_every_device() -> None:
    """GPUs with memory, health and place; MIG devices under their GPU."""
    shown = tabulate_gpus(records(make_gpu(0, numa_node=1), make_gpu(1, mig=["1g.10gb"])))
    lines = [line.split() for line in show(shown)]
    assert lines[0] == ["GPU", "MODEL", "MEMORY", "HEALTH", "NUMA", "PCI", "UUID"]
    assert (lines[1][0], lines[1][-4:]) == ("0", ["healthy", "1", "0000:10:00.0", gpu_uuid(0)])
    assert (lines[3][:3], lines[3][-1]) == (["1:0", "MIG", "1g.10gb"], mig_uuid(1, 0))


def test_list_says_what_is_lost_missing_or_not_judged() -> None:
    """What is wrong with the node is not hidden by what works."""
    missing = MissingGpu(address=PciAddress("0000:ff:00.0"), device_id=0, reason="it did not start")
    shown = replace(records(make_gpu(0, lost="fell off"), make_gpu(1), health=False), missing=(missing,))
    lines = [*show(tabulate_gpus(shown)), *list_missing(shown)]
    assert "lost" in lines[1].split()
    assert "-" in lines[2].split()
    assert lines[3] == "missing: 0000:ff:00.0: it did not start"


def test_empty_node_is_said() -> None:
    """No GPU is an answer."""
    assert show(tabulate_gpus(records())) == ["no GPU"]
    assert show(tabulate_topology(records())) == ["no GPU"]
    assert "no verdict yet" in show_health(records(), 0, colour=False)[0]


def test_topology_is_the_matrix_people_know() -> None:
    """Links where there are links, the worst hop elsewhere, the same both ways."""
    gpus = [replace(make_gpu(index, numa_node=index // 2), cpu_affinity=f"{index}-7") for index in range(3)]
    paths = {(0, 1): (PathKind.NODE, 18), (0, 2): (PathKind.SYSTEM, 0), (1, 2): (PathKind.BRIDGE, 0)}
    node = make_inventory(gpus, lambda left, right: paths[left, right])
    switch = NvSwitch(address=PciAddress("0000:05:00.0"))
    shown = replace(records(*gpus), pairs=node.pairs, switches=(switch,))
    assert [line.split() for line in show(tabulate_topology(shown))] == [
        ["GPU0", "GPU1", "GPU2", "CPU", "AFFINITY", "NUMA"],
        ["GPU0", "X", "NV18", "SYS", "0-7", "0"],
        ["GPU1", "NV18", "X", "PIX", "1-7", "0"],
        ["GPU2", "SYS", "PIX", "X", "2-7", "1"],
    ]
    assert "1 NVSwitches: 0000:05:00.0" in explain_topology(shown)


def test_unknown_pair_is_shown_as_unknown() -> None:
    """A lost GPU has no measured way to the others."""
    lines = show(tabulate_topology(records(make_gpu(0), make_gpu(1))))
    assert lines[1].split() == ["GPU0", "X", "?", "-", "-"]


def test_health_says_what_to_do_and_what_comes_next() -> None:
    """A line for each device, then instructions for those that need any."""
    gpu = make_gpu(0, mig=["1g.10gb"])
    sick = DeviceHealth(
        device=mig_uuid(0, 0),
        gpu=gpu.uuid,
        verdict=Verdict.UNHEALTHY,
        since_seconds=100,
        reason="XID 94: contained\x1b[31m",
        remedy="restart it",
        returns="by itself",
    )
    gone = replace(sick, device=mig_uuid(7, 7), returns="", verdict=Verdict.UNKNOWN)
    shown = GpusRecord(generation=1, gpus=(GpuRecord(gpu=gpu, health=(healthy(gpu)[0], sick, gone)),))
    lines = show_health(shown, 160, colour=False)
    assert lines[1].split() == ["GPU", "0", "healthy", "1", "min", "-"]
    assert lines[5:9] == [
        "GPU 0:0 (1g.10gb): unhealthy",
        "  what:    XID 94: contained�[31m",
        "  do:      restart it",
        "  returns: by itself",
    ]
    assert lines[10] == f"{mig_uuid(7, 7)}: unknown"
    assert "\x1b[31;1m" in "".join(show_health(shown, 160, colour=True))


def test_catalogue_is_shown_as_this_node_sees_it() -> None:
    """A line for each XID, with the verdict of the configuration."""
    lines = show(tabulate_xids(tuple(CATALOGUE.values()), HealthSettings(disable_xids=("48",))))
    assert len(lines) == 1 + len(CATALOGUE)
    assert lines[48].split()[:3] == ["48", "memory", "healthy"]
    assert lines[79].split()[:5] == ["79", "bus", "unhealthy", "power", "cycle"]


@pytest.mark.parametrize(
    ("number", "policy", "words"),
    [
        (79, HealthSettings(), ["XID 79: the GPU fell off the bus", "hits:    the whole GPU", "needs: power cycle"]),
        (13, HealthSettings(), ["the device stays healthy", "repeats: suspect after 3 different holders in 1 d"]),
        (13, HealthSettings(enable_xids=("13",)), ["verdict: unhealthy by configuration, healthy by the catalogue"]),
        (92, HealthSettings(), ["returns: after 1 d without a repeat"]),
        (110, HealthSettings(), ["repeats: unhealthy after 2 times in 7 d"]),
        (4711, HealthSettings(), ["XID 4711: not in the catalogue", "suspect"]),
    ],
)
def test_one_xid_is_explained(number: int, policy: HealthSettings, words: list[str]) -> None:
    """Meaning, whom it hits, verdict here, way back, remedy, and what repeats do."""
    text = render_xid(find_xid(number), policy)
    assert [word for word in words if word not in text] == []


def test_holders_are_named_by_pod_where_it_is_known() -> None:
    """Else by the pod's uid, else not at all."""
    holders = [
        DeviceHolder(pid=7, command="python train.py", devices=("/dev/nvidia0", "/dev/nvidiactl"), pod_uid="uid-1"),
        DeviceHolder(pid=8, command="dcgm\x1b", devices=("/dev/nvidia1",), pod_uid="uid-2"),
        DeviceHolder(pid=9, command="sh", devices=("/dev/nvidia1",)),
    ]
    lines = show(tabulate_holders(holders, {"uid-1": "team/training"}))
    assert [line.split()[1] for line in lines[1:]] == ["team/training", "uid-2", "-"]
    assert "nvidia0, nvidiactl" in lines[1]
    assert "\x1b" not in "".join(lines)
    assert show(tabulate_holders([], {})) == ["no process holds a device file of the driver"]


@pytest.mark.parametrize("text", ["79", "xid79", "XID 79"])
def test_xid_is_read_as_people_write_it(text: str) -> None:
    """A number, with or without the word."""
    assert parse_xid(text) == 79


@pytest.mark.parametrize("text", ["", "all", "-1", "123456", "7.9", "\N{ARABIC-INDIC DIGIT SEVEN}"])
def test_what_is_no_xid_is_refused(text: str) -> None:
    """With a message that says what to write."""
    with pytest.raises(Exception, match="write its number"):
        parse_xid(text)


def test_trouble_beside_the_verdicts_is_told_with_its_remedy() -> None:
    """A worker that sleeps in the driver makes no device unhealthy, and matters to whoever looks."""
    assert list_troubles(()) == []
    trouble = ConditionRecord(
        code="nvml-worker-left-behind",
        severity="warning",
        title="a process",
        remedy="reboot",
        since_seconds=1,
        detail="7",
    )
    assert list_troubles((trouble,)) == ["", "warning: a process", "  what:    7", "  do:      reboot"]
