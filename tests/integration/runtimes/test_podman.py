"""Our specification, read by a Podman as old as long-lived distributions ship it.

Podman is no requirement of these scenarios: where it is not installed, there is nothing here to run. It runs containers
by runc, which is one: crun, which Debian's Podman prefers, refuses machines with both versions of control groups.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.plan import Wanted
from nodeagent.components.runtime.plan_podman import plan_podman
from nodeagent.model.runtime import ConfigFile, ConfigTree, RuntimeFlavour, RuntimeKind
from tests.integration.runtimes.support import PATIENCE_SECONDS, generate, keep_shim, make_driver, make_root

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
BY_ENVIRONMENT = """
exec podman --root {place}/root --runroot {place}/run --runtime nvidia --cgroup-manager cgroupfs run --rm \
    --network none --security-opt seccomp=unconfined --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
    -e NVIDIA_VISIBLE_DEVICES=1 --rootfs {place}/image /probe
"""


if shutil.which("podman"):

    @pytest.mark.parametrize("compiler", COMPILERS)
    def test_podman_gives_a_gpu_by_its_public_name(short_dir: Path, compiler: str) -> None:
        """The file is written at boot by the agent, and `podman run --device nvidia.com/gpu=1` just works."""
        generate(make_driver(short_dir / "driver"), short_dir / "nvidia.json")
        make_root(short_dir / "image", compiler)
        Path("/var/run/cdi").mkdir(exist_ok=True)
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "bash", "-c", SCRIPT.format(place=short_dir)],
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

    def test_podman_gives_a_gpu_to_who_asks_by_environment(short_dir: Path) -> None:
        """By the class that the agent's plan adds, through the shim that the agent has installed."""
        shim = keep_shim(short_dir, make_driver(short_dir / "driver"))
        make_root(short_dir / "image", COMPILERS[0])
        runtime = ChosenRuntime(
            kind=RuntimeKind.PODMAN,
            flavour=RuntimeFlavour.PLAIN,
            socket="",
            config_file=str(short_dir / "containers.conf"),
        )
        tree = ConfigTree(files=(ConfigFile(path=runtime.config_file),))
        (change,) = plan_podman(runtime, tree, Wanted(wrapper=str(shim), names=())).changes
        (short_dir / "containers.conf").write_bytes(change.after or b"")
        done = subprocess.run(
            ["bash", "-c", BY_ENVIRONMENT.format(place=short_dir)],
            env={**os.environ, "CONTAINERS_CONF": str(short_dir / "containers.conf")},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        nodes = sorted(line for line in done.stdout.splitlines() if line.startswith("node:"))
        assert nodes == ["node: nvidia-uvm", "node: nvidia1", "node: nvidiactl"]
        assert "version: 12080" in done.stdout.splitlines()
