"""All doors of a node in use at once: parts, claims, MIG layouts, MPS daemons, the shim's table, other devices.

Owns what must be there for them besides the GPUs, the settings that open them, and the hands that use them.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final

import anyio
from anyio.to_thread import run_sync
from grpclib.exceptions import GRPCError, StreamTerminatedError

from nodeagent.edge.mps.processes import find_daemon
from nodeagent.model.claims import ClaimReference
from tests.fakes.apiserver import NODE
from tests.fakes.mps import FakeMps
from tests.support.wire.claim_kubelet import ClaimKubelet, registered

DRIVER: Final = "gpu.nvidia.com"
CORE, MEMORY, CAMERA = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "example.com/camera"
BLOCK_BYTES: Final = 256 << 20
MIG_LABEL: Final = "nvidia.com/mig.config"
CAMERAS: Final = ("/dev/full", "/dev/zero")
# Each says something of both, so that what is there does not depend on which of them were never carried out.
LAYOUTS: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "sevenths": [{"gpus": ["0"], "devices": {"1g.10gb": 7}}, {"gpus": ["1"], "enabled": False}],
    "halves": [{"gpus": ["0", "1"], "devices": {"3g.40gb": 2}}],
    "whole": [{"gpus": ["0", "1"], "enabled": False}],
}
RULES: Final = (
    {"gpus": ["0", "1", "2", "3"], "door": "whole"},
    {"gpus": ["4", "5"], "door": "fractions"},
    {"gpus": ["6", "7"], "door": "claims"},
)
PROGRAMS: Final = ("nodeagent-oci-shim", "nodeagent-cdi-hook", "libnodeagent-vgpu.so")
MPS_CONFIG: Final = {
    "apiVersion": "resource.nvidia.com/v1beta1",
    "kind": "GpuConfig",
    "sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}},
}
SILENCE: Final = "nobody answers"
ASK_SECONDS: Final = 45.0
"""Longer than the driver may take over a claim."""
LOST: Final = (OSError, GRPCError, StreamTerminatedError, AssertionError, TimeoutError)
"""How a call ends whose other end was killed."""


class Rooms:
    """What such a node has besides its GPUs, below one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.registry, self.programs, self.features = (directory / name for name in ("claims", "programs", "features"))
        self.mps = FakeMps(directory / "driver")
        self._make_nodes()
        for place in (self.registry, self.features):
            place.mkdir()
        self._make_programs()

    def _make_nodes(self) -> None:
        """Character devices that anybody may have: that of nothing, under the names of the driver's."""
        capabilities = [f"nvidia-caps/nvidia-cap{number}" for number in range(1, 256)]
        place = self._directory / "nodes" / "dev"
        (place / "nvidia-caps").mkdir(parents=True)
        gpus = [f"nvidia{number}" for number in range(8)]
        for name in (*gpus, "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", *capabilities):
            (place / name).symlink_to("/dev/null")

    def _make_programs(self) -> None:
        """In place of our own, of which the agent knows no more than that they must end with 0."""
        self.programs.mkdir()
        for name in PROGRAMS:
            (self.programs / name).write_text("#!/bin/sh\nexit 0\n")
            (self.programs / name).chmod(0o755)

    def plan_settings(self) -> Mapping[str, object]:
        layouts = [{"name": name, **part} for name, parts in LAYOUTS.items() for part in parts]
        return {
            "doors.rules": json.dumps(RULES),
            "fractions.enabled": "true",
            "fractions.enforcement": "library",
            "fractions.limit_compute": "true",
            "claims.enabled": "true",
            "claims.shares": "true",
            "claims.plugins_dir": self._directory / "plugins",
            "claims.registry_dir": self.registry,
            "mig.manage": "true",
            "mig.layouts": json.dumps(layouts),
            "mps.claims": "true",
            "mps.program": self.mps.program,
            "mps.shared_memory": "host",
            "device_plugin.mps_root": self.mps_root,
            "driver.dev_root": self._directory / "nodes",
            "driver.validation_markers": "true",
            "labels.sinks": json.dumps(["node", "nfd_file"]),
            "labels.nfd_dir": self.features,
            "runtime.shim": "true",
            "shim.dir": self._directory / "shim",
            "shim.nvidia_name_dir": self._directory / "names",
            "devices.classes": json.dumps([{"resource": CAMERA, "nodes": list(CAMERAS)}]),
        }

    @property
    def mps_root(self) -> Path:
        return self._directory / "mps"

    @property
    def table(self) -> Path:
        """What the runtime shim looks things up in."""
        return self._directory / "shim" / "shim" / "table"

    def are_described(self, names: Sequence[str]) -> bool:
        """Whether container runtimes find a description for each of these devices, by the end of its name."""
        kinds = [json.loads(path.read_text()) for path in (self._directory / "cdi").glob("*.json")]
        known = [f"{one['kind']}={device['name']}" for one in kinds for device in one["devices"]]
        return all(any(name in each for each in known) for name in names)

    def find_gpus(self, names: Collection[str]) -> list[int]:
        """The GPUs whose device nodes these CDI names lead to."""
        kinds = [json.loads(path.read_text()) for path in (self._directory / "cdi").glob("*.json")]
        nodes = [
            PurePath(node["path"]).name
            for one in kinds
            for device in one["devices"]
            if f"{one['kind']}={device['name']}" in names
            for node in device["containerEdits"].get("deviceNodes", ())
        ]
        return sorted(int(node.removeprefix("nvidia")) for node in nodes if node.removeprefix("nvidia").isdigit())

    def list_half_written(self) -> list[str]:
        """What a writer that was killed has left."""
        return sorted(str(path) for path in self._directory.rglob(".*.tmp"))

    def damage_program(self) -> None:
        """The runtime shim itself, where it was installed."""
        program = self._directory / "shim" / PROGRAMS[0]
        program.write_bytes(program.read_bytes()[:1])

    def list_daemons(self) -> list[int]:
        places = self.mps_root.glob("**/nvidia-cuda-mps-control.pid")
        return [pid for place in places if (pid := find_daemon(place.parent)) is not None]

    def kill_daemon(self) -> bool:
        for pid in self.list_daemons()[:1]:
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    def close(self) -> None:
        """No daemon outlives the node."""
        while self.kill_daemon():
            pass

    # Orders, as people and the kubelet give them.

    async def order(self, path: str, command: Mapping[str, object]) -> tuple[int, str]:
        """By the admin socket; 0 where nobody listens."""
        try:
            return await run_sync(self._post, path, command)
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)

    def _post(self, path: str, command: Mapping[str, object]) -> tuple[int, str]:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(ASK_SECONDS)
        with contextlib.closing(connection):
            connection.sock.connect(str(self._directory / "run" / "admin.sock"))
            connection.request("POST", path, body=json.dumps(command))
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    async def prepare(self, claim: ClaimReference) -> str:
        """Why it was not made ready; empty where it was."""
        return await self._ask("prepare", claim)

    async def unprepare(self, claim: ClaimReference) -> str:
        """Why it was not put away; empty where it was."""
        return await self._ask("unprepare", claim)

    async def _ask(self, verb: str, claim: ClaimReference) -> str:
        try:
            with anyio.fail_after(ASK_SECONDS):
                async with registered(self.registry) as kubelet:
                    answers = await self._call(kubelet, verb, claim)
        except LOST as lost:
            return f"{SILENCE}: {lost!r}"
        return str(answers[claim.uid].error)

    @staticmethod
    async def _call(kubelet: ClaimKubelet, verb: str, claim: ClaimReference) -> Any:
        return await (kubelet.prepare(claim) if verb == "prepare" else kubelet.unprepare(claim))


def write_claim(
    claims: dict[str, Any], name: str, gpu: int, *, memory_gib: int = 0, cores: int = 0, is_mps: bool = False
) -> ClaimReference:
    """A claim as a scheduler has allocated it: all of a GPU, or a share of it."""
    share = {
        "shareID": f"share-{name}",
        "consumedCapacity": {"memory": f"{memory_gib}Gi", "cores": str(cores)},
    }
    result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": f"gpu-{gpu}", **(share if memory_gib else {})}
    config = [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": MPS_CONFIG}}] if is_mps else []
    claims[name] = {
        "metadata": {"namespace": "chaos", "name": name, "uid": f"uid-{name}"},
        "status": {
            "reservedFor": [{"resource": "pods", "name": f"pod-{name}", "uid": f"pod-{name}"}],
            "allocation": {"devices": {"results": [result], "config": config}},
        },
    }
    return ClaimReference(namespace="chaos", name=name, uid=f"uid-{name}")
