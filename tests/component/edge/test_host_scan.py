"""Looks at a host: nodes below a root, what sysfs says of them, and commands. Device nodes are real, sysfs is made."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.devices.host_scan import HostScan, ScanRoots, read_fingerprint, run_command, scan_host
from nodeagent.edge.host.errors import HostStuck
from nodeagent.model.devices import HostNode, PciPlace, ScanRequest
from nodeagent.model.ids import PciAddress
from tests.support.waiting import hanging

NULL, ZERO = (1, 3), (1, 5)
RDMA = PciAddress("0000:3b:00.0")


def can_make_nodes() -> bool:
    return os.geteuid() == 0


pytestmark = pytest.mark.skipif(not can_make_nodes(), reason="only root makes device nodes")


def make(root: Path, path: str, number: tuple[int, int] = NULL, kind: int = stat.S_IFCHR) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(place, kind | 0o600, os.makedev(*number))


@pytest.fixture
def roots(tmp_path: Path) -> ScanRoots:
    host, sys = tmp_path / "host", tmp_path / "sys"
    (host / "dev").mkdir(parents=True)
    for name in ("class", "dev/char", "dev/block", "bus/pci/devices", "devices"):
        (sys / name).mkdir(parents=True)
    return ScanRoots(host, sys)


def plant_function(roots: ScanRoots, address: str, vendor: str, kind: str, numa: int = 0) -> Path:
    """A PCI function below a bridge."""
    place = roots.sys / "devices/pci0000:3a/0000:3a:00.0" / address
    place.mkdir(parents=True)
    for name, text in {"vendor": vendor, "class": kind, "device": "0x1017", "numa_node": str(numa)}.items():
        (place / name).write_text(f"{text}\n")
    (roots.sys / "bus/pci/devices" / address).symlink_to(place)
    return place


def plant_node(roots: ScanRoots, below: Path, group: str, name: str, number: tuple[int, int], node: str) -> None:
    """A node of a piece of hardware, as the kernel shows it."""
    place = below / group / name
    place.mkdir(parents=True)
    (place / "uevent").write_text(f"MAJOR={number[0]}\nMINOR={number[1]}\nDEVNAME={node}\n")
    (place / "device").symlink_to(below)
    directory = roots.sys / "class" / group
    directory.mkdir(exist_ok=True)
    (place / "subsystem").symlink_to(directory)
    (directory / name).symlink_to(place)
    (roots.sys / "dev/char" / f"{number[0]}:{number[1]}").symlink_to(place)


def test_nodes_are_found_by_pattern_and_nothing_else_is(roots: ScanRoots) -> None:
    """Files and directories are no nodes; a path that is not there is told of."""
    make(roots.host, "/dev/x0")
    make(roots.host, "/dev/disk", ZERO, stat.S_IFBLK)
    (roots.host / "dev/x1").write_text("")
    (roots.host / "dev/gone").symlink_to("nowhere")
    found = scan_host(roots, ScanRequest(patterns=("/dev/x*", "/dev/disk", "/dev/none", "/dev/x1", "/dev/gone")))
    assert found.nodes == (
        HostNode(path="/dev/disk", is_block=True, number=ZERO),
        HostNode(path="/dev/x0", number=NULL),
    )
    assert found.missing == ("/dev/none", "/dev/x1", "/dev/gone")
    assert found.functions == {}


def test_links_are_told_with_the_nodes_that_they_lead_to(roots: ScanRoots) -> None:
    """By the host's own paths, wherever the host is; a node is no link."""
    make(roots.host, "/dev/dri/renderD128", (226, 128))
    request = ScanRequest(links=("/dev/dri/by-path/*", "/dev/dri/renderD*"))
    seen = read_fingerprint(roots, request)
    place = roots.host / "dev/dri/by-path"
    place.mkdir()
    (place / "pci-a-render").symlink_to("../renderD128")
    (place / "pci-b-render").symlink_to("/dev/dri/renderD129")
    assert scan_host(roots, request).links == {
        "/dev/dri/by-path/pci-a-render": "/dev/dri/renderD128",
        "/dev/dri/by-path/pci-b-render": "/dev/dri/renderD129",
    }
    assert read_fingerprint(roots, request) != seen


def test_what_sysfs_says_of_a_node_comes_with_it(roots: ScanRoots) -> None:
    """Class, hardware, PCI function, NUMA node; and of the function vendor, class and the way to it."""
    place = plant_function(roots, RDMA, "0x15b3", "0x020700", numa=1)
    plant_function(roots, "0000:3c:00.0", "0x10de", "0x030200")
    plant_function(roots, "0000:3d:00.0", "0x8086", "0x030000")
    plant_node(roots, place, "infiniband_verbs", "uverbs0", (231, 192), "infiniband/uverbs0")
    make(roots.host, "/dev/infiniband/uverbs0", (231, 192))
    found = scan_host(roots, ScanRequest(patterns=("/dev/infiniband/*",)))
    (node,) = found.nodes
    assert (node.sysfs_class, node.pci, node.numa_node) == ("infiniband_verbs", RDMA, 1)
    assert node.hardware == f"devices/pci0000:3a/0000:3a:00.0/{RDMA}"
    assert node.sysfs == f"{node.hardware}/infiniband_verbs/uverbs0"
    chain = ("pci0000:3a", "0000:3a:00.0")
    assert found.functions == {
        RDMA: PciPlace(vendor=0x15B3, pci_class=0x020700, device=0x1017, numa_node=1, chain=(*chain, RDMA)),
        "0000:3c:00.0": PciPlace(
            vendor=0x10DE, pci_class=0x030200, device=0x1017, numa_node=0, chain=(*chain, "0000:3c:00.0")
        ),
    }


def test_nodes_are_found_by_class_and_by_bus(roots: ScanRoots) -> None:
    """Where the configuration names no path; a node that sysfs tells of and that is not there is none."""
    place = plant_function(roots, RDMA, "0x15b3", "0x020700", numa=-1)
    plant_node(roots, place, "drm", "renderD128", (226, 128), "dri/renderD128")
    plant_node(roots, place, "drm", "card0", (226, 0), "/dev/dri/card0")
    virtual = roots.sys / "devices/virtual"
    plant_node(roots, virtual, "misc", "kvm", (10, 232), "kvm")
    make(roots.host, "/dev/dri/renderD128", (226, 128))
    make(roots.host, "/dev/kvm", (10, 232))
    for request in (ScanRequest(sysfs_classes=("drm", "none")), ScanRequest(is_pci=True)):
        (node,) = scan_host(roots, request).nodes
        assert (node.path, node.pci, node.numa_node) == ("/dev/dri/renderD128", RDMA, None)


def test_partitions_without_a_function_are_found_with_that_of_their_gpu(roots: ScanRoots) -> None:
    """By path, and where all nodes of PCI functions are wanted."""
    plant_function(roots, "0000:c0:00.0", "0x1002", "0x120000")
    place = roots.sys / "devices/platform/amdgpu_xcp_1"
    plant_node(roots, place, "drm", "renderD129", (226, 129), "dri/renderD129")
    make(roots.host, "/dev/dri/renderD129", (226, 129))
    topology = roots.sys / "class/kfd/kfd/topology/nodes/2"
    topology.mkdir(parents=True)
    (topology / "properties").write_text(f"location_id {0xC000}\ndomain 0\ndrm_render_minor 129\n")
    for request in (ScanRequest(patterns=("/dev/dri/*",)), ScanRequest(is_pci=True)):
        found = scan_host(roots, request)
        assert [(node.path, node.pci) for node in found.nodes] == [("/dev/dri/renderD129", "0000:c0:00.0")]
        assert found.functions[PciAddress("0000:c0:00.0")].vendor == 0x1002


def test_a_fingerprint_changes_with_what_comes_and_goes(roots: ScanRoots) -> None:
    """Also where the directory was not there before."""
    place = plant_function(roots, RDMA, "0x15b3", "0x020700")
    request = ScanRequest(patterns=("/dev/ib/u*",), sysfs_classes=("drm",), is_pci=True)
    seen = [read_fingerprint(roots, request)]
    make(roots.host, "/dev/ib/u0")
    seen.append(read_fingerprint(roots, request))
    time.sleep(0.02)  # the clock of file times ticks in hundredths
    make(roots.host, "/dev/ib/u1")
    seen.append(read_fingerprint(roots, request))
    plant_node(roots, place, "drm", "card0", (226, 0), "dri/card0")
    seen.append(read_fingerprint(roots, request))
    assert len(set(seen)) == len(seen)
    assert read_fingerprint(roots, request) == seen[-1]


@pytest.fixture
def scan(roots: ScanRoots) -> Iterator[HostScan]:
    threads = [WorkerThread("look"), WorkerThread("commands")]
    yield HostScan(roots, *threads, poll_seconds=0.05)
    for thread in threads:
        thread.close()


async def test_a_node_that_comes_is_noticed(scan: HostScan, roots: ScanRoots) -> None:
    request = ScanRequest(patterns=("/dev/x*",))
    assert (await scan.look(request)).nodes == ()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scan.wait_change)
            await anyio.wait_all_tasks_blocked()
            make(roots.host, "/dev/x0")
    assert [node.path for node in (await scan.look(request)).nodes] == ["/dev/x0"]


async def test_files_of_sysfs_are_read_and_missing_ones_are_empty(scan: HostScan, roots: ScanRoots) -> None:
    (roots.sys / "state").write_text("on\n")
    assert await scan.read_files(["state", "none", ""]) == {"state": "on", "none": ""}


@pytest.mark.long
async def test_a_look_that_hangs_is_given_up(scan: HostScan, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a driver may that is asked for a device."""
    monkeypatch.setattr("nodeagent.edge.host.devices.host_scan.POLL_INTERVAL_SECONDS", 0.05)
    with hanging() as hang:
        monkeypatch.setattr("nodeagent.edge.host.devices.host_scan.scan_host", hang)
        with pytest.raises(HostStuck, match="looking for device nodes"):
            await scan.look(ScanRequest())


def test_a_command_says_what_is_wrong() -> None:
    """By its code and what it printed; one that does not end is ended, with all that it has started."""
    assert run_command(["true"], 5.0) == ""
    assert run_command(["sh", "-c", "echo two   words; exit 3"], 5.0) == "sh ended with 3: two words"
    assert run_command(["false"], 5.0) == "false ended with 1"
    assert run_command(["sh", "-c", 'test -z "$HOME"'], 5.0) == ""
    assert "cannot be started" in run_command(["/nowhere/probe"], 5.0)
    began = time.monotonic()
    assert run_command(["sh", "-c", "sleep 60 & sleep 60"], 0.2) == "sh did not end within 0.2 s"
    assert time.monotonic() - began < 5


async def test_a_command_runs_in_the_hosts_root(tmp_path: Path, roots: ScanRoots) -> None:
    """An agent in a container has the host elsewhere."""
    threads = [WorkerThread("look"), WorkerThread("commands")]
    own = HostScan(ScanRoots(Path("/"), roots.sys), *threads)
    assert await own.run_command(["test", "-d", str(tmp_path)], 5.0) == ""
    elsewhere = HostScan(roots, *threads)
    assert "chroot" in await elsewhere.run_command(["probe"], 5.0)
    for thread in threads:
        thread.close()


async def test_a_command_whose_thread_is_stuck_speaks_against_the_device(
    scan: HostScan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that not even a kill ends, in a sleep of the driver, holds nobody up."""
    monkeypatch.setattr("nodeagent.edge.host.devices.host_scan._SPARE_SECONDS", 0.02)
    with hanging() as hang:
        monkeypatch.setattr("nodeagent.edge.host.devices.host_scan.run_command", hang)
        assert "running probe" in await scan.run_command(["probe"], 0.02)


def test_a_directory_that_leads_nowhere_is_compared_like_any(roots: ScanRoots) -> None:
    """And its being there at last is a change."""
    request = ScanRequest(patterns=("/dev/link/x*",))
    (roots.host / "dev/link").symlink_to("place")
    before = read_fingerprint(roots, request)
    (roots.host / "dev/place").mkdir()
    assert read_fingerprint(roots, request) != before


def test_sysfs_may_know_no_node_and_no_numa_node(roots: ScanRoots) -> None:
    """An entry without a node's name is passed over; a place without NUMA nodes is at none."""
    place = roots.sys / "devices/platform/odd"
    plant_node(roots, place, "misc", "odd", (10, 200), "odd")
    make(roots.host, "/dev/odd", (10, 200))
    (roots.sys / "class/misc/bare").mkdir()
    (node,) = scan_host(roots, ScanRequest(sysfs_classes=("misc",))).nodes
    assert (node.path, node.numa_node, node.pci) == ("/dev/odd", None, None)
