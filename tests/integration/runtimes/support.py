"""A made-up driver whose library really loads, container roots of two C libraries, and a containerd to run them."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodeagent.edge.host.files.host_program import BUILT, HOOK
from tests.integration.cluster.layout import CHECKOUT
from tests.integration.cluster.making.build import find_binaries, read_plan
from tests.integration.cluster.versions import CONTAINERD, RELEASES
from tests.support.programs.agent_process import running_agent

PROBE = Path(__file__).parent / "probe.c"
LIBRARY = "int cuDriverGetVersion(int *version) { *version = 12080; return 0; }\n"
VERSION = "570.172.08"
"""What the made-up GPUs of `generate` say of their driver."""
NODES = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")
PATIENCE_SECONDS = 120


def find_programs() -> str | None:
    """The directory with containerd, its shim and ctr: built for the cluster of these tests, or installed."""
    built = find_binaries(read_plan(RELEASES / f"containerd-{CONTAINERD}")) if shutil.which("go") else None
    installed = shutil.which("containerd")
    return str(built) if built else str(Path(installed).parent) if installed else None


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """The output of a program that must succeed."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, f"{command[0]}: {done.stderr}"
    return done.stdout


def make_driver(root: Path, directory: str = "usr/lib/x86_64-linux-gnu") -> Path:
    """A driver root: one library that answers, and nodes with the numbers of /dev/null."""
    libraries, dev = root / directory, root / "dev"
    libraries.mkdir(parents=True)
    dev.mkdir()
    source = root / "library.c"
    source.write_text(LIBRARY)
    real = libraries / f"libcuda.so.{VERSION}"
    run("cc", "-shared", "-nostdlib", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", real, source)
    (libraries / "libcuda.so.1").symlink_to(real.name)
    for name in NODES:
        os.mknod(dev / name, 0o20666, os.makedev(1, 3))
    return root


@contextmanager
def built_hook() -> Iterator[Path]:
    """The hook program where the package looks for it."""
    with built() as directory:
        yield directory / HOOK.built.name


@contextmanager
def built() -> Iterator[Path]:
    """The programs of this machine where the package looks for them; those a checkout had not are gone afterwards.

    A wheel would take it along, and another test weighs wheels.
    """
    there = set(BUILT.iterdir()) if BUILT.is_dir() else set()
    run("make", "--no-print-directory", "-C", "nodeagent/native", f"MACHINES={BUILT.name}", cwd=CHECKOUT)
    try:
        yield BUILT
    finally:
        for path in set(BUILT.iterdir()) - there:
            path.unlink()


def keep_shim(place: Path, driver: Path) -> Path:
    """The runtime shim and what it looks up, as an agent has put them there that runs no longer."""
    program = place / "lib/nodeagent-oci-shim"
    table = program.parent / "shim/table"
    words = [f"driver.root={driver}", "gpus.source=simulated:dgx-h100", f"shim.dir={program.parent}"]
    sets = [word for each in (*words, "runtime.shim=true") for word in ("--set", each)]
    with built(), running_agent(place, *sets) as agent:
        agent.wait_until("/api/v1/state", lambda _: table.exists(), f"{table} is not there")
    return program


def make_root(root: Path, compiler: str) -> Path:
    """A container root with the probe and nothing but what it is linked against."""
    for name in ("proc", "dev", "sys", "etc", "tmp"):
        (root / name).mkdir(parents=True)
    run(compiler, "-o", root / "probe", PROBE)
    loader = run("sh", "-c", f"readelf -l '{root}/probe' | sed -n 's/.*interpreter: \\(.*\\)]/\\1/p'").strip()
    for path in (loader, *(["/lib/x86_64-linux-gnu/libc.so.6"] if "musl" not in compiler else [])):
        (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path.lstrip("/"))
    return root


def generate(driver: Path, output: Path, *settings: str) -> None:
    """The specification of this driver, as the command line writes it."""
    flags = ["--gpus", "simulated:dgx-h100", "-o", str(output)]
    # An agent of this machine may have put its hook where the settings look for the hook unless they are told.
    own = (f"driver.root={driver}", f"cdi.hook_dir={driver}/hooks")
    flags += [word for setting in (*own, *settings) for word in ("--set", setting)]
    done = subprocess.run([sys.executable, "-m", "nodeagent", "cdi", "generate", *flags], check=False, timeout=60)
    # Six of the eight made-up GPUs have no node and are left out, which is exit code 1.
    assert done.returncode == 1


SCRIPT = """
set -e
mount -t tmpfs tmpfs /var/run/cdi
cp {spec} /var/run/cdi/
containerd -c {place}/config.toml > {place}/log 2>&1 &
daemon=$!
trap 'kill $daemon; wait $daemon' EXIT
for attempt in $(seq 100); do ctr -a {place}/s version > {place}/version 2>&1 && break; sleep 0.1; done
ctr -a {place}/s run --rm --rootfs {flags} {root} probe {command}
"""


def run_container(
    programs: str,
    place: Path,
    spec: Path,
    root: Path,
    devices: Sequence[str],
    command: Sequence[str] = ("/probe",),
    *,
    more: Sequence[str] = (),
) -> tuple[int, str]:
    """Run the probe, or another program, in a real container with these devices, by a containerd that lives as long."""
    place.mkdir()
    (place / "config.toml").write_text(
        f'version = 3\nroot = "{place}/root"\nstate = "{place}/state"\n[grpc]\naddress = "{place}/s"\n'
        'disabled_plugins = ["io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images"]\n'
    )
    Path("/var/run/cdi").mkdir(exist_ok=True)
    flags = shlex.join([*(word for device in devices for word in ("--device", device)), *more])
    script = SCRIPT.format(place=place, spec=spec, root=root, flags=flags, command=shlex.join(command))
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
    )
    return done.returncode, done.stdout + done.stderr
