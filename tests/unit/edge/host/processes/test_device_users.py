"""Which processes have a GPU's device file open: the memory device of every kernel stands in for a GPU."""

from collections.abc import Iterator

import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import FileUnreadable
from nodeagent.edge.host.processes.device_users import HostDeviceUsers
from nodeagent.model.drains import DeviceUser
from tests.unit.edge.host.tree import HostTree

POD = "0a1b2c3d-1111-2222-3333-444455556666"
MEMORY, ZERO, FULL = 1, 5, 7
"""The kernel's numbers of /dev/zero and /dev/full."""
OWN = 50


@pytest.fixture
def worker() -> Iterator[WorkerThread]:
    thread = WorkerThread("test")
    yield thread
    thread.close()


def add_process(host: HostTree, pid: int, *targets: str, parent: int = 1, name: str = "x", cgroup: str = "") -> None:
    for number, target in enumerate(targets):
        host.link(f"proc/{pid}/fd/{number}", target)
    host.write(f"proc/{pid}/stat", f"{pid} ({name}) S {parent} 1 1 0")
    host.write(f"proc/{pid}/comm", name)
    host.write(f"proc/{pid}/cgroup", cgroup)


async def test_users_are_found_by_the_numbers_of_device_files(host: HostTree, worker: WorkerThread) -> None:
    """Each file once; a file that is no device, or has another number, is no GPU; a pod is found by control group."""
    host.link("proc/self", str(OWN))
    add_process(host, 2, "/dev/zero", "/dev/full", "/dev/zero", "socket:[1]", "/dev/tty-that-is-gone")
    add_process(host, 3, "/dev/zero", cgroup=f"0::/kubepods/pod{POD}/{'f' * 64}", name="a) b")
    add_process(host, 4, "/proc/self/status", "/dev/fd", "/dev/ptmx")
    users = await HostDeviceUsers(worker, host.proc, major=MEMORY).read_users()
    assert users == (
        DeviceUser(pid=2, command="x", minors=frozenset({ZERO, FULL})),
        DeviceUser(pid=3, command="a) b", minors=frozenset({ZERO}), pod_uid=POD),
    )
    assert await HostDeviceUsers(worker, host.proc).read_users() == ()


async def test_the_agent_and_its_children_are_no_users(host: HostTree, worker: WorkerThread) -> None:
    """Whoever's parent has ended, or who is its own ancestor in a list that changes meanwhile, is another's."""
    host.link("proc/self", str(OWN))
    add_process(host, OWN, "/dev/zero")
    add_process(host, 51, "/dev/zero", parent=OWN)
    add_process(host, 52, "/dev/zero", parent=51)
    add_process(host, 60, "/dev/zero", parent=61)
    add_process(host, 61, "/dev/zero", parent=60)
    add_process(host, 62, "/dev/zero")
    host.write("proc/62/stat", "")
    users = await HostDeviceUsers(worker, host.proc, major=MEMORY).read_users()
    assert [user.pid for user in users] == [60, 61, 62]


async def test_without_a_process_in_sight_nobody_knows(host: HostTree, worker: WorkerThread) -> None:
    with pytest.raises(FileUnreadable):
        await HostDeviceUsers(worker, host.proc).read_users()
