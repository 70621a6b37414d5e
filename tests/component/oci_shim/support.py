"""A node with a table, a bundle, and a low-level runtime that writes down its arguments."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from nodeagent.edge.host.shim.table_file import write_table
from nodeagent.model.shim import (
    Capability,
    ShimDevice,
    ShimEdits,
    ShimEntry,
    ShimEnv,
    ShimGroup,
    ShimHook,
    ShimMount,
    ShimNode,
    ShimPolicy,
    ShimTable,
)
from nodeagent.model.values import Value

ALWAYS, COMPUTE, UTILITY, GRAPHICS = Capability.ALWAYS, Capability.COMPUTE, Capability.UTILITY, Capability.GRAPHICS
UUIDS: Final = tuple(f"GPU-{number:08x}-Aaaa" for number in range(4))
CONTROL: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm")
FAKE_RUNC: Final = """#!/bin/sh
for each in "$0" "$@"; do printf '%s\\n' "$each"; done > "$RECORD"
exit 7
"""


def make_node(name: str, wanted_by: Capability = ALWAYS, host: str = "/dev/null") -> ShimNode:
    return ShimNode(wanted_by=wanted_by, path=f"/dev/{name}", host_path=host)


COMMON: Final[ShimEdits] = (
    ShimEnv(wanted_by=ALWAYS, name="NVIDIA_VISIBLE_DEVICES", value="void"),
    make_node("nvidiactl"),
    make_node("nvidia-uvm", COMPUTE),
    ShimMount(
        wanted_by=COMPUTE, path="/usr/lib/libcuda.so.1", host_path="/usr/lib/libcuda.so.5", options=("ro", "rbind")
    ),
    ShimMount(wanted_by=UTILITY, path="/usr/bin/nvidia-smi", host_path="/usr/bin/nvidia-smi", options=("ro",)),
    ShimMount(wanted_by=GRAPHICS, path="/usr/lib/libGLX_nvidia.so.0", host_path="/usr/lib/libGLX_nvidia.so.5"),
    ShimHook(wanted_by=ALWAYS, stage="createContainer", path="/hook", args=("hook", 'quo"ted')),
)


def make_gpu_device(number: int) -> ShimDevice:
    edits: tuple[ShimEntry, ...] = (make_node(f"nvidia{number}"), ShimGroup(wanted_by=GRAPHICS, gid=44))
    return ShimDevice(
        kind="gpu",
        names=(str(number), UUIDS[number]),
        legacy_names=(f"0000:1{number}:00.0", f"1{number}:00.0"),
        edits=(edits,),
        arch="9.0",
        brand="tesla",
    )


GPUS: Final = tuple(make_gpu_device(number) for number in range(3))
PART: Final = ShimDevice(
    kind="gpu", names=("3:0", "MIG-a"), edits=((make_node("nvidia3"), make_node("nvidia-caps/nvidia-cap3")),)
)
PARENT: Final = ShimDevice(kind="parent", names=("3", UUIDS[3]), edits=((make_node("nvidia3"),),))


def make_extra(name: str) -> ShimDevice:
    return ShimDevice(kind="extra", names=(name,), edits=((make_node(name),),))


TABLE: Final = ShimTable(
    cuda="12.4",
    driver="550.54.15",
    devices=(
        *GPUS,
        PARENT,
        PART,
        ShimDevice(kind="imex", names=("3",), edits=((make_node("channel3"),),)),
        ShimDevice(kind="imex", names=("4",), edits=((make_node("channel4"),),)),
        ShimDevice(kind="extra", names=("common",), edits=(COMMON,)),
        *(make_extra(name) for name in ("gds", "gdrcopy", "mig-config", "mig-monitor")),
        *(
            ShimDevice(kind="cdi", names=(f"nvidia.com/gpu={number}",), edits=(*GPUS[number].edits, COMMON))
            for number in range(3)
        ),
        ShimDevice(kind="cdi", names=("nvidia.com/gpu=all",), edits=(*GPUS[0].edits, *GPUS[1].edits, COMMON)),
    ),
)


def make_spec(*env: str, privileged: bool = False, **fields: Any) -> dict[str, Any]:
    bounding = ["CAP_CHOWN", *(["CAP_SYS_ADMIN"] if privileged else [])]
    process = {"user": {"uid": 0, "gid": 0}, "env": ["PATH=/bin", *env], "capabilities": {"bounding": bounding}}
    linux = {"resources": {"devices": [{"allow": False, "access": "rwm"}]}}
    return {"ociVersion": "1.0.2", "process": process, "root": {"path": "r"}, "linux": linux, **fields}


class Done(Value, frozen=True):
    """One call of the shim."""

    status: int
    said: str
    called: tuple[str, ...]
    """The low-level runtime's own arguments; empty when it was not called."""
    text: bytes
    """What is in `config.json` afterwards."""

    @property
    def spec(self) -> Any:
        return json.loads(self.text)

    @property
    def nodes(self) -> list[str]:
        return [each["path"] for each in self.spec.get("linux", {}).get("devices", [])]

    @property
    def gpus(self) -> list[str]:
        """The nodes without those that every container with a GPU has."""
        return [each.removeprefix("/dev/") for each in self.nodes if each not in CONTROL]


class Shim:
    """The program with all it looks at."""

    def __init__(self, program: Path, place: Path, *, before: tuple[str, ...] = ()) -> None:
        self.program, self.place, self.before = program, place, before
        self.table, self.bundle, self.tools = place / "table", place / "bundle", place / "bin"
        self.record = place / "record"
        for each in (self.table, self.bundle, self.tools):
            each.mkdir()
        self.runc = self.tools / "runc"
        self.runc.write_text(FAKE_RUNC)
        self.runc.chmod(0o755)
        self.config = self.bundle / "config.json"
        self.environment = {
            "PATH": f"{self.tools}:/usr/bin:/bin",
            "RECORD": str(self.record),
            "NODEAGENT_SHIM_DIR": str(self.table),
        }
        self.write(TABLE)

    def write(self, table: ShimTable, **policy: Any) -> None:
        write_table(self.table, replace(table, policy=replace(ShimPolicy(), **policy)))

    def run(
        self, *arguments: str | Path, cwd: Path | None = None, name: Path | None = None, **environment: str
    ) -> Done:
        self.record.unlink(missing_ok=True)
        done = subprocess.run(
            [*self.before, name or self.program, *arguments],
            cwd=cwd or self.place,
            env=self.environment | environment,
            capture_output=True,
            check=False,
            timeout=60,
        )
        called = tuple(self.record.read_text().splitlines()) if self.record.exists() else ()
        text = self.config.read_bytes() if self.config.exists() else b""
        return Done(status=done.returncode, said=os.fsdecode(done.stderr), called=called, text=text)

    def create(self, spec: Any, **options: Any) -> Done:
        """Have a container created from a specification, or from the text of one."""
        self.config.write_bytes(spec if isinstance(spec, bytes) else json.dumps(spec).encode())
        return self.run("create", "--bundle", self.bundle, "c1", **options)
