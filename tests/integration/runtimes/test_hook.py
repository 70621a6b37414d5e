"""The hook program in real containers, by containerd and by Podman, with images of glibc and of musl.

The driver lies in a directory that no dynamic linker searches by itself, so that a program which loads it proves the
links and the cache. What the driver's kernel part would show is put there by another hook, before ours.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.edge.host.driver.ldcache import parse_library_cache
from tests.integration.runtimes.support import (
    PATIENCE_SECONDS,
    VERSION,
    built_hook,
    find_programs,
    generate,
    make_driver,
    make_root,
    run,
    run_container,
)

DIRECTORY = "/usr/lib64"
PARAMS = "ModifyDeviceFiles: 1\nDeviceFileUID: 0\n"
COMMANDS = [
    "create-symlinks",
    "enable-cuda-compat",
    "update-ldcache",
    "disable-device-node-modification",
    "update-application-profile",
]
MUSL_PATH = "etc/ld-musl-x86_64.path"
LOOK = (
    "set -e; /probe; echo link: $(readlink {directory}/libcuda.so.1); echo params: $(cat /proc/driver/nvidia/params);"
    " (echo x >/proc/driver/nvidia/params) 2>&1 || true"
).format
DRAWER = Path(__file__).parent / "drawer.c"
GROUP = 4711
ADDRESS = "0000:1b:00.0"
"""Of the first of the made-up GPUs."""
NEWER_CUDA = "int cuDriverGetVersion(int *version) { *version = 13000; return 0; }\n"
PODMAN = """
set -e
mount -t tmpfs tmpfs /var/run/cdi
cp {spec} /var/run/cdi/
exec podman --root {place}/root --runroot {place}/run --runtime runc --cgroup-manager cgroupfs run --rm --network none \
    --security-opt seccomp=unconfined --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
    --device nvidia.com/gpu=0 {flags} --rootfs {image} /bin/sh -c '{script}'
"""


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


def install_hook(place: Path, program: Path) -> tuple[str, ...]:
    """The program where the settings say; nobody says that it is to be used."""
    installed = place / "hook/nodeagent-cdi-hook"
    installed.parent.mkdir()
    shutil.copy(program, installed)
    return (f"cdi.hook_dir={installed.parent}",)


def make_spec(place: Path, program: Path, image: Path) -> Path:
    """The agent's own specification, with a driver's parameters made up before its hooks run."""
    output = place / "nvidia.json"
    generate(make_driver(place / "driver", DIRECTORY.lstrip("/")), output, *install_hook(place, program))
    (place / "params").write_text(PARAMS)
    document: dict[str, Any] = json.loads(output.read_text())
    hooks = document["containerEdits"]["hooks"]
    assert [hook["args"][1] for hook in hooks] == COMMANDS
    hooks[COMMANDS.index("disable-device-node-modification")]["args"].append(f"--params={place}/params")
    inside = f"{image}/proc/driver"
    made_up = f"mount -t tmpfs tmpfs {inside}; mkdir {inside}/nvidia; cp {place}/params {inside}/nvidia/params"
    hooks.insert(0, {"hookName": "createContainer", "path": "/bin/sh", "args": ["sh", "-c", f"set -e; {made_up}"]})
    output.write_text(json.dumps(document))
    return output


def run_containerd(place: Path, spec: Path, image: Path, script: str) -> tuple[int, str]:
    programs = find_programs()
    assert programs is not None
    return run_container(programs, place / "c", spec, image, ["nvidia.com/gpu=0"], ("/bin/sh", "-c", script))


def run_podman(place: Path, spec: Path, image: Path, script: str, *flags: str) -> tuple[int, str]:
    Path("/var/run/cdi").mkdir(exist_ok=True)
    text = PODMAN.format(spec=spec, place=place, image=image, script=script, flags=" ".join(flags))
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    return done.returncode, done.stdout + done.stderr


RUNTIMES = [run_containerd, *([run_podman] if shutil.which("podman") else [])]


@pytest.mark.parametrize("compiler", ["cc", "musl-gcc"])
@pytest.mark.parametrize("start", RUNTIMES, ids=lambda start: start.__name__)
def test_the_hook_makes_the_driver_usable_and_protects_its_nodes(
    short_dir: Path, program: Path, compiler: str, start: Callable[[Path, Path, Path, str], tuple[int, str]]
) -> None:
    """Links by every name, a cache or a path that the image's own linker reads, and parameters that forbid changes."""
    image = make_image(short_dir / "image", compiler)
    spec = make_spec(short_dir, program, image)
    code, said = start(short_dir, spec, image, LOOK(directory=DIRECTORY))
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


def test_without_the_hook_such_a_driver_is_not_found(short_dir: Path, program: Path) -> None:
    """The scenario above would notice a hook that does nothing."""
    image = make_image(short_dir / "image", "cc")
    spec = make_spec(short_dir, program, image)
    document = json.loads(spec.read_text())
    del document["containerEdits"]["hooks"][1:]
    spec.write_text(json.dumps(document))
    code, said = run_containerd(short_dir, spec, image, "/probe")
    assert code != 0
    assert "libcuda.so.1: cannot open shared object file" in said


def test_a_program_that_asks_the_linker_cache_finds_libcuda(short_dir: Path, program: Path) -> None:
    """As Triton does; with the image's own `ldconfig -p`. Without the hook the same program is told by a variable."""
    image = make_image(short_dir / "image", "cc")
    (image / "sbin").mkdir()
    shutil.copy("/sbin/ldconfig", image / "sbin/ldconfig")
    ask = "/sbin/ldconfig -p; echo told:[$TRITON_LIBCUDA_PATH]"
    code, said = run_containerd(short_dir, make_spec(short_dir, program, image), image, ask)
    assert (code, f"libcuda.so.1 (libc6,x86-64) => {DIRECTORY}/libcuda.so.1" in said) == (0, True), said
    assert "told:[]\n" in said

    (short_dir / "without").mkdir()
    other = make_image(short_dir / "without/image", "cc")
    shutil.copytree(image / "sbin", other / "sbin")
    spec = short_dir / "without/nvidia.json"
    generate(short_dir / "driver", spec, "cdi.hooks=none")
    _, said = run_containerd(short_dir / "without", spec, other, ask)
    assert ("libcuda.so.1" not in said.partition("told:")[0], f"told:[{DIRECTORY}]\n" in said) == (True, True), said


@pytest.mark.parametrize(("version", "answer"), [("999.1", 13000), ("500.1", 12080)])
def test_an_image_with_a_newer_cuda_uses_it(short_dir: Path, program: Path, version: str, answer: int) -> None:
    """Its forward compatibility package comes first where it is newer than the host's driver, and only there."""
    image = make_image(short_dir / "image", "cc")
    compat = image / "usr/local/cuda/compat"
    compat.mkdir(parents=True)
    (short_dir / "newer.c").write_text(NEWER_CUDA)
    library = compat / f"libcuda.so.{version}"
    run("cc", "-shared", "-nostdlib", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, short_dir / "newer.c")
    code, said = run_containerd(short_dir, make_spec(short_dir, program, image), image, "/probe")
    assert (code, f"version: {answer}" in said) == (0, True), said


@pytest.mark.parametrize(("groups", "answer"), [("always", "opened"), ("never", "Permission denied")])
def test_a_program_that_drops_root_still_draws(short_dir: Path, program: Path, groups: str, answer: str) -> None:
    """It keeps the group of the node, which is also found by the GPU's short_dir on the bus."""
    image = make_image(short_dir / "image", "cc")
    run("cc", "-static", "-o", image / "drawer", DRAWER)
    driver = make_driver(short_dir / "driver", DIRECTORY.lstrip("/"))
    render = driver / "dev/dri/renderD128"
    render.parent.mkdir()
    os.mknod(render, 0o20660, os.makedev(1, 3))
    render.chmod(0o660)
    os.chown(render, 0, GROUP)
    (short_dir / f"sys/bus/pci/devices/{ADDRESS}/drm/renderD128").mkdir(parents=True)
    spec = short_dir / "nvidia.json"
    settings = (*install_hook(short_dir, program), f"node.sys_dir={short_dir}/sys", f"cdi.device_groups={groups}")
    generate(driver, spec, *settings)
    names = ("renderD128", f"by-path/pci-{ADDRESS}-render")
    script = "; ".join(f"/drawer /dev/dri/{name}" for name in names)
    code, said = run_containerd(short_dir, spec, image, script)
    assert (code, said.count(f"user 1000: {answer}\n")) == (0, 2), said
    if run_podman in RUNTIMES and groups == "never":
        # Whoever reads an older format may say the group: it is that of the node in the container too.
        code, said = run_podman(short_dir, spec, image, script, f"--group-add={GROUP}")
        assert (code, said.count("user 1000: opened\n")) == (0, 2), said
