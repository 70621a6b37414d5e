"""Which file is the NVML library, on a made-up file system."""

from pathlib import Path

import pytest

from nodeagent.edge.host.driver.library_search import LIBRARY_PLACES
from nodeagent.edge.nvml.worker.library import CONTAINER_ROOT, SONAME, LibraryUnusable, find_library, load_library
from tests.unit.edge.host.tree import encode_new_cache


def put_library(root: Path, directory: str, version: str = "570.26") -> Path:
    """A library file with its usual link."""
    place = root / directory
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"libnvidia-ml.so.{version}"
    file.touch()
    (place / SONAME).symlink_to(file.name)
    return file


@pytest.mark.parametrize("directory", LIBRARY_PLACES)
def test_each_usual_place_is_searched(tmp_path: Path, directory: str) -> None:
    """The real file is named, so that its version can be read."""
    file = put_library(tmp_path, directory)
    assert find_library(str(tmp_path), "") == str(file)


def test_a_library_that_only_the_roots_own_cache_names_is_found(tmp_path: Path) -> None:
    """As for containers: what one search finds in a driver root, the other must not refuse."""
    file = put_library(tmp_path, "opt/nvidia/lib")
    (tmp_path / "etc").mkdir()
    rows = [(0x0303, SONAME, f"/opt/nvidia/lib/{SONAME}", 0)]
    (tmp_path / "etc/ld.so.cache").write_bytes(encode_new_cache(rows))
    assert find_library(str(tmp_path), "") == str(file)


def test_a_driver_container_is_found_below_the_host_of_a_pod(tmp_path: Path) -> None:
    """A pod sees the host below a directory; the driver that a container brought lies deeper still."""
    file = put_library(tmp_path, f"{CONTAINER_ROOT.lstrip('/')}/{LIBRARY_PLACES[1]}")
    assert find_library(str(tmp_path), "") == str(file)


def test_the_first_place_wins(tmp_path: Path) -> None:
    """The order is the field's."""
    for number, directory in enumerate(reversed(LIBRARY_PLACES)):
        put_library(tmp_path, directory, f"{number}.0")
    assert find_library(str(tmp_path), "") == str(
        tmp_path / LIBRARY_PLACES[0] / f"libnvidia-ml.so.{len(LIBRARY_PLACES) - 1}.0"
    )


def test_a_configured_library_is_taken_as_it_is() -> None:
    """Whoever names a file gets that file, or the loader's complaint about it."""
    assert find_library("/nowhere", "/opt/emulator/libnvidia-ml.so") == "/opt/emulator/libnvidia-ml.so"


def test_a_driver_root_without_a_library_says_so(tmp_path: Path) -> None:
    """The dynamic loader is not asked for what must be below the root."""
    with pytest.raises(LibraryUnusable, match=f"no {SONAME} below driver root {tmp_path}"):
        find_library(str(tmp_path), "")


def test_on_the_host_the_dynamic_loader_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the root is the host's own, the loader knows more places than we do."""
    monkeypatch.setattr("nodeagent.edge.nvml.worker.library.is_wsl", lambda _root: False)
    assert find_library("/", "") == find_library("", "") == SONAME


@pytest.mark.parametrize("place", ["", CONTAINER_ROOT])
def test_a_loader_that_finds_nothing_is_helped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """An old cache, or a driver container: the usual places of the host and of the container are looked at."""
    file = put_library(tmp_path, LIBRARY_PLACES[1])
    places = {place: str(file)}
    monkeypatch.setattr("nodeagent.edge.nvml.worker.library.search_library", lambda root, _name: places.get(root))
    monkeypatch.setattr("nodeagent.edge.nvml.worker.library.SONAME", "libnvidia-ml-of-nowhere.so.1")
    with pytest.raises(LibraryUnusable, match=f"cannot load {file}: .*file too short"):
        load_library("libnvidia-ml-of-nowhere.so.1")


@pytest.mark.parametrize(
    ("path", "content", "word"),
    [
        ("dev/dxg", "", "WSL"),
        ("usr/lib/wsl/lib/libdxcore.so", "", "WSL"),
        ("etc/nv_tegra_release", "R35", "Tegra"),
        ("sys/devices/soc0/family", "Tegra\n", "Tegra"),
        ("sys/devices/soc0/family", "Snapdragon\n", "is the driver installed there"),
    ],
)
def test_platforms_without_a_real_nvml_are_named(tmp_path: Path, path: str, content: str, word: str) -> None:
    """The message says what platform it is and that it is not served; another chip's family is no Tegra."""
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(content)
    with pytest.raises(LibraryUnusable, match=word):
        find_library(str(tmp_path), "")


def test_a_tegra_board_with_nvml_is_served(tmp_path: Path) -> None:
    """Newer boards have the library: then it is what counts."""
    file = put_library(tmp_path, LIBRARY_PLACES[0])
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "nv_tegra_release").touch()
    assert find_library(str(tmp_path), "") == str(file)
