"""Where the driver is found."""

from pathlib import Path

import pytest

from nodeagent.edge.host.driver.library_search import DIRECTORIES
from nodeagent.edge.host.driver.roots import (
    DriverRoots,
    find_library,
    follow_in_root,
    parse_library_version,
    read_platform_problem,
    read_version_at,
    resolve_driver_roots,
    resolve_in_root,
)
from tests.unit.edge.host.tree import HostTree, encode_new_cache


def test_host_driver_is_preferred(host: HostTree) -> None:
    """A driver on the host wins over one that a container brings."""
    host.install_library()
    host.install_library("run/nvidia/driver/")
    roots = resolve_driver_roots(host.root, host_root=host.root)
    assert (roots.driver, roots.dev, roots.is_host_driver) == (host.root, host.root, True)


def test_container_driver_is_found_where_the_host_has_none(host: HostTree) -> None:
    """The container's root is the driver root; its own device nodes make it the dev root too."""
    host.install_library("run/nvidia/driver/")
    container = host.root / "run/nvidia/driver"
    assert resolve_driver_roots(host.root, host_root=host.root).dev == host.root
    (container / "dev").mkdir()
    roots = resolve_driver_roots(host.root, host_root=host.root)
    assert (roots.driver, roots.dev, roots.is_host_driver) == (container, container, False)
    assert (roots.driver_on_host, roots.dev_on_host) == ("/run/nvidia/driver", "/run/nvidia/driver")


def test_without_any_driver_the_host_is_the_root(host: HostTree) -> None:
    """Nothing found means that the driver is expected on the host."""
    assert resolve_driver_roots(host.root, host_root=host.root).driver == host.root


def test_configured_roots_are_taken_as_they_are(host: HostTree) -> None:
    """What a person has set is not second-guessed."""
    host.install_library()
    roots = resolve_driver_roots(host.root / "opt", dev_root=host.root / "d", host_root=host.root)
    assert (roots.driver, roots.dev) == (host.root / "opt", host.root / "d")
    assert (roots.driver_on_host, roots.dev_on_host) == ("/opt", "/d")
    assert resolve_driver_roots(Path("/elsewhere"), host_root=host.root).driver_on_host == "/elsewhere"


@pytest.mark.parametrize("place", ["", "/nvidia/current"])
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_library_is_found_in_each_usual_directory(host: HostTree, directory: str, place: str) -> None:
    """Every directory that the field's tools search is searched."""
    real = host.write(f"{directory}{place}/libnvidia-ml.so.580.65.06", "ELF")
    host.link(f"{directory}{place}/libnvidia-ml.so.1", "libnvidia-ml.so.580.65.06")
    assert find_library(host.root) == real


def test_absolute_links_stay_inside_the_root(host: HostTree) -> None:
    """In a driver container an absolute link is relative to the container's root."""
    real = host.write("run/nvidia/driver/opt/libnvidia-ml.so.570.26", "ELF")
    host.link("run/nvidia/driver/usr/lib64/libnvidia-ml.so.1", "/opt/libnvidia-ml.so.570.26")
    assert find_library(host.root / "run/nvidia/driver") == real


def test_links_cannot_climb_out_of_the_root(host: HostTree) -> None:
    """The root is its own parent."""
    host.write("secret", "x")
    host.link("inner/link", "../../../../secret")
    assert resolve_in_root(host.root / "inner", "link") is None
    host.write("inner/secret", "y")
    assert resolve_in_root(host.root / "inner", "link") == host.root / "inner/secret"


def test_circle_of_links_ends(host: HostTree) -> None:
    host.link("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.1")
    assert find_library(host.root) is None


@pytest.mark.parametrize("path", ["gone", "gone/../file", "dangling", "directory", "file/below", "a\0b"])
def test_what_is_not_there_is_no_file(host: HostTree, path: str) -> None:
    """Nor is a directory; where the way leads is still told of what may be made there."""
    host.write("file", "x")
    host.write("directory/file", "x")
    host.link("dangling", "/directory/gone")
    assert resolve_in_root(host.root, path) is None
    assert follow_in_root(host.root, "dangling") == host.root / "directory/gone"


def test_library_elsewhere_is_found_through_the_cache(host: HostTree) -> None:
    """What lies in no usual directory is looked up in the root's own ld.so.cache, and must exist."""
    real = host.write("opt/nvidia/libnvidia-ml.so.1", "ELF")
    rows = [(0x0303, "libnvidia-ml.so.1", path, 0) for path in ("/opt/gone.so", "/opt/nvidia/libnvidia-ml.so.1")]
    host.write("etc/ld.so.cache", encode_new_cache(rows))
    assert find_library(host.root) == real


def test_damaged_cache_is_as_good_as_none(host: HostTree) -> None:
    """A broken cache means that there is no such library, not an error."""
    host.write("etc/ld.so.cache", b"garbage")
    assert find_library(host.root) is None


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("libnvidia-ml.so.580.65.06", "580.65.06"),
        ("libnvidia-ml.so.570.26", "570.26"),
        ("libnvidia-ml.so.1", ""),
        ("libnvidia-ml.so", ""),
        ("libnvidia-ml.so.580.65.06.bak", ""),
    ],
)
def test_version_is_read_from_the_file_name(name: str, version: str) -> None:
    """Two or three groups of digits at the end are a version; the ABI number is none."""
    assert parse_library_version(Path("/usr/lib64") / name) == version


def test_upgraded_library_shows_in_the_link_beside_the_loaded_one(host: HostTree) -> None:
    """A loaded library whose file was replaced gives the version of its successor; without a link, its own."""
    loaded = host.install_library(version="580.65.06")
    assert read_version_at(loaded, host.root) == "580.65.06"
    link = loaded.with_name("libnvidia-ml.so.1")
    link.unlink()
    assert read_version_at(loaded, host.root) == "580.65.06"
    newer = host.write("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.590.1", "ELF")
    link.symlink_to(newer.name)
    loaded.unlink()
    assert read_version_at(loaded, host.root) == "590.1"
    assert read_version_at(loaded, host.root / "elsewhere") == "590.1"


def test_no_library_has_no_version() -> None:
    assert parse_library_version(None) == ""


def build_roots(host: HostTree) -> DriverRoots:
    return DriverRoots(host=host.root, driver=host.root, dev=host.root)


def test_ordinary_host_has_no_platform_problem(host: HostTree) -> None:
    """A Linux host is what the agent is for."""
    assert read_platform_problem(build_roots(host)) == ""


@pytest.mark.parametrize("path", ["usr/lib/wsl/lib/libnvidia-ml.so.1", "dev/dxg"])
def test_wsl_is_recognised(host: HostTree, path: str) -> None:
    """Either trace of WSL is enough."""
    host.write(path, "x")
    assert "WSL" in read_platform_problem(build_roots(host))


@pytest.mark.parametrize(("path", "content"), [("etc/nv_tegra_release", "R36"), ("sys/devices/soc0/family", "Tegra")])
def test_tegra_is_a_problem_only_without_nvml(host: HostTree, path: str, content: str) -> None:
    """A Tegra board with a discrete GPU and its NVML is served."""
    host.write(path, content)
    assert "Tegra" in read_platform_problem(build_roots(host))
    host.install_library()
    assert read_platform_problem(build_roots(host)) == ""
