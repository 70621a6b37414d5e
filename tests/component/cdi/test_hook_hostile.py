"""Images and volumes that mean harm: the hook writes on the root's own file system or nowhere, and waits for nobody."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.component.cdi.bundle import Bundle, list_cached, needs_compiler, needs_root
from tests.component.cdi.hostile import INSIDE_SETTINGS, LIBRARY, HostileRoot, look, restore
from tests.support.files.driver_tree import encode_library

NEEDED = ("runc", "busybox", "unshare")
QUICK, ALL, SECONDS = 8, 200, 20
pytestmark = [pytest.mark.slow, needs_compiler, needs_root, pytest.mark.may_block("nothing here runs on an event loop")]
needs_runc = pytest.mark.skipif(
    any(shutil.which(name) is None for name in NEEDED),
    reason=f"wants {', '.join(NEEDED)}: apt-get install runc busybox",
)
UPDATE = ("update-ldcache", "--folder=/opt/nv")


def run_with_mounts(bundle: Bundle, script: str, *arguments: str, trace: str = "") -> tuple[int, str]:
    """The hook after `script`, whose mounts are gone with it."""
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("needs mount namespaces, which this machine forbids")
    command = f"set -e; mount --bind rootfs rootfs; {script}; exec {trace} '{bundle.program}' {' '.join(arguments)}"
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", command],
        cwd=bundle.directory,
        input=bundle.state,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return done.returncode, done.stderr


@pytest.fixture
def libraries(bundle: Bundle) -> Bundle:
    """A driver's library in the root."""
    (bundle.root / "opt/nv").mkdir(parents=True)
    (bundle.root / "opt/nv/libcuda.so.1").write_bytes(encode_library("libcuda.so.1"))
    return bundle


@pytest.mark.parametrize("name", ["etc/ld.so.conf.d/00-nodeagent.conf", "etc/ld.so.conf"])
def test_no_file_is_written_through_a_link(libraries: Bundle, name: str) -> None:
    """A new file takes the place of the link; what it led to is a setting of the host's kernel in a container."""
    victim = libraries.root / "victim"
    victim.write_text("/opt/app\n")
    link = libraries.root / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to("/victim")
    assert libraries.run(*UPDATE) == (0, "")
    assert victim.read_text() == "/opt/app\n"
    assert not link.is_symlink()
    assert "libcuda.so.1" in list_cached(libraries.root)


def test_another_name_of_a_file_is_not_written_to(libraries: Bundle) -> None:
    """Layers share their files by hard links."""
    shared = libraries.directory / "layer"
    shared.write_text("/opt/app\n")
    (libraries.root / "etc/ld.so.conf").hardlink_to(shared)
    assert libraries.run(*UPDATE) == (0, "")
    assert shared.read_text() == "/opt/app\n"


@pytest.mark.parametrize("trace", ["", "strace -f -qq -o /dev/null -e inject=mount_setattr:error=ENOSYS"])
@pytest.mark.parametrize("place", ["etc/ld.so.conf.d", "etc/ld.so.conf"])
def test_a_volume_over_the_configuration_costs_no_library(libraries: Bundle, place: str, trace: str) -> None:
    """The linker's cache is made all the same, and the volume stays as it is: on kernels before 5.12, too."""
    if trace and shutil.which("strace") is None:
        pytest.skip("wants strace: apt-get install strace")
    volume = libraries.directory / "a volume"
    volume.mkdir()
    (volume / LIBRARY).write_bytes(encode_library("libhostile.so.1"))
    (volume / "app.conf").write_text("/vol\n")
    target = libraries.root / place
    (libraries.root / "vol").mkdir()
    (libraries.root / "etc/ld.so.conf.d").mkdir()
    source = volume
    if place == "etc/ld.so.conf":
        target.touch()
        source = volume / "app.conf"
    else:
        (libraries.root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
    script = f"mount --bind '{volume}' rootfs/vol; mount --bind '{source}' rootfs/{place}"
    code, err = run_with_mounts(libraries, script, *UPDATE, trace=trace)
    assert code == 0, err
    assert sorted(path.name for path in volume.iterdir()) == ["app.conf", LIBRARY]
    assert (volume / "app.conf").read_text() == "/vol\n"
    assert "libcuda.so.1" in list_cached(libraries.root)


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("mount -t tmpfs tmpfs rootfs/etc", UPDATE),
        ("touch rootfs/etc/ld.so.cache; mount --bind config.json rootfs/etc/ld.so.cache", UPDATE),
        ("mount -o remount,bind,ro rootfs", UPDATE),
        ("mount -t tmpfs tmpfs rootfs/opt", ("create-symlinks", "--link=a::/opt/nv/b")),
        ("touch rootfs/opt/b; mount --bind config.json rootfs/opt/b", ("create-symlinks", "--link=a::/opt/b")),
        ("mount -o remount,bind,ro rootfs", ("create-symlinks", "--link=a::/opt/b")),
    ],
)
def test_a_container_starts_without_what_is_not_its_images(
    libraries: Bundle, script: str, arguments: tuple[str, ...]
) -> None:
    """A volume, or a root that is read only: one line says what is missing."""
    config = (libraries.directory / "config.json").read_text()
    code, err = run_with_mounts(libraries, script, *arguments)
    assert (code, "passed over" in err, err.count("\n")) == (0, True, 1)
    assert (libraries.directory / "config.json").read_text() == config


def fill(log: Path) -> None:
    """So that whoever waits to be read there waits for ever."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, suppress(BlockingIOError):
        other.setblocking(False)
        while True:
            other.sendto(b"x", str(log))


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        ("mount -t tmpfs tmpfs rootfs/etc", UPDATE, "/etc/ld.so.cache is on a mount or read only, passed over"),
        ("touch rootfs/etc/nvidia rootfs/dev/nvidia0", ("update-application-profile",), "cannot open etc/nvidia"),
        ("true", ("from-the-future",), "does not know from-the-future, passed over"),
    ],
)
def test_the_hosts_log_has_what_runtimes_do_not_show(
    libraries: Bundle, short_dir: Path, script: str, arguments: tuple[str, ...], said: str
) -> None:
    """A line of a hook that succeeds; and a log that takes none keeps no container waiting."""
    (libraries.root / "dev").mkdir()
    mounts = f"mount -t tmpfs tmpfs /dev; touch /dev/log; mount --bind '{short_dir}/log' /dev/log; {script}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(short_dir / "log"))
        log.setblocking(False)
        code, err = run_with_mounts(libraries, mounts, *arguments)
        assert (code, said in err) == (0, True), err
        line = log.recv(8192).decode()
        assert line.startswith("<28>nodeagent-cdi-hook[")
        assert said in line
        assert arguments == ("from-the-future",) or line.endswith(f"with the root {libraries.root}")
        fill(short_dir / "log")
        assert run_with_mounts(libraries, mounts, *arguments)[0] == 0


def test_what_runtimes_show_is_not_logged_twice(libraries: Bundle, short_dir: Path) -> None:
    """A hook that fails has the runtime tell why."""
    mounts = f"mount -t tmpfs tmpfs /dev; touch /dev/log; mount --bind '{short_dir}/log' /dev/log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(str(short_dir / "log"))
        log.setblocking(False)
        assert run_with_mounts(libraries, mounts, "create-symlinks", "--link=x")[0] == 1
        with pytest.raises(BlockingIOError):
            log.recv(1)


def test_links_of_device_nodes_are_made_where_the_runtime_mounts_dev(libraries: Bundle) -> None:
    """That file system is the container's own; a volume on it is not, nor is the host's."""
    (libraries.root / "dev").mkdir()
    link = "--link=../card0::/dev/dri/by-path/a"
    for mounts in ("mkdir rootfs/dev/dri; mount -t tmpfs tmpfs rootfs/dev/dri", "mount --bind /dev rootfs/dev"):
        code, err = run_with_mounts(libraries, f"mount -t tmpfs tmpfs rootfs/dev; {mounts}", "create-symlinks", link)
        assert (code, "passed over" in err) == (0, True)
    code, err = run_with_mounts(libraries, "mount -t tmpfs tmpfs rootfs/dev", "create-symlinks", link)
    assert (code, err) == (0, "")


def make_circle(root: Path) -> None:
    (root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n" * 2)
    (root / "etc/ld.so.conf.d/app.conf").write_text("include ../ld.so.conf\n" * 2)


def make_many(root: Path) -> None:
    for number in range(8):
        (root / f"etc/ld.so.conf.d/{number}.conf").write_text(f"include /etc/{number + 1}/*.conf\n" * 9)
        (root / f"etc/{number + 1}").symlink_to("ld.so.conf.d")
    (root / "etc/ld.so.conf").write_text("include ld.so.conf.d/*.conf\n")


def make_chain(root: Path) -> None:
    for number in range(40):
        (root / f"etc/{number}").write_text(f"include /etc/{number + 1}\n")
    (root / "etc/40").touch()
    (root / "etc/ld.so.conf.d/app.conf").write_text("include /etc/0\n")


def make_huge(root: Path) -> None:
    path = root / "etc/ld.so.conf.d/app.conf"
    path.touch()
    os.truncate(path, 1 << 40)


def make_pipe(root: Path) -> None:
    os.mkfifo(root / "etc/ld.so.conf.d/app.conf")


def make_pipe_behind_words(root: Path) -> None:
    os.mkfifo(root / "etc/p")
    (root / "etc/ld.so.conf.d/app.conf").write_text("  include\t/none*  /e[a-t]c/? # more\n")


def make_device(root: Path) -> None:
    os.mknod(root / "etc/ld.so.conf.d/app.conf", 0o020666, os.makedev(1, 5))


def make_top_pipe(root: Path) -> None:
    os.mkfifo(root / "etc/ld.so.conf")


def make_top_folder(root: Path) -> None:
    (root / "etc/ld.so.conf").mkdir()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (make_circle, "includes itself"),
        (make_many, "includes"),
        (make_chain, "deeper than 32"),
        (make_huge, "more than 4194304 bytes"),
        (make_pipe, "app.conf, which is no plain file"),
        (make_pipe_behind_words, "/etc/p, which is no plain file"),
        (make_device, "app.conf, which is no plain file"),
        (make_top_pipe, "/etc/ld.so.conf of the image cannot be read, or is no file"),
        (make_top_folder, "/etc/ld.so.conf of the image cannot be read, or is no file"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_would_hold_the_linkers_configurator_is_refused_before(libraries: Bundle, make: object, said: str) -> None:
    """The container's event says which file it is; the program is not even started."""
    assert callable(make)
    (libraries.root / "etc/ld.so.conf.d").mkdir()
    make(libraries.root)
    code, err = libraries.run(*UPDATE, f"--ldconfig={shutil.which('true')}")
    assert (code, said in err, err.count("\n")) == (1, True, 1), err
    assert not (libraries.root / "etc/ld.so.cache").exists()


def test_honest_odd_configuration_is_read_as_before(libraries: Bundle) -> None:
    """A directory among the includes, files that are not there, one file by two ways, and no end of line."""
    (libraries.root / "etc/ld.so.conf.d/more").mkdir(parents=True)
    (libraries.root / "etc/ld.so.conf.d/.hidden").symlink_to("../ld.so.conf")
    (libraries.root / "etc/ld.so.conf.d/gone.conf").symlink_to("/nowhere")
    for name in ("app", "lib"):
        (libraries.root / name).mkdir()
        (libraries.root / name / f"lib{name}.so.1").write_bytes(encode_library(f"lib{name}.so.1"))
    (libraries.root / "etc/one").write_text("/app # ours")
    text = "include ld.so.conf.d/*\nhwcap 0 nosegneg\ninclude /etc/one /etc/on?\nincluded\n/lib"
    (libraries.root / "etc/ld.so.conf").write_text(text)
    assert libraries.run(*UPDATE)[0] == 0
    assert {"libcuda.so.1", "libapp.so.1", "liblib.so.1"} <= set(list_cached(libraries.root))


def hold_against_hostile_root(seed: int, program: Path, place: Path, links: dict[str, str] | None = None) -> bool:
    """Whether the container of that root was started; nothing but the root has changed either way."""
    hostile = HostileRoot(seed, program, place, encode_library("libhostile.so.1"), links)
    before, began = look(hostile.volume), time.monotonic()
    done = hostile.run()
    seconds, after = time.monotonic() - began, look(hostile.volume)
    restore(before)
    assert after == before, done.stderr
    assert seconds < SECONDS, done.stderr
    if done.returncode:
        assert "nodeagent-cdi-hook: " in done.stderr, done.stderr
    else:
        fresh = ["unshare", "--uts", "--ipc", "sh", "-c", f"hostname hostile; cat {' '.join(INSIDE_SETTINGS)}"]
        assert done.stdout == subprocess.run(fresh, capture_output=True, text=True, check=True).stdout
    return done.returncode == 0


@needs_runc
@pytest.mark.parametrize(
    ("name", "target", "starts"),
    [
        ("etc/ld.so.conf.d/00-nodeagent.conf", "/proc/sys/kernel/domainname", True),
        ("etc/ld.so.conf", "/proc/sys/kernel/domainname", False),
        ("etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf", "/proc/sys/kernel/domainname", True),
        ("etc/ld.so.conf.d", "/proc/sys/kernel", True),
        ("etc/ld.so.conf.d", "/vol", True),
        ("etc", "/vol", True),
        ("var/cache/ldconfig", "/proc/1/root{volume}", True),
        ("usr/lib/nv/vdpau", "/proc/1/root{volume}", True),
        ("etc/ld.so.conf.d/app.conf", "/proc/kmsg", True),
        ("usr/lib/nv", "/vol", True),
    ],
)
def test_no_link_leads_the_hook_out_of_the_root(
    program: Path, tmp_path: Path, name: str, target: str, starts: bool
) -> None:
    """The settings of the kernel and the volume stay; where the files of the kernel were to be read nothing starts."""
    assert (
        hold_against_hostile_root(
            0, program, make_place(tmp_path, 0), {name: target.format(volume=tmp_path / "0/volume")}
        )
        is starts
    )


@needs_runc
def test_hostile_roots_change_nothing_but_themselves(program: Path, tmp_path: Path) -> None:
    """Real containers: neither the host's settings, nor the container's, nor a volume, whatever the image has."""
    for seed in range(QUICK):
        hold_against_hostile_root(seed, program, make_place(tmp_path, seed))


@needs_runc
@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, ALL, 25))
def test_all_hostile_roots_change_nothing_but_themselves(program: Path, tmp_path: Path, first: int) -> None:
    """Some start and some are refused, as otherwise the roots would show one way only."""
    started = [
        hold_against_hostile_root(seed, program, make_place(tmp_path, seed)) for seed in range(first, first + 25)
    ]
    assert 0 < sum(started) < len(started)


def make_place(directory: Path, seed: int) -> Path:
    place = directory / str(seed)
    place.mkdir()
    return place
