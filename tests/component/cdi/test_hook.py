"""The hook program, compiled and run as a runtime would, on a made-up container root."""

import json
import os
import platform
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.driver.ldcache import parse_library_cache
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable, ProgramMissing, ProgramUnfit
from nodeagent.edge.host.files import host_program
from nodeagent.edge.host.files.host_program import HOOK, HostProgram
from nodeagent.edge.host.machine.host_paths import HostPaths
from tests.support.driver_tree import encode_library
from tests.support.native import HOOK_SOURCE

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
        str(HOOK_SOURCE),
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


COMPAT = "usr/local/cuda/compat"
COMPAT_FILE = "etc/ld.so.conf.d/00-compat-nodeagent.conf"
OWNER = b"NVIDIA Corporation\0"


def encode_compat(note: bytes | None, alignment: int = 4) -> bytes:
    """A library of a forward compatibility package, with the note in which newer ones say what they work with."""
    names = b"\0.note.cuda.fwd_compatibility\0"
    if note is None:
        return encode_library("libcuda.so.1")
    names_at, note_at = 64, 64 + len(names)
    sections_at = note_at + len(note)
    identity = b"\x7fELF\2\1\1" + bytes(9)
    header = identity + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, sections_at, 0, 64, 0, 0, 64, 3, 1)
    rows = [(0, 0, 0), (0, names_at, len(names)), (1, note_at, len(note))]
    sections = b"".join(
        struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, at, size, 0, 0, alignment, 0) for name, at, size in rows
    )
    return header + names + note + sections


def encode_note(text: str, owner: bytes = OWNER, alignment: int = 4) -> bytes:
    return struct.pack("<III", len(owner), len(text), 1) + owner + bytes(-len(owner) % alignment) + text.encode()


DRIVERS = encode_note('{"Format": 1, "CUDA Version": "13.0", "Driver": [535, "550", 570], "Device": []}')


@pytest.mark.parametrize(
    ("version", "driver", "note", "used"),
    [
        ("580.65.06", "570.172.08", None, True),
        ("580.65.06", "580.15", None, False),
        ("550.54.15", "570.172.08", None, False),
        ("580.65.06", "570.172.08", DRIVERS, True),
        ("580.65.06", "550.163.01", DRIVERS, True),
        ("580.65.06", "560.35.03", DRIVERS, False),
        ("570.26", "570.172.08", DRIVERS, False),
        ("570.211.01", "570.172.08", DRIVERS, True),
        ("580.65.06", "570.172.08", encode_note('{"Driver": "570"}'), False),
        ("580.65.06", "570.172.08", encode_note('{"Driver": [570'), True),
        ("580.65.06", "570.172.08", encode_note('{"Driver": [535'), False),
        ("580.65.06", "570.172.08", encode_note('{"Driver": [570]}', b"Somebody\0"), False),
        ("580.65.06", "570.172.08", struct.pack("<III", 19, 0xFFFFFFFF, 1) + OWNER, False),
    ],
)
def test_a_newer_cuda_of_the_image_comes_first_where_it_may(
    bundle: Bundle, version: str, driver: str, note: bytes | None, used: bool
) -> None:
    """By its note, or where it has none by its major version; what an earlier start left is taken back."""
    library = bundle.root / COMPAT / f"libcuda.so.{version}"
    library.parent.mkdir(parents=True)
    library.write_bytes(encode_compat(note))
    configuration = bundle.root / COMPAT_FILE
    for _ in range(2):
        assert bundle.run("enable-cuda-compat", f"--host-driver-version={driver}") == (0, "")
        assert configuration.exists() is used
        configuration.parent.mkdir(parents=True, exist_ok=True)
        configuration.write_text("/from/before\n")
    assert bundle.run("enable-cuda-compat", f"--host-driver-version={driver}") == (0, "")
    assert not used or configuration.read_text() == f"/{COMPAT}\n"


@pytest.mark.parametrize("alignment", [1, 4, 8])
@pytest.mark.parametrize("driver", ["570.1", "560.1"])
def test_the_note_is_read_by_the_alignment_of_its_section(bundle: Bundle, alignment: int, driver: str) -> None:
    """Its text begins behind the owner's name, filled up to that."""
    (bundle.root / COMPAT).mkdir(parents=True)
    note = encode_note('{"Driver": [570]}', alignment=alignment)
    (bundle.root / COMPAT / "libcuda.so.580.65.06").write_bytes(encode_compat(note, alignment))
    assert bundle.run("enable-cuda-compat", f"--host-driver-version={driver}") == (0, "")
    assert (bundle.root / COMPAT_FILE).exists() is (driver == "570.1")


def test_an_image_with_two_or_with_nothing_of_the_kind_is_left_alone(bundle: Bundle) -> None:
    """Which one would be meant is not known."""
    ask = ("enable-cuda-compat", "--host-driver-version=535.1.2")
    assert bundle.run(*ask) == (0, "")
    (bundle.root / COMPAT).mkdir(parents=True)
    for name in ("libcuda.so.580.65.06", "libcuda.so.570.26", "libcuda.so.1"):
        (bundle.root / COMPAT / name).write_bytes(encode_compat(None))
    assert bundle.run(*ask) == (0, "")
    assert not (bundle.root / "etc/ld.so.conf.d").exists()
    (bundle.root / COMPAT / "libcuda.so.570.26").unlink()
    assert bundle.run(*ask) == (0, "")
    assert (bundle.root / COMPAT_FILE).exists()


def test_no_library_of_an_image_does_harm(bundle: Bundle) -> None:
    """Cut off anywhere, or with any number changed: it is used or not, and the container starts."""
    library = bundle.root / COMPAT / "libcuda.so.580.65.06"
    library.parent.mkdir(parents=True)
    whole = encode_compat(DRIVERS)
    cut = [whole[:length] for length in range(0, len(whole), 13)]
    at = (*range(40, 64, 2), *range(len(whole) - 128, len(whole), 8))
    for content in [*cut, *(whole[:each] + b"\xff\xff\xff\xff" + whole[each + 4 :] for each in at)]:
        library.write_bytes(content)
        assert bundle.run("enable-cuda-compat", "--host-driver-version=570.1") == (0, "")
    library.unlink()
    os.mkfifo(library)
    assert bundle.run("enable-cuda-compat", "--host-driver-version=570.1") == (0, "")


@needs_root
def test_the_cache_has_the_images_newer_cuda_in_front(bundle: Bundle) -> None:
    """The first entry of a name is what the dynamic linker takes."""
    for directory, name in ((COMPAT, "libcuda.so.580.65.06"), ("opt/nv", "libcuda.so.570.26")):
        (bundle.root / directory).mkdir(parents=True)
        (bundle.root / directory / name).write_bytes(encode_library("libcuda.so.1"))
    assert bundle.run("enable-cuda-compat", "--host-driver-version=570.26") == (0, "")
    assert bundle.run("update-ldcache", "--folder=/opt/nv") == (0, "")
    cache = parse_library_cache((bundle.root / "etc/ld.so.cache").read_bytes())
    paths = [library.path for library in cache if library.name == "libcuda.so.1"]
    assert paths == [f"/{COMPAT}/libcuda.so.1", "/opt/nv/libcuda.so.1"]


def test_egl_is_told_which_gpus_there_are(bundle: Bundle) -> None:
    """A bit for each node; without any there is nothing to tell."""
    profile = bundle.root / "etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"
    assert bundle.run("update-application-profile") == (0, "")
    assert not profile.exists()
    (bundle.root / "dev").mkdir()
    for name in ("nvidia0", "nvidia5", "nvidia63", "nvidia64", "nvidia", "nvidiactl", "nvidia-uvm", "null"):
        (bundle.root / "dev" / name).touch()
    for _ in range(2):
        assert bundle.run("update-application-profile") == (0, "")
    assert '"EGLVisibleDGPUDevices", 0x8000000000000021]' in profile.read_text()
    assert json.loads(profile.read_text().replace("0x8000000000000021", "1"))["profiles"][0]["name"] == "_container_"
    assert profile.stat().st_mode & 0o777 == 0o444


def test_a_container_starts_without_a_profile_that_cannot_be_written(bundle: Bundle) -> None:
    """Such as one whose /etc/nvidia is a mount that is read only."""
    (bundle.root / "dev").mkdir()
    (bundle.root / "dev/nvidia0").touch()
    (bundle.root / "etc/nvidia").touch()
    code, err = bundle.run("update-application-profile")
    assert (code, "cannot" in err) == (0, True)


def test_it_checks_what_it_needs_of_the_host(bundle: Bundle) -> None:
    """Without a container and without a state."""
    assert bundle.run("self-check", state="") == (0, "")


@needs_root
def test_a_host_without_ldconfig_is_told(bundle: Bundle) -> None:
    """Each container would fail there."""
    shutil.copy(bundle.program, bundle.root / "hook")
    done = subprocess.run(["chroot", bundle.root, "/hook", "self-check"], capture_output=True, text=True, check=False)
    assert (done.returncode, "the host has no ldconfig" in done.stderr) == (1, True)


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
        (("enable-cuda-compat",), None, "expected --host-driver-version"),
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
    installer = HostProgram(worker, replace(HOOK, built=built))
    assert await installer.install(place)
    assert not await installer.install(place)
    assert place.stat().st_mode & 0o777 == 0o755
    place.chmod(0o644)
    assert await installer.install(place)
    assert place.stat().st_mode & 0o777 == 0o755
    with pytest.raises(ProgramMissing, match="make native"):
        await HostProgram(worker, replace(HOOK, built=tmp_path / "none")).install(place)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotWritten, match="create its directory"):
        await installer.install(tmp_path / "file/hook")
    with pytest.raises(FileUnreadable, match="is a directory"):
        await installer.install(tmp_path)
    # From a container, a path of the host's is one below the host's root.
    await HostProgram(worker, replace(HOOK, built=built), host=HostPaths(tmp_path / "root")).install(
        Path("/usr/local/hook")
    )
    assert (tmp_path / "root/usr/local/hook").read_bytes() == b"program"
    worker.close()


SCRIPT = """#!/bin/sh
echo run >> {log}
[ "$1" = self-check ] && {outcome}
"""


@pytest.fixture
def worker() -> Iterator[WorkerThread]:
    worker = WorkerThread("hook")
    yield worker
    worker.close()


async def test_a_program_is_tried_once_as_long_as_it_is_the_same(worker: WorkerThread, tmp_path: Path) -> None:
    """What ran is taken for good; another file in its place is tried again, and so is what failed."""
    path, log = tmp_path / "hook", tmp_path / "log"
    installer = HostProgram(worker, environment={})
    path.write_text(SCRIPT.format(log=log, outcome="exit 0"))
    path.chmod(0o755)
    for _ in range(3):
        await installer.check(path)
    assert log.read_text() == "run\n"
    path.unlink()
    path.write_text(SCRIPT.format(log=log, outcome="{ echo no ldconfig >&2; exit 1; }"))
    path.chmod(0o755)
    for _ in range(2):
        with pytest.raises(ProgramUnfit, match=f"{path} cannot be shown to run on the host: no ldconfig"):
            await installer.check(path)
    assert log.read_text() == "run\nrun\nrun\n"


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"\x7fELF" + bytes(60), 0o755, "exec format error"),
        (b"#!/bin/sh\n", 0o644, "permission denied"),
        (b"#!/bin/sh\nexit 7\n", 0o755, "it ended with 7"),
        (None, 0, "it is not there"),
    ],
)
async def test_what_does_not_run_here_says_why(
    worker: WorkerThread, tmp_path: Path, content: bytes | None, mode: int, said: str
) -> None:
    """Another processor's program, one on a file system without execution, one that fails, none."""
    path = tmp_path / "hook"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(ProgramUnfit, match=said):
        await HostProgram(worker, environment={}).check(path)


async def test_a_program_that_does_not_end_is_given_up(
    worker: WorkerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hung file system under it must not hang the agent."""
    monkeypatch.setattr(host_program, "_CHECK_SECONDS", 0.05)
    path = tmp_path / "hook"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o755)
    with pytest.raises(ProgramUnfit, match="did not end"):
        await HostProgram(worker, environment={}).check(path)


async def test_a_pod_that_does_not_see_the_host_cannot_know(worker: WorkerThread, program: Path) -> None:
    """What runs in its own image says nothing of the host."""
    with pytest.raises(ProgramUnfit, match="does not see the host"):
        await HostProgram(worker, environment={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).check(program)


@needs_root
async def test_it_is_tried_in_the_hosts_root(worker: WorkerThread, program: Path, tmp_path: Path) -> None:
    """By the path that the container runtime will use: without the host's ldconfig it is of no use, with it it is."""
    root, path = tmp_path / "root", Path("/var/lib/nodeagent/hook")
    installer = HostProgram(
        worker, replace(HOOK, built=program), host=HostPaths(root), environment={"KUBERNETES_SERVICE_HOST": "x"}
    )
    await installer.install(path)
    with pytest.raises(ProgramUnfit, match="the host has no ldconfig"):
        await installer.check(path)
    (root / "sbin").mkdir()
    (root / "sbin/ldconfig").touch()
    await installer.check(path)
    installer.check_nowait(path)


async def test_a_directory_of_the_same_name_is_written_by_its_name(worker: WorkerThread, tmp_path: Path) -> None:
    """A pod has the state directory of the host where the host has it, and may write there, not elsewhere."""
    built, host, shared = tmp_path / "built", tmp_path / "host", tmp_path / "state"
    built.write_bytes(b"program")
    shared.mkdir()
    installer = HostProgram(worker, replace(HOOK, built=built), host=HostPaths(host), shared=shared)
    assert await installer.install(shared / "hook")
    assert not await installer.install(shared / "hook")
    assert (shared / "hook").read_bytes() == b"program"
    assert not host.exists()
