"""The files of one container, as the agent would have made them, and the environment of its programs."""

import os
from dataclasses import dataclass
from pathlib import Path

from nodeagent.edge.host.vgpu.limits_file import DeviceLimit, FailMode, Limits, change_limits, create_limits
from nodeagent.edge.host.vgpu.shared_file import create_shared
from nodeagent.edge.host.vgpu.usage_file import Usage, create_usage, read_usage

UUIDS = tuple(f"GPU-00000000-0000-0000-0000-0000000000{number:02x}" for number in range(2))
"""Those of the fake driver's devices."""


@dataclass(frozen=True, slots=True)
class Place:
    """A directory with a container's limits and usage files."""

    path: Path

    @property
    def limits_path(self) -> Path:
        return self.path / "limits"

    @property
    def usage_path(self) -> Path:
        return self.path / "usage"

    def create(self, *memory_bytes: int | None, fail_mode: FailMode = FailMode.PASS, context_bytes: int = 0) -> None:
        """Both files, with a limit for each device."""
        create_limits(self.limits_path, _say(memory_bytes, fail_mode, context_bytes))
        create_usage(self.usage_path)

    def share_with(self, other: "Place") -> None:
        """As another container of the same claim: the same limits and the same shared file, and memory of its own."""
        for name in ("limits", "shared"):
            (self.path / name).hardlink_to(other.path / name)
        (self.path / "own").mkdir()

    def create_shared(
        self, *memory_bytes: int | None, fail_mode: FailMode = FailMode.PASS, cores: int | None = None
    ) -> None:
        """As a container of a claim that several may have: it makes its usage file itself."""
        create_limits(self.limits_path, _say(memory_bytes, fail_mode, cores=cores))
        create_shared(self.path / "shared")
        (self.path / "own").mkdir()

    def change(
        self,
        *memory_bytes: int | None,
        fail_mode: FailMode = FailMode.PASS,
        context_bytes: int = 0,
        cores: int | None = None,
    ) -> None:
        """Other limits, while programs run."""
        change_limits(self.limits_path, _say(memory_bytes, fail_mode, context_bytes, cores))

    def overwrite(self, offset: int, content: bytes) -> None:
        """Bytes of the limits file as no writer of this version would leave them."""
        with self.limits_path.open("r+b") as file:
            file.seek(offset)
            file.write(content)

    def read(self) -> Usage:
        return read_usage(self.usage_path)

    def environ(self, **more: str) -> dict[str, str]:
        """For a program of the container."""
        return {"PATH": os.environ["PATH"], "NODEAGENT_VGPU_DIR": str(self.path), **more}


def _say(
    memory_bytes: tuple[int | None, ...], fail_mode: FailMode, context_bytes: int = 0, cores: int | None = None
) -> Limits:
    devices = zip(UUIDS, memory_bytes, strict=False)
    return Limits(
        tuple(
            DeviceLimit(uuid, memory_bytes=each, core_percent=cores, context_bytes=context_bytes)
            for uuid, each in devices
        ),
        fail_mode,
    )
