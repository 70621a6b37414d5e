"""The folders in which containers find their limits."""

import errno
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable, HostStuck
from nodeagent.edge.host.vgpu import fraction_folders
from nodeagent.edge.host.vgpu.fraction_folders import HostFractionFolders
from nodeagent.edge.host.vgpu.layout import MEASURED, MEASURED_AT, SHARED, USAGE_BYTES
from nodeagent.edge.host.vgpu.limits_file import read_limits
from nodeagent.edge.host.vgpu.usage_file import create_usage, read_usage
from nodeagent.model.errors import NodeagentError
from nodeagent.model.fractions import FractionLimit, LimitsFolder, MeasuredUtilization, UsageCheck
from tests.support.gpus import gpu_uuid

T = TypeVar("T")

ONE = FractionLimit(gpu=gpu_uuid(0), memory_bytes=1 << 30, cores=30, cores_max=30)
MORE = FractionLimit(gpu=gpu_uuid(0), memory_bytes=2 << 30, cores=30, cores_max=60)
OTHER = FractionLimit(gpu=gpu_uuid(1))


class Folders:
    """The port, asked from outside the loop so that a test may look at files between the questions."""

    def __init__(self, root: Path, *, of_claims: bool = False) -> None:
        self._root, self._of_claims = root, of_claims

    def write(self, name: str, limits: list[FractionLimit]) -> LimitsFolder:
        return self._ask(lambda port: port.write(name, limits))

    def prepare(self, name: str) -> None:
        self._ask(lambda port: port.prepare(name))

    def remove(self, name: str) -> None:
        self._ask(lambda port: port.remove(name))

    def read(self, name: str) -> tuple[FractionLimit, ...]:
        return self._ask(lambda port: port.read(name))

    def is_used(self, name: str) -> bool:
        return self._ask(lambda port: port.is_used(name))

    def measure(self, measures: dict[str, list[MeasuredUtilization | None]]) -> None:
        self._ask(lambda port: port.measure(measures))

    def list_names(self) -> tuple[str, ...]:
        return self._ask(lambda port: port.list_names())

    def bound_usage(self, times: int = 1) -> UsageCheck:
        async def look(port: HostFractionFolders) -> UsageCheck:
            for _ in range(times - 1):
                await port.bound_usage()
            return await port.bound_usage()

        return self._ask(look)

    def _ask(self, call: Callable[[HostFractionFolders], Awaitable[T]]) -> T:
        async def ask() -> T:
            worker = WorkerThread("test")
            try:
                return await call(HostFractionFolders(self._root, worker, of_claims=self._of_claims))
            finally:
                worker.close()

        return anyio.run(ask)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path / "parts")


def test_a_container_finds_its_limits_and_a_place_for_its_use(folders: Folders) -> None:
    """Written once more nothing changes; with other limits the same file says so."""
    assert folders.list_names() == ()
    folder = folders.write("p1", [ONE])
    limits = Path(folder.limits)
    (device,) = read_limits(limits).devices
    assert (device.memory_bytes, device.core_percent, device.soft) == (1 << 30, 30, False)
    assert read_usage(Path(folder.usage)).processes == ()
    assert not folders.is_used("p1")
    before = limits.stat()
    folders.write("p1", [ONE])
    assert limits.stat().st_mtime_ns == before.st_mtime_ns
    folders.write("p1", [MORE])
    (device,) = read_limits(limits).devices
    assert (device.memory_bytes, device.soft, limits.stat().st_ino) == (2 << 30, True, before.st_ino)
    assert folders.list_names() == ("p1",)
    folders.remove("p1")
    folders.remove("p1")
    assert folders.list_names() == ()


def test_damaged_limits_are_made_whole(folders: Folders) -> None:
    """Whatever a crash left of the file, the next start of the container finds it right."""
    limits = Path((folders.write("p1", [ONE])).limits)
    content = bytearray(limits.read_bytes())
    content[70] ^= 1
    limits.write_bytes(content)
    folders.write("p1", [ONE])
    assert read_limits(limits).devices[0].memory_bytes == 1 << 30


@pytest.mark.parametrize("is_long", [True, False])
def test_what_a_power_cut_emptied_is_made_anew(folders: Folders, is_long: bool) -> None:
    """The container starts again after the boot, by files as they were: of its limits, and of its use."""
    folder = folders.write("p1", [ONE])
    for path in map(Path, (folder.limits, folder.usage)):
        path.write_bytes(bytes(path.stat().st_size if is_long else 0))
    folders.write("p1", [ONE])
    assert folders.read("p1") == (ONE,)
    assert not folders.is_used("p1")


def test_a_folder_keeps_its_gpus(folders: Folders) -> None:
    """The library counts by slot: a slot that became another GPU's would count for both."""
    folders.write("p1", [ONE])
    with pytest.raises(NodeagentError, match="slots are for other devices"):
        folders.write("p1", [OTHER])


@pytest.mark.parametrize("place", ["parts", "parts/p1", "parts/p1/limits", "parts/p1/usage"])
def test_a_link_is_not_followed(folders: Folders, tmp_path: Path, place: str) -> None:
    """Somebody else's file stays as it is, and the error names the place."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    link = tmp_path / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere)
    with pytest.raises(FileNotWritten, match="in its place: remove it") as caught:
        folders.write("p1", [ONE])
    assert str(link) in str(caught.value)
    assert elsewhere.read_text() == "precious"


def test_what_cannot_be_made_listed_or_removed_is_said(tmp_path: Path) -> None:
    """A file where a directory should be."""
    (tmp_path / "file").write_text("")
    below = Folders(tmp_path / "file" / "parts")
    with pytest.raises(FileNotWritten, match="parts"):
        below.write("p1", [ONE])
    with pytest.raises(FileUnreadable):
        below.list_names()
    with pytest.raises(FileNotWritten, match="remove it"):
        below.remove("p1")
    with pytest.raises(FileUnreadable, match="limits"):
        below.read("p1")


async def test_a_file_system_that_hangs_is_given_up(tmp_path: Path) -> None:
    """The kubelet's call must come back whatever the disk does."""
    worker = WorkerThread("test", stuck_limit=0)
    with pytest.raises(HostStuck, match=re.escape(str(tmp_path))):
        await HostFractionFolders(tmp_path, worker).list_names()
    worker.close()


def test_containers_are_told_how_busy_their_gpus_are(folders: Folders) -> None:
    """In the place of each GPU, beside the limits, which stay; one that has ended is passed over."""
    place = folders.write("a", [ONE, OTHER])
    folders.measure(
        {
            "a": [None, MeasuredUtilization(number=7, own=12, total=100)],
            "gone": [MeasuredUtilization(number=1, own=1, total=1)],
        }
    )
    content = Path(place.limits).read_bytes()
    assert MEASURED.unpack_from(content, MEASURED_AT) == (0, 0, 0)
    assert MEASURED.unpack_from(content, MEASURED_AT + MEASURED.size) == (1200, 10_000, 7)
    assert len(read_limits(Path(place.limits)).devices) == 2


def test_one_that_cannot_be_told_does_not_keep_others_from_it(folders: Folders, tmp_path: Path) -> None:
    """What is in the place of its limits is not written into."""
    place = folders.write("b", [ONE])
    other = tmp_path / "other"
    other.write_bytes(bytes(4096))
    (tmp_path / "parts" / "a").mkdir()
    (tmp_path / "parts" / "a" / "limits").symlink_to(other)
    told = MeasuredUtilization(number=7, own=12, total=20)
    with pytest.raises(FileUnreadable, match="limits"):
        folders.measure({"a": [told], "b": [told]})
    assert other.read_bytes() == bytes(4096)
    assert MEASURED.unpack_from(Path(place.limits).read_bytes(), MEASURED_AT) == (1200, 2000, 7)


def test_what_contexts_take_is_read_again(folders: Folders) -> None:
    told = replace(ONE, context_bytes=300 << 20)
    folders.write("a", [told])
    assert folders.read("a") == (told,)


def test_what_a_container_has_grown_is_cut_and_said(folders: Folders, tmp_path: Path) -> None:
    """Also a file that takes no place; never below what the library maps, and said as long as there is the folder."""
    for name in ("a", "b", "c"):
        folders.prepare(name)
    grown, sparse, short = (tmp_path / "parts" / name / "usage" for name in ("a", "b", "c"))
    with grown.open("ab") as file:
        file.write(b"x" * 1_000_000)
    os.truncate(sparse, 1 << 40)
    os.truncate(short, 100)
    check = folders.bound_usage(times=2)
    assert check == UsageCheck(grown={"a": 1_000_000 + USAGE_BYTES, "b": 1 << 40}, unbounded=("a", "b", "c"))
    assert [each.stat().st_size for each in (grown, sparse, short)] == [USAGE_BYTES, USAGE_BYTES, 100]
    assert not folders.is_used("a")
    sparse.unlink()
    (tmp_path / "parts" / "d").mkdir()
    assert folders.bound_usage().unbounded == ("a", "c"), "what has none is passed over"


def test_one_that_cannot_be_looked_at_keeps_none_from_being_cut(folders: Folders, tmp_path: Path) -> None:
    """A link in its place is not followed."""
    for name in ("a", "b"):
        folders.prepare(name)
    linked, grown = (tmp_path / "parts" / name / "usage" for name in ("a", "b"))
    precious = tmp_path / "precious"
    os.truncate(grown, 1 << 30)
    with precious.open("wb") as file:
        file.truncate(1 << 30)
    linked.unlink()
    linked.symlink_to(precious)
    with pytest.raises(FileUnreadable, match="a/usage"):
        folders.bound_usage()
    assert (grown.stat().st_size, precious.stat().st_size) == (USAGE_BYTES, 1 << 30)


def test_a_file_that_cannot_be_cut_is_said(folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the disk's own words."""
    folders.prepare("a")
    os.truncate(tmp_path / "parts" / "a" / "usage", 1 << 30)

    def refuse(_descriptor: int, _size: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(FileNotWritten, match="cut it: input"):
        folders.bound_usage()


@pytest.mark.parametrize(("refills", "starts"), [(0, True), (1, True), (2, False)])
def test_a_memory_that_a_container_has_filled_lets_the_next_one_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refills: int, starts: bool
) -> None:
    """Its file is cut at once, a few times where it is filled again meanwhile, and whose it is is told."""
    memory, hog = tmp_path / "usage", tmp_path / "usage/parts-hog"
    memory.mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == memory)
    left = [refills]

    def create_in_small_memory(path: Path) -> None:
        if hog.exists() and hog.stat().st_size > USAGE_BYTES:
            raise FileNotWritten(path, "write it", OSError(errno.ENOSPC, "No space left on device"), replaced=False)
        if path != hog and left[0] > 0:
            left[0] -= 1
            os.truncate(hog, 1 << 26)
            create_in_small_memory(path)
        create_usage(path)

    monkeypatch.setattr(fraction_folders, "create_usage", create_in_small_memory)

    async def run() -> UsageCheck:
        worker = WorkerThread("files of a test")
        try:
            port = HostFractionFolders(tmp_path / "parts", worker)
            await port.prepare("hog")
            os.truncate(hog, 1 << 26)
            await port.prepare("next")
            return await port.bound_usage()
        finally:
            worker.close()

    if starts:
        assert anyio.run(run).grown == {"hog": 1 << 26}
        assert (memory / "parts-next").stat().st_size == USAGE_BYTES
    else:
        with pytest.raises(FileNotWritten, match="no space left on device"):
            anyio.run(run)


def test_new_files_lie_in_the_memory_that_is_mounted(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that containers have on the disk already are what these go on with, across an upgrade, and are counted."""
    memory = tmp_path / "usage"
    memory.mkdir()
    former = folders.write("old", [ONE])
    assert former.usage == str(tmp_path / "parts/old/usage")
    monkeypatch.setattr(Path, "is_mount", lambda path: path == memory)
    assert folders.write("old", [ONE]) == former
    folder = folders.write("new", [ONE])
    assert folder.usage == str(memory / "parts-new")
    assert read_usage(Path(folder.usage)).processes == ()
    assert not folders.is_used("new")
    os.truncate(folder.usage, 1 << 30)
    assert folders.bound_usage() == UsageCheck(grown={"new": 1 << 30}, unbounded=("old",))
    assert folders.list_names() == ("new", "old")
    folders.remove("new")
    folders.remove("old")
    assert list(memory.iterdir()) == []
    assert folders.list_names() == ()


@pytest.fixture
def shares(tmp_path: Path) -> Folders:
    return Folders(tmp_path / "shares", of_claims=True)


def test_the_containers_of_a_claim_have_a_file_by_which_they_know_of_one_another(
    shares: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the disk, or in memory where that is mounted; whatever is written into it stays until the claim ends."""
    folder = shares.write("old", [ONE])
    assert folder == LimitsFolder(
        limits=str(tmp_path / "shares/old/limits"), shared=str(tmp_path / "shares/old/shared")
    )
    (tmp_path / "usage").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path / "usage")
    assert shares.write("old", [ONE]) == folder
    shared = Path(shares.write("new", [ONE]).shared)
    assert shared == tmp_path / "usage/shares-new.shared"
    assert shared.stat().st_mode & 0o777 == 0o666
    assert shared.read_bytes() == bytes(SHARED.size)
    shared.write_bytes(b"spoilt")
    shares.write("new", [MORE])
    assert shared.read_bytes() == b"spoilt"
    assert shares.bound_usage() == UsageCheck(unbounded=("old",))
    for name in shares.list_names():
        shares.remove(name)
    assert list((tmp_path / "usage").iterdir()) == list((tmp_path / "shares").iterdir()) == []


def test_a_claim_of_the_former_form_keeps_its_file(
    shares: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its containers have mapped it, those that start again join them; wherever it lies."""
    (tmp_path / "usage").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path / "usage")
    former = Folders(tmp_path / "shares")
    in_memory = former.write("b", [ONE])
    monkeypatch.undo()
    on_disk = former.write("a", [ONE])
    assert shares.write("a", [ONE]) == on_disk
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path / "usage")
    assert shares.write("b", [ONE]) == in_memory
    os.truncate(in_memory.usage, 1 << 30)
    assert shares.bound_usage() == UsageCheck(grown={"b": 1 << 30}, unbounded=("a",))
    shares.remove("b")
    assert shares.write("b", [ONE]).shared


def test_what_a_claim_has_grown_is_cut_and_said(shares: Folders, tmp_path: Path) -> None:
    """To what the library writes: nobody maps it, so that nobody is hurt."""
    for name in ("a", "b", "c"):
        shares.prepare(name)
    grown, short, linked = (tmp_path / "shares" / name / "shared" for name in ("a", "b", "c"))
    os.truncate(grown, 1 << 40)
    os.truncate(short, 0)
    check = shares.bound_usage()
    assert check == UsageCheck(grown={"a": 1 << 40}, unbounded=("a", "b", "c"))
    assert [each.stat().st_size for each in (grown, short)] == [SHARED.size, 0]
    linked.unlink()
    (tmp_path / "shares" / "d").mkdir()
    assert shares.bound_usage().unbounded == ("a", "b"), "what has none is passed over"
    linked.symlink_to(grown)
    with pytest.raises(FileUnreadable, match="c/shared"):
        shares.bound_usage()
    with pytest.raises(FileNotWritten, match="in its place: remove it"):
        shares.prepare("c")
