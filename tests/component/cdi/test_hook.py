"""The hook program, compiled and run as a runtime would, on a made-up container root."""

import json
import platform
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.component.cdi.bundle import Bundle, list_cached, needs_compiler, needs_root
from tests.support.files.driver_tree import encode_library

pytestmark = [pytest.mark.slow, needs_compiler]


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
def test_a_host_without_ldconfig_is_told(bundle: Bundle, unshared: list[str]) -> None:
    """Each container would fail there."""
    shutil.copy(bundle.program, bundle.root / "hook")
    (bundle.root / "proc").mkdir()
    command = f"mount --rbind /proc '{bundle.root}/proc' && exec chroot '{bundle.root}' /hook self-check"
    done = subprocess.run([*unshared, command], capture_output=True, text=True, check=False)
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
    hook = f"'{bundle.program}' disable-device-node-modification --params='{params}'"
    command = f"{hook} && cat '{inside}' && ! echo x >> '{inside}'"
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
