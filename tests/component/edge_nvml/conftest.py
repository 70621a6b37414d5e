"""The fake driver in two forms: loaded into the test's own process, and behind a worker as in the agent."""

import ctypes
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from nodeagent_sim.gpus.profile import list_profiles
from tests.fakes.nvml.build import SONAME
from tests.fakes.nvml.control import FakeNvml, load_known_profile

MakeFake = Callable[..., FakeNvml]


@pytest.fixture
def make_fake(tmp_path: Path) -> Iterator[MakeFake]:
    """Makes fake drivers: `make_fake("t4", hidden={"nvmlDeviceGetNumaNodeId"})`."""
    made: list[FakeNvml] = []
    for name in list_profiles():
        load_known_profile(name)

    def make(profile: str = "dgx-h100", *, hidden: Collection[str] = ()) -> FakeNvml:
        directory = tmp_path / f"fake-{len(made)}"
        directory.mkdir()
        made.append(FakeNvml(directory, profile, hidden=hidden))
        return made[-1]

    yield make
    for fake in made:
        fake.clear()  # a worker that hangs may end now
        fake.close()


@pytest.fixture
def fake(make_fake: MakeFake) -> FakeNvml:
    """Eight H100 behind four switches."""
    return make_fake()


class InProcess:
    """pynvml bound to a fake, in the test's own process."""

    def __init__(self, fake: FakeNvml, library: Path) -> None:
        self.fake, self.library = fake, library

    def handle(self, index: int) -> Any:
        return pynvml.nvmlDeviceGetHandleByIndex(index)

    def end_watch(self) -> None:
        """Let the thread that waits for events end, so that the test leaves none behind."""
        self.fake.push_wait_error(999)
        for thread in threading.enumerate():
            if thread.name == "nvml events":
                thread.join(10)


Load = Callable[..., InProcess]


@pytest.fixture
def load_in_process(make_fake: MakeFake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads a fake into this process: a fresh copy each time, because a library remembers its state file."""
    copies = 0

    def load(profile: str = "dgx-h100", *, hidden: Collection[str] = ()) -> InProcess:
        nonlocal copies
        copies += 1
        fake = make_fake(profile, hidden=hidden)
        copy = tmp_path / f"copy-{copies}" / SONAME
        copy.parent.mkdir()
        shutil.copy(fake.library_path, copy)
        for name, value in fake.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(copy)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        pynvml.nvmlInit()
        return InProcess(fake, copy)

    return load
