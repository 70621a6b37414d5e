"""Our specification, read by a Podman as old as long-lived distributions ship it.

Podman is no requirement of these scenarios: where it is not installed, there is nothing here to run. It runs containers
by runc, which is one: crun, which Debian's Podman prefers, refuses machines with both versions of control groups.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.runtimes.support import PATIENCE_SECONDS, generate, make_driver, make_root

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
COMPILERS = [name for name in ("cc", "musl-gcc") if shutil.which(name)]
SCRIPT = """
set -e
mount -t tmpfs tmpfs /var/run/cdi
cp {place}/nvidia.json /var/run/cdi/
exec podman --root {place}/root --runroot {place}/run --runtime runc --cgroup-manager cgroupfs run --rm --network none \
    --security-opt seccomp=unconfined --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
    --device nvidia.com/gpu=1 --rootfs {place}/image /probe
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="na") as directory:
        yield Path(directory)


if shutil.which("podman"):

    @pytest.mark.parametrize("compiler", COMPILERS)
    def test_podman_gives_a_gpu_by_its_public_name(place: Path, compiler: str) -> None:
        """The file is written at boot by the agent, and `podman run --device nvidia.com/gpu=1` just works."""
        generate(make_driver(place / "driver"), place / "nvidia.json")
        make_root(place / "image", compiler)
        Path("/var/run/cdi").mkdir(exist_ok=True)
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "bash", "-c", SCRIPT.format(place=place)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert "version: 12080" in lines
        assert sorted(line for line in lines if line.startswith("node:")) == [
            "node: nvidia-uvm",
            "node: nvidia1",
            "node: nvidiactl",
        ]
