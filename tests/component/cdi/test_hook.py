"""The hook program, compiled and run as a runtime would, on a made-up container root."""

import json
import os
import platform
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from nodeagent.edge.host import hook_program
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable, HookProgramMissing
from nodeagent.edge.host.hook_program import HookProgram
from nodeagent.edge.host.host_paths import HostPaths
from nodeagent.edge.host.ldcache import parse_library_cache
from nodeagent.kernel.worker_thread import WorkerThread
from tests.support.driver_tree import encode_library

SOURCE = hook_program.BUILT.with_suffix(".c")
COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="the hook is C")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and mounts are root's")
pytestmark = [pytest.mark.slow, needs_compiler]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hook") / "nodeagent-cdi-hook"
    command = [
        "cc",
        "-static",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Wformat-truncation=0",
        "-Werror",
        "-o",
        str(path),
        str(SOURCE),
    ]
    subprocess.run(command, check=True)
    return path


class Bundle:
    """A container that is being created."""

    def __init__(self, program: Path, directory: Path) -> None:
        self.program, self.directory = program, directory
        self.root = directory / "rootfs"
        (self.root / "etc").mkdir(parents=True)
        self.state = json.dumps({"ociVersion": "1.0.2", "x": [{"bundle": "no"}], "bundle": str(directory), "pid": 1})
        config = {"process": {"args": ['a]"b']}, "root": {"readonly": True, "path": "rootfs"}}
        (directory / "config.json").write_text(json.dumps(config))

    def run(self, *arguments: str, state: str | None = None) -> tuple[int, str]:
        text = self.state if state is None else state
        done = subprocess.run(
            [self.program, *arguments], input=text, capture_output=True, text=True, check=False, timeout=30
        )
        return done.returncode, done.stderr


@pytest.fixture
def bundle(program: Path, tmp_path: Path) -> Bundle:
    return Bundle(program, tmp_path)


def test_links_are_made_with_their_directories(bundle: Bundle) -> None:
    """Again it changes nothing; a wrong link and a file in its place are replaced."""
    links = ["--link=libcuda.so.1::/usr/lib/deep/libcuda.so", "--link=../x::/usr/lib/gbm/y.so", "--link=t::/top"]
    (bundle.root / "top").write_text("in the way")
    for _ in range(2):
        assert bundle.run("create-symlinks", *links) == (0, "")
        assert str((bundle.root / "usr/lib/deep/libcuda.so").readlink()) == "libcuda.so.1"
        assert str((bundle.root / "usr/lib/gbm/y.so").readlink()) == "../x"
        assert str((bundle.root / "top").readlink()) == "t"
    assert sorted(path.name for path in (bundle.root / "usr/lib/deep").iterdir()) == ["libcuda.so"]


@pytest.mark.parametrize("lead", ["/", "../../../../../../../.."], ids=["absolute", "upwards"])
def test_no_link_in_the_image_leads_out(bundle: Bundle, lead: str, tmp_path: Path) -> None:
    """A hostile link is followed inside of the container's root only."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (bundle.root / "usr").symlink_to(f"{lead}{outside}")
    assert bundle.run("create-symlinks", "--link=evil::/usr/lib/x.so")[0] == 1
    inside = bundle.root / str(outside).lstrip("/")
    inside.mkdir(parents=True)
    assert bundle.run("create-symlinks", "--link=evil::/usr/lib/x.so") == (0, "")
    assert (inside / "lib/x.so").is_symlink()
    assert list(outside.iterdir()) == []


def list_cached(root: Path) -> dict[str, str]:
    return {library.name: library.path for library in parse_library_cache((root / "etc/ld.so.cache").read_bytes())}


@needs_root
def test_the_cache_lists_the_drivers_libraries(bundle: Bundle) -> None:
    """Libraries in any directory are found by the container's own linker, and nothing is mounted any longer."""
    (bundle.root / "opt/nv").mkdir(parents=True)
    (bundle.root / "opt/nv/libcuda.so.1").write_bytes(encode_library("libcuda.so.1"))
    (bundle.root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    mounts = Path("/proc/self/mountinfo").read_text()
    assert bundle.run("update-ldcache", "--folder=/opt/nv") == (0, "")
    assert list_cached(bundle.root)["libcuda.so.1"] == "/opt/nv/libcuda.so.1"
    assert Path("/proc/self/mountinfo").read_text() == mounts


@needs_root
def test_an_image_without_linker_configuration_gets_one(bundle: Bundle) -> None:
    """Minimal images have no /etc/ld.so.conf."""
    (bundle.root / "opt/nv").mkdir(parents=True)
    (bundle.root / "opt/nv/libcuda.so.1").write_bytes(encode_library("libcuda.so.1"))
    assert bundle.run("update-ldcache", "--folder=/opt/nv") == (0, "")
    assert "libcuda.so.1" in list_cached(bundle.root)


def test_alpine_gets_its_own_file(bundle: Bundle) -> None:
    """The directories that musl searches by default are kept in front."""
    (bundle.root / "etc/alpine-release").write_text("3.20\n")
    assert bundle.run("update-ldcache", "--folder=/opt/nv", "--folder=/opt/w") == (0, "")
    path = bundle.root / f"etc/ld-musl-{platform.machine()}.path"
    assert path.read_text() == "/lib:/usr/local/lib:/usr/lib:/opt/nv:/opt/w:"


@pytest.fixture
def unshared() -> list[str]:
    """Mounts of a test stay in a namespace of its own."""
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip("needs mount namespaces, which this machine forbids or has no `unshare` for")
    return command


@needs_root
def test_device_nodes_are_protected(bundle: Bundle, unshared: list[str]) -> None:
    """The container sees a copy of the parameters that forbids changes; without driver nothing happens."""
    params = bundle.directory / "params"
    params.write_text("ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n")
    inside = bundle.root / "proc/driver/nvidia/params"
    inside.parent.mkdir(parents=True)
    inside.write_text("ModifyDeviceFiles: 1\n")
    command = f"'{bundle.program}' disable-device-node-modification --params='{params}' && cat '{inside}'"
    done = subprocess.run([*unshared, command], input=bundle.state, capture_output=True, text=True, check=True)
    assert done.stdout == params.read_text().replace("ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0")
    assert inside.read_text() == "ModifyDeviceFiles: 1\n"
    missing = f"--params={bundle.directory / 'none'}"
    assert bundle.run("disable-device-node-modification", missing) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "state", "said"),
    [
        ((), "{}", "expected create-symlinks"),
        (("create-symlinks",), "", "names no bundle"),
        (("create-symlinks",), '{"bundle": "/nowhere"}', "cannot open /nowhere/config.json"),
        (("create-symlinks",), '{"root": "/nowhere"}', "container's root /nowhere"),
        (("create-symlinks",), '{"bundle": "a\\nb"}', "has an escape"),
        (("create-symlinks",), '{"bundle": "' + "x" * 5000 + '"}', "too long"),
        (("create-symlinks", "--link=x"), None, "expected TARGET::LINK"),
        (("create-symlinks", "--link=x::/a/.."), None, "names no file"),
        (("create-symlinks", "--folder=x"), None, "unknown argument"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    bundle: Bundle, arguments: tuple[str, ...], state: str | None, said: str
) -> None:
    """The container does not start, and its event says why."""
    code, err = bundle.run(*arguments, state=state)
    assert code == 1
    assert said in err
    assert err.count("\n") == 1


def test_an_unknown_command_keeps_no_container_from_starting(bundle: Bundle) -> None:
    """A specification may be newer than the program."""
    code, err = bundle.run("from-the-future", "--x=y")
    assert code == 0
    assert "passed over" in err


@pytest.mark.parametrize("text", ["{", "[[[", '{"bundle"', '{"bundle": {"a": "b}', '"', '{"a": ]}', "\0" * 10])
def test_no_state_does_harm(bundle: Bundle, text: str) -> None:
    """Whatever the state says, the answer is an exit code."""
    assert bundle.run("create-symlinks", state=text)[0] == 1


def test_it_takes_milliseconds(bundle: Bundle) -> None:
    """Every container waits for it: the best of twenty is far below what a person notices."""
    best = 1.0
    for _ in range(20):
        began = time.perf_counter()
        assert bundle.run("create-symlinks", "--link=a::/usr/lib/b")[0] == 0
        best = min(best, time.perf_counter() - began)
    assert best < 0.5


async def test_the_program_is_put_on_the_host_once(tmp_path: Path) -> None:
    """It is replaced when it differs or is not executable; a package without it says how to build it."""
    built, place = tmp_path / "built", tmp_path / "host/lib/hook"
    built.write_bytes(b"program")
    worker = WorkerThread("hook")
    installer = HookProgram(worker, built=built)
    assert await installer.install(place)
    assert not await installer.install(place)
    assert place.stat().st_mode & 0o777 == 0o755
    place.chmod(0o644)
    assert await installer.install(place)
    assert place.stat().st_mode & 0o777 == 0o755
    with pytest.raises(HookProgramMissing, match="cc -static"):
        await HookProgram(worker, built=tmp_path / "none").install(place)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotWritten, match="create its directory"):
        await installer.install(tmp_path / "file/hook")
    with pytest.raises(FileUnreadable, match="is a directory"):
        await installer.install(tmp_path)
    # From a container, a path of the host's is one below the host's root.
    await HookProgram(worker, built=built, host=HostPaths(tmp_path / "root")).install(Path("/usr/local/hook"))
    assert (tmp_path / "root/usr/local/hook").read_bytes() == b"program"
    worker.close()
