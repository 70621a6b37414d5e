"""The hook program in real containers, by containerd and by Podman, with images of glibc and of musl.

The driver lies in a directory that no dynamic linker searches by itself, so that a program which loads it proves the
links and the cache. What the driver's kernel part would show is put there by another hook, before ours.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.edge.host.ldcache import parse_library_cache
from tests.integration.runtimes.support import (
    PATIENCE_SECONDS,
    VERSION,
    built_hook,
    find_programs,
    generate,
    make_driver,
    make_root,
    run_container,
)

DIRECTORY = "/usr/lib64"
PARAMS = "ModifyDeviceFiles: 1\nDeviceFileUID: 0\n"
MUSL_PATH = "etc/ld-musl-x86_64.path"
LOOK = (
    "set -e; /probe; echo link: $(readlink {directory}/libcuda.so.1); echo params: $(cat /proc/driver/nvidia/params);"
    " (echo x >/proc/driver/nvidia/params) 2>&1 || true"
).format
PODMAN = """
set -e
mount -t tmpfs tmpfs /var/run/cdi
cp {spec} /var/run/cdi/
exec podman --root {place}/root --runroot {place}/run --runtime runc --cgroup-manager cgroupfs run --rm --network none \
    --security-opt seccomp=unconfined --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
    --device nvidia.com/gpu=0 --rootfs {image} /bin/sh -c '{script}'
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short name: the address of a socket is limited to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="na") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def program() -> Iterator[Path]:
    """The hook, as it is shipped."""
    with built_hook() as program:
        yield program


def make_image(root: Path, compiler: str) -> Path:
    """A container root with the probe and a shell; one of musl says that it is one."""
    make_root(root, compiler)
    (root / "bin").mkdir(exist_ok=True)
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, root / "bin/busybox")
    for name in ("sh", "cat", "readlink", "echo"):
        (root / "bin" / name).symlink_to("busybox")
    if compiler == "musl-gcc":
        (root / "etc/alpine-release").write_text("3.20\n")
    return root


def make_spec(place: Path, program: Path, image: Path) -> Path:
    """The agent's own specification, with a driver's parameters made up before its hooks run."""
    installed = place / "hook/nodeagent-cdi-hook"
    installed.parent.mkdir()
    shutil.copy(program, installed)
    output = place / "nvidia.json"
    settings = ("cdi.hooks=ldcache", f"cdi.hook_dir={installed.parent}")
    generate(make_driver(place / "driver", DIRECTORY.lstrip("/")), output, *settings)
    (place / "params").write_text(PARAMS)
    document: dict[str, Any] = json.loads(output.read_text())
    hooks = document["containerEdits"]["hooks"]
    assert [hook["args"][1] for hook in hooks] == [
        "create-symlinks",
        "update-ldcache",
        "disable-device-node-modification",
    ]
    hooks[-1]["args"].append(f"--params={place}/params")
    inside = f"{image}/proc/driver"
    made_up = f"mount -t tmpfs tmpfs {inside}; mkdir {inside}/nvidia; cp {place}/params {inside}/nvidia/params"
    hooks.insert(0, {"hookName": "createContainer", "path": "/bin/sh", "args": ["sh", "-c", f"set -e; {made_up}"]})
    output.write_text(json.dumps(document))
    return output


def run_containerd(place: Path, spec: Path, image: Path, script: str) -> tuple[int, str]:
    programs = find_programs()
    assert programs is not None
    return run_container(programs, place / "c", spec, image, ["nvidia.com/gpu=0"], ("/bin/sh", "-c", script))


def run_podman(place: Path, spec: Path, image: Path, script: str) -> tuple[int, str]:
    Path("/var/run/cdi").mkdir(exist_ok=True)
    text = PODMAN.format(spec=spec, place=place, image=image, script=script)
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    return done.returncode, done.stdout + done.stderr


RUNTIMES = [run_containerd, *([run_podman] if shutil.which("podman") else [])]


@pytest.mark.parametrize("compiler", ["cc", "musl-gcc"])
@pytest.mark.parametrize("start", RUNTIMES, ids=lambda start: start.__name__)
def test_the_hook_makes_the_driver_usable_and_protects_its_nodes(
    place: Path, program: Path, compiler: str, start: Callable[[Path, Path, Path, str], tuple[int, str]]
) -> None:
    """Links by every name, a cache or a path that the image's own linker reads, and parameters that forbid changes."""
    image = make_image(place / "image", compiler)
    spec = make_spec(place, program, image)
    code, said = start(place, spec, image, LOOK(directory=DIRECTORY))
    assert code == 0, said
    assert "version: 12080" in said
    assert f"link: libcuda.so.{VERSION}" in said
    assert "params: ModifyDeviceFiles: 0 DeviceFileUID: 0" in said
    assert "can't create /proc/driver/nvidia/params: Read-only file system" in said
    if compiler == "musl-gcc":
        assert (image / MUSL_PATH).read_text() == f"/lib:/usr/local/lib:/usr/lib:{DIRECTORY}:"
    else:
        cached = {each.name: each.path for each in parse_library_cache((image / "etc/ld.so.cache").read_bytes())}
        assert cached["libcuda.so.1"] == f"{DIRECTORY}/libcuda.so.1"


def test_without_the_hook_such_a_driver_is_not_found(place: Path, program: Path) -> None:
    """The scenario above would notice a hook that does nothing."""
    image = make_image(place / "image", "cc")
    spec = make_spec(place, program, image)
    document = json.loads(spec.read_text())
    del document["containerEdits"]["hooks"][1:]
    spec.write_text(json.dumps(document))
    code, said = run_containerd(place, spec, image, "/probe")
    assert code != 0
    assert "libcuda.so.1: cannot open shared object file" in said
