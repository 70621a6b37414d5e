"""Traces of a cluster on the machine: cgroups, mounts, sockets, kernel settings."""

from pathlib import Path

import pytest

from tests.integration.cluster import cgroups, sysctls
from tests.integration.cluster.leftovers import find_mounts, find_sockets, parse_listeners

MOUNTINFO = """\
25 1 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw
26 25 0:21 / /sys/fs/cgroup/cpuset rw,nosuid shared:9 - cgroup cgroup rw,cpuset
27 25 0:22 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
28 1 8:1 / /tmp/place/lib rw - ext4 /dev/vda rw
29 1 8:1 / /tmp/place-other rw - ext4 /dev/vda rw
"""
NET_UNIX = """\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 1111 /tmp/place/containerd.sock
0000000000000000: 00000002 00000000 00010000 0001 01 2222 /run/other.sock
0000000000000000: 00000003 00000000 00000000 0001 03 3333
"""
NET_TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4444 1 0 100 0 0 10 0
   1: 0100007F:18EB 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 5555 1 0 100 0 0 10 0
   2: 00000000000000000000000001000000:0016 00000000:0000 0A 0:0 00:0 0     0        0 6666 1 0 100 0 0 10 0
"""


def test_hierarchies_of_both_versions_are_found() -> None:
    """Every cgroup mount counts, nothing else does."""
    expected = (Path("/sys/fs/cgroup/cpuset"), Path("/sys/fs/cgroup/unified"))
    assert cgroups.find_hierarchies(MOUNTINFO) == expected


def test_the_version_of_cgroups_is_that_of_their_root(tmp_path: Path) -> None:
    """A machine with both, where version 2 lies below, is one of version 1 for the kubelet."""
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").touch()
    assert cgroups.is_version_1(tmp_path)
    (tmp_path / "cgroup.controllers").touch()
    assert not cgroups.is_version_1(tmp_path)


def test_a_version_1_cpuset_is_usable_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new cpuset inherits the processors and memory of its parent."""
    (tmp_path / "cpuset.cpus").write_text("0-1")
    (tmp_path / "cpuset.mems").write_text("0")
    make_kernel_files(monkeypatch, "cpuset.cpus", "cpuset.mems")
    cgroups.create("/place", [tmp_path])
    assert (tmp_path / "place" / "cpuset.cpus").read_text() == "0-1"
    assert (tmp_path / "place" / "cpuset.mems").read_text() == "0"


def test_a_version_2_cgroup_hands_its_controllers_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each controller that the machine has is enabled on the way down."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory rdma")
    (tmp_path / "cgroup.subtree_control").touch()
    make_kernel_files(monkeypatch, "cgroup.controllers", "cgroup.subtree_control", text="cpu")
    cgroups.create("/place", [tmp_path])
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"  # a real file keeps only the last write
    assert (tmp_path / "place" / "cgroup.subtree_control").read_text() == "+cpu"


def test_a_cgroup_is_removed_with_all_below(tmp_path: Path) -> None:
    """Nested cgroups go before their parents; one that stays busy is named."""
    (tmp_path / "place" / "pods" / "one").mkdir(parents=True)
    assert cgroups.remove("/place", [tmp_path], timeout_seconds=10) == ()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "busy").touch()
    assert cgroups.remove("/place", [tmp_path], timeout_seconds=0) == (tmp_path / "place",)


def test_processes_of_a_cgroup_are_its_containers(tmp_path: Path) -> None:
    """Living processes at any depth are found; a number that nobody has is none."""
    (tmp_path / "place" / "pod").mkdir(parents=True)
    (tmp_path / "place" / "pod" / "cgroup.procs").write_text("1\n4194305\n")
    assert [each.pid for each in cgroups.find_processes("/place", [tmp_path])] == [1]


def test_only_our_own_mounts_and_sockets_count() -> None:
    """A name that merely begins like ours is somebody else's."""
    assert list(find_mounts(Path("/tmp/place"), MOUNTINFO)) == ["/tmp/place/lib"]
    assert list(find_sockets(Path("/tmp/place"), NET_UNIX)) == ["/tmp/place/containerd.sock"]


def test_listening_sockets_are_read_in_both_families() -> None:
    """Established connections do not count; addresses come out as people write them."""
    assert list(parse_listeners(NET_TCP)) == [("4444", ("127.0.0.1", 6379)), ("6666", ("::1", 22))]


def test_kernel_settings_are_put_back(tmp_path: Path) -> None:
    """What the kubelet changed gets its old value; what is unchanged is not written, and may be read-only."""
    (tmp_path / "vm").mkdir()
    (tmp_path / "kernel").mkdir()
    changed, unchanged = tmp_path / "vm/overcommit_memory", tmp_path / "kernel/panic"
    changed.write_text("0\n")
    unchanged.write_text("1\n")
    before = sysctls.read_sysctls(tmp_path)
    assert before == {"vm/overcommit_memory": "0", "kernel/panic": "1"}
    changed.write_text("1\n")
    sysctls.restore_sysctls(before, tmp_path)
    assert sysctls.read_sysctls(tmp_path) == before
    assert unchanged.read_text() == "1\n"


def make_kernel_files(monkeypatch: pytest.MonkeyPatch, *names: str, text: str = "") -> None:
    """Let every new directory hold these files at once, as a cgroup file system does."""
    make = Path.mkdir

    def make_with_files(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        make(path, mode, parents, exist_ok)
        for name in names:
            (path / name).write_text(text)

    monkeypatch.setattr(Path, "mkdir", make_with_files)
