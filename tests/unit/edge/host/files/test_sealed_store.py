"""A sealed file used from the event loop."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.edge.host.files.sealed_store import SealedStore
from tests.support.waiting import wait_until


class HungFile(SealedFile):
    """A file on a disk that does not answer until it is let go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "test", 1)
        self.released = threading.Event()

    def write(self, body: bytes) -> None:
        self.released.wait(20)

    def read(self) -> None:  # type: ignore[override]  # it never comes to an answer
        self.released.wait(20)

    def discard(self, reason: str) -> str:
        self.released.wait(20)
        return reason


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    boot_id = tmp_path / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("the-boot\n")
    return tmp_path / "proc"


@pytest.fixture
def store(tmp_path: Path, proc: Path) -> Iterator[SealedStore]:
    store = SealedStore(SealedFile(tmp_path / "state.json", "test", 1), proc_root=proc)
    yield store
    store.close()


async def test_what_was_written_is_read_with_the_boot(store: SealedStore) -> None:
    """Body and boot id, and no troubles."""
    assert await store.write(b"body") == ""
    stored = await store.read()
    assert (stored.body, stored.boot_id, stored.troubles) == (b"body", "the-boot", ())


async def test_unknown_boot_is_said(tmp_path: Path) -> None:
    """Without it nothing of before can be trusted; the body is there all the same."""
    store = SealedStore(SealedFile(tmp_path / "state.json", "test", 1), proc_root=tmp_path / "none")
    await store.write(b"body")
    stored = await store.read()
    store.close()
    assert (stored.body, stored.boot_id, len(stored.troubles)) == (b"body", "", 1)


async def test_failed_write_is_an_answer(tmp_path: Path, proc: Path) -> None:
    """A missing directory is said, not raised."""
    store = SealedStore(SealedFile(tmp_path / "none/state.json", "test", 1), proc_root=proc)
    assert "cannot write" in await store.write(b"body")
    store.close()


async def test_discarded_file_is_moved_aside(store: SealedStore) -> None:
    await store.write(b"body")
    assert "state.json.aside.1" in await store.discard("it is no use")


async def test_hung_disk_is_an_answer_too(tmp_path: Path, proc: Path) -> None:
    """Each call comes back within its time, and says what hung."""
    threads = threading.active_count()
    file = HungFile(tmp_path / "state.json")
    store = SealedStore(file, proc_root=proc, read_seconds=0.05, write_seconds=0.05)
    assert "write state" in await store.write(b"body")
    stored = await store.read()
    assert (stored.body, stored.boot_id) == (None, "")
    assert "read stored state" in stored.troubles[0]
    assert "move state aside" in await store.discard("no use")
    file.released.set()
    store.close()
    await wait_until(lambda: threading.active_count() == threads)
