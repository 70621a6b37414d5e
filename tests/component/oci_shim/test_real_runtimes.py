"""Containers that really run, by runc and by crun, with the shim before them; as root, or by a user in a namespace."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.cdi.plan_shim import plan_shim_table
from nodeagent.components.cdi.plan_specs import SpecOptions, plan_specs
from nodeagent.config.sections.containers import ContainersSettings, ExtraDevice
from nodeagent.edge.host.driver.driver_files import find_extra_nodes
from nodeagent.model.shim import ShimDevice, ShimEnv, ShimMount, ShimPolicy, ShimTable
from tests.component.oci_shim.support import ALWAYS, TABLE, Shim, make_node
from tests.support.files.driver_files import make_file, make_files, make_library
from tests.support.samples import make_inventory

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("busybox") is None, reason="wants busybox, the whole of the container"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]
SCRIPT = "for each in /dev/nvidia*; do echo $each; done; echo visible $NVIDIA_VISIBLE_DEVICES; cat /given"


@pytest.fixture(params=["runc", "crun"])
def runtime(request: pytest.FixtureRequest) -> Path:
    found = shutil.which(request.param)
    if found is None:
        pytest.skip(f"wants {request.param}: apt-get install {request.param}")
    return Path(found)


class Bundle:
    """A container of busybox alone."""

    def __init__(self, shim: Shim, runtime: Path) -> None:
        self.shim, self.runtime = shim, runtime
        shim.runc.unlink()
        shim.runc.symlink_to(runtime)
        binaries = shim.bundle / "rootfs/bin"
        binaries.mkdir(parents=True)
        shutil.copy(str(shutil.which("busybox")), binaries / "busybox")
        for name in ("sh", "cat", "echo"):
            (binaries / name).symlink_to("busybox")
        command = [str(runtime), "spec", *(["--rootless"] if os.geteuid() else [])]
        subprocess.run(command, cwd=shim.bundle, check=True)
        self.spec: dict[str, Any] = json.loads(shim.config.read_text())
        self.spec["process"] |= {"terminal": False, "args": ["/bin/sh", "-c", SCRIPT]}
        # What this machine's own limits or control groups forbid is no matter here.
        self.spec["process"].pop("rlimits", None)
        self.spec["linux"].pop("resources", None)

    def ask(self, *env: str) -> None:
        text = dict(self.spec)
        text["process"] = self.spec["process"] | {"env": [*self.spec["process"]["env"], *env]}
        self.shim.config.write_text(json.dumps(text, indent=1))

    @contextmanager
    def created(self, program: Path) -> Iterator[str]:
        """What the container writes until it ends, or with a question mark in front, why there is none."""
        command = [str(program), "--root", str(self.shim.place / "state")]
        reader, writer = os.pipe()
        errors = self.shim.place / "errors"
        # Both are the container's too: to wait for their ends is to wait for its end.
        with os.fdopen(reader) as output, errors.open("w") as refusal:
            try:
                create = [*command, "create", "--bundle", str(self.shim.bundle), "c1"]
                code = self._run(create, stdout=writer, stderr=refusal)
                os.close(writer)
                if code:
                    yield f"?{errors.read_text().strip()}"
                    return
                assert self._run([*command, "start", "c1"]) == 0
                yield output.read()
            finally:
                self._run([*command, "delete", "--force", "c1"])

    def _run(self, command: list[str], **outputs: Any) -> int:
        outputs = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | outputs
        environment = self.shim.environment
        return subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, check=False, timeout=30, **outputs
        ).returncode


@pytest.fixture
def bundle(shim: Shim, runtime: Path) -> Bundle:
    """A container that this machine lets this runtime make."""
    made = Bundle(shim, runtime)
    made.ask()
    (shim.bundle / "rootfs/given").touch()
    with made.created(runtime) as said:
        if said.startswith("?"):
            pytest.skip(f"{runtime.name} makes no container here: {said[1:300]}")
    return made


def test_a_container_has_what_it_asked_for(bundle: Bundle, shim: Shim) -> None:
    """A node, a mount and a variable; one that asks for nothing has nothing."""
    given = shim.place / "given"
    given.write_text("from the host\n")
    edits = (
        make_node("nvidiactl"),
        ShimEnv(wanted_by=ALWAYS, name="NVIDIA_VISIBLE_DEVICES", value="void"),
        ShimMount(wanted_by=ALWAYS, path="/given", host_path=str(given), options=("ro", "nosuid", "nodev", "bind")),
    )
    common = ShimDevice(kind="extra", names=("common",), edits=(edits,))
    shim.write(ShimTable(devices=(*TABLE.devices[:2], common)))
    bundle.ask("NVIDIA_VISIBLE_DEVICES=1")
    with bundle.created(shim.program) as said:
        assert said.splitlines() == ["/dev/nvidia1", "/dev/nvidiactl", "visible void", "from the host"]
    bundle.ask()
    before = shim.config.read_bytes()
    with bundle.created(shim.program) as said:
        assert said.splitlines() == ["/dev/nvidia*", "visible"]
    assert shim.config.read_bytes() == before


def test_why_a_container_is_refused_is_where_the_engine_looks(bundle: Bundle, shim: Shim) -> None:
    """Before the low-level runtime has made anything."""
    bundle.ask("NVIDIA_VISIBLE_DEVICES=7")
    with bundle.created(shim.program) as said:
        assert said.startswith("?nodeagent-oci-shim: ")
    assert not (shim.place / "state/c1").exists()


def test_a_container_has_what_the_settings_give_it_besides(bundle: Bundle, shim: Shim) -> None:
    """A node at the end of a link under its own path, variables, and the driver where images made for GPUs look."""
    for name, text in (("libcuda", "the library\n"), ("nvidia-smi", "#!/bin/sh\necho the program\n")):
        (shim.place / name).write_text(text)
        (shim.place / name).chmod(0o755)
    link = shim.place / "board"
    link.symlink_to("/dev/zero")
    containers = ContainersSettings(
        layout="usr_local_nvidia",
        extra_devices=(
            ExtraDevice(host=link, container=Path("/dev/board"), permissions="r"),
            ExtraDevice(host=Path("/dev/nowhere")),
        ),
        extra_environment={"POOL": "a=b c"},
    )
    hosts = [str(device.host) for device in containers.extra_devices]
    files = make_files(
        libraries=(replace(make_library("libcuda"), host_path=str(shim.place / "libcuda")),),
        files=(replace(make_file("/usr/bin/nvidia-smi"), host_path=str(shim.place / "nvidia-smi")),),
        nodes=(),
        extra_nodes=tuple(find_extra_nodes(Path("/"), hosts)),
    )
    files = replace(files, nodes=tuple(replace(node, host_path="/dev/null") for node in files.nodes))
    inventory = make_inventory(1)
    specs = plan_specs(inventory, files, SpecOptions(containers=containers)).specs
    shim.write(plan_shim_table(inventory, files, specs, ShimPolicy()))
    script = (
        "/bin/busybox od -An -tx1 -N2 /dev/board; echo $POOL; cat /usr/local/nvidia/lib64/libcuda.so.1;"
        " nvidia-smi; /usr/bin/nvidia-smi"
    )
    bundle.spec["process"]["args"] = ["/bin/sh", "-c", script]
    path = "PATH=/bin:/usr/local/nvidia/bin"
    bundle.ask("NVIDIA_VISIBLE_DEVICES=0", path)
    with bundle.created(shim.program) as said:
        assert said.splitlines() == [" 00 00", "a=b c", "the library", "the program", "the program"]
    bundle.ask(path)
    with bundle.created(shim.program) as said:
        assert "the program" not in said
