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

from nodeagent.model.shim import ShimDevice, ShimEnv, ShimMount, ShimTable
from tests.component.oci_shim.support import ALWAYS, TABLE, Shim, make_node

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
