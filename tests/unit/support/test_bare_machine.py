"""The guard that hides the machine's GPU, driver and container runtime from tests."""

import builtins
import ctypes
import io
import os
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.guards import bare_machine
from tests.support.guards.bare_machine import hidden_machine, is_hidden


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("/dev/nvidiactl", True),
        (Path("/dev/nvidia-caps/nvidia-cap1"), True),
        (b"/proc/driver/nvidia/version", True),
        ("/sys/bus/../bus/pci/devices", True),
        ("/etc//cdi/nvidia.yaml", True),
        ("/run/cdi", True),
        ("/etc/ld.so.cache", True),
        ("/dev/null", False),
        ("/tmp/root/dev/nvidiactl", False),
        ("dev/nvidiactl", False),
        (3, False),
    ],
)
def test_what_is_the_machines_is_known(path: object, *, hidden: bool) -> None:
    """By absolute path, however it is written; what lies below a test's own root is the test's."""
    assert is_hidden(path) is hidden


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine's directory with a device node of the driver, and something else."""
    (tmp_path / "nvidiactl").write_text("here")
    (tmp_path / "null").write_text("here")
    monkeypatch.setattr(bare_machine, "HIDDEN", (f"{tmp_path}/nvidia",))
    monkeypatch.setattr(bare_machine, "_PARENTS", frozenset({str(tmp_path)}))
    return tmp_path


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        *((os, name) for name in ("stat", "lstat", "readlink", "listdir", "scandir")),
        (builtins, "open"),
        (io, "open"),
    ],
)
def test_nothing_of_it_is_found(place: Path, owner: ModuleType, name: str) -> None:
    """By none of the calls with which one looks."""
    with hidden_machine(), pytest.raises(FileNotFoundError):
        getattr(owner, name)(place / "nvidiactl")


def test_nothing_of_it_is_opened_or_found_by_pattern(place: Path) -> None:
    with hidden_machine():
        with pytest.raises(FileNotFoundError):
            os.open(place / "nvidiactl", os.O_RDONLY)
        with pytest.raises(FileNotFoundError):
            (place / "nvidiactl").resolve(strict=True)
        assert list(place.glob("nvidia*")) == []


def test_what_is_beside_it_is_found(place: Path) -> None:
    with hidden_machine():
        assert not (place / "nvidiactl").exists()
        assert not os.access(place / "nvidiactl", os.R_OK)
        assert (place / "null").read_text() == "here"
        assert os.listdir(place) == ["null"]  # noqa: PTH208
        with os.scandir(place) as entries:
            assert [entry.name for entry in entries] == ["null"]
        assert list(place.iterdir()) == list(place.glob("n*")) == [place / "null"]


def test_the_drivers_library_is_not_found_by_its_name() -> None:
    """What the linker's cache may have."""
    with pytest.raises(OSError, match=r"libcuda\.so\.1: cannot open"):
        ctypes.CDLL("libcuda.so.1")
    assert ctypes.CDLL(None).getpid() == os.getpid()


def test_every_test_is_on_such_a_machine() -> None:
    assert not Path("/sys/bus/pci").exists()
    assert "pci" not in os.listdir("/sys/bus")  # noqa: PTH208
