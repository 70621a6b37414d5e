"""A real containerd with a node's own files, started as its service would start it, and what CRI says of itself.

It has mounts and a network of its own, so that addresses, ports and directories in the files are no neighbour's.
"""

import asyncio
import dataclasses
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grpclib.client import Channel, UnaryUnaryMethod

from nodeagent.edge.container_runtime.protobuf_fields import parse_fields, parse_text_map, parse_texts
from tests.fakes.cri import RawCodec

START_SECONDS = 30.0
END_SECONDS = 20.0
POLL_SECONDS = 0.02
ASK_SECONDS = 10.0
SCRIPT = """
for place in /run /opt /srv /etc; do mount -t tmpfs tmpfs $place; done
exec "$@"
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Served:
    """What a daemon came up with; without CRI, only what it said."""

    config: dict[str, Any] | None
    handlers: tuple[str, ...] = ()
    log: str = ""

    @property
    def runtimes(self) -> dict[str, Any]:
        assert self.config is not None
        found: dict[str, Any] = self.config["containerd"]["runtimes"]
        return found


def serve(program: Path, main: Path) -> Served:
    """Start it with these files, ask, and end it."""
    with tempfile.TemporaryDirectory(prefix="na") as place, _running(program, main, Path(place)) as process:
        log, socket = Path(place) / "log", Path(place) / "s"
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None:
            assert time.monotonic() < deadline, log.read_text()
            if socket.exists():
                status = asyncio.run(_ask(socket))
                return _describe(status, log.read_text()) if status is not None else Served(None, log=log.read_text())
            time.sleep(POLL_SECONDS)
        return Served(None, log=log.read_text())


@contextmanager
def _running(program: Path, main: Path, place: Path) -> Iterator[subprocess.Popen[bytes]]:
    flags = ["--root", f"{place}/root", "--state", f"{place}/state", "--address", f"{place}/s"]
    # A service that names its file does not start without it; one that leaves it at its default does.
    flags += ["--config", str(main)] if main.exists() else []
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", SCRIPT, "sh", str(program), *flags],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(END_SECONDS)


async def _ask(socket: Path) -> bytes | None:
    """The verbose status, as soon as CRI is ready to tell; `None` where there is no CRI."""
    async with asyncio.timeout(ASK_SECONDS):
        while True:
            channel = Channel(path=str(socket), codec=RawCodec())
            try:
                method: UnaryUnaryMethod[bytes, bytes] = UnaryUnaryMethod(
                    channel, "/runtime.v1.RuntimeService/Status", bytes, bytes
                )
                return await method(b"\x08\x01")
            except Exception as error:  # noqa: BLE001  # whatever it is, it is told below or ends with the time
                if "UNIMPLEMENTED" in str(error):
                    return None
                await asyncio.sleep(POLL_SECONDS)
            finally:
                channel.close()


def _describe(status: bytes, log: str) -> Served:
    config = json.loads(parse_text_map(status, 2)["config"])
    handlers = [parse_texts(content).get(1, "") for number, content in parse_fields(status) if number == 3]
    return Served(config, tuple(sorted(filter(None, handlers))) or tuple(sorted(config["containerd"]["runtimes"])), log)
