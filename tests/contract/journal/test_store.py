"""What the journal's component relies on of its store: the stand-in of its tests, and the file on a disk."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.edge.host.files.journal_disk import JournalDisk
from nodeagent.model.errors import JournalUnavailable
from tests.fakes.journal_store import FakeStore

Store = JournalDisk | FakeStore
OpenStore = Callable[[], Store]


@pytest.fixture(params=["stand-in", "disk"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """The store of one agent after the other, each with what the one before has left."""
    kept = FakeStore()
    return (lambda: kept) if request.param == "stand-in" else (lambda: JournalDisk(tmp_path / "state"))


async def reopen(store: Store, make_store: OpenStore) -> tuple[Store, tuple[bytes | None, bytes | None]]:
    await store.aclose()
    following = make_store()
    current, previous, problem = await following.open()
    assert problem == ""
    return following, (current, previous)


async def test_what_was_written_is_there_for_the_next_one(make_store: OpenStore) -> None:
    """A journal is what it began with and all that was added; the one before it is kept beside it, whole."""
    store = make_store()
    assert tuple(await store.open()) == (None, None, "")
    await store.begin(b"one ")
    await store.append(b"two ")
    await store.append(b"three ", durable=False)
    assert store.size_bytes == len(b"one two three ")
    store, left = await reopen(store, make_store)
    assert left == (b"one two three ", None)
    await store.begin(b"four ")
    await store.append(b"five ")
    assert store.size_bytes == len(b"four five ")
    store, left = await reopen(store, make_store)
    assert left == (b"four five ", b"one two three ")
    await store.aclose()


async def test_nothing_is_added_before_it_was_begun(make_store: OpenStore) -> None:
    """What another agent has left is not added to: the journal is begun anew first."""
    store = make_store()
    await store.open()
    await store.begin(b"one ")
    store, _ = await reopen(store, make_store)
    with pytest.raises(JournalUnavailable):
        await store.append(b"two ")
    await store.begin(b"one ")
    await store.append(b"two ")
    store, left = await reopen(store, make_store)
    assert left[0] == b"one two "
    await store.aclose()


async def test_a_damaged_journal_is_set_aside(make_store: OpenStore) -> None:
    """It is not the journal any more, the one before it is still there, and what is begun then replaces neither."""
    store = make_store()
    await store.open()
    await store.begin(b"one ")
    await store.begin(b"two ")
    store, left = await reopen(store, make_store)
    assert left == (b"two ", b"one ")
    await store.set_aside("now")
    store, left = await reopen(store, make_store)
    assert left == (None, b"one ")
    await store.begin(b"three ")
    store, left = await reopen(store, make_store)
    assert left == (b"three ", b"one ")
    await store.set_aside("later")
    with pytest.raises(JournalUnavailable):
        await store.set_aside("again")
    await store.aclose()


async def test_room_is_told(make_store: OpenStore) -> None:
    """How many bytes are free, and how many files, where they are counted."""
    store = make_store()
    await store.open()
    free, files = await store.read_room()
    assert free > 0
    assert files is None or files > 0
    await store.aclose()
