"""A container runtime's CRI socket that answers three questions as the test says.

Its answers are compared with containerd's in `tests/contract/cri`.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from grpclib.const import Cardinality, Handler, Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

CONDITIONS = ("RuntimeReady", "NetworkReady", "ContainerdHasNoDeprecationWarnings")
OLD_SERVICE = "runtime.v1alpha2.RuntimeService"
RUNNING, EXITED = 1, 2
"""States of a container."""


def encode_field(number: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return encode_number(number << 3 | 2) + encode_number(len(raw)) + raw


def encode_number(value: int) -> bytes:
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


class RawCodec(CodecBase):
    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        return data


class FakeCri:
    """Containerd, unless told otherwise."""

    def __init__(
        self,
        name: str = "containerd",
        version: str = "v2.1.4",
        *,
        config: Mapping[str, Any] | str | None = None,
        handlers: tuple[str, ...] = (),
    ) -> None:
        self.name, self.version, self.handlers = name, version, handlers
        self.config = config if isinstance(config, str) else json.dumps(config) if config is not None else None
        self.hangs = False
        self.refuses = False
        self.raw_status: bytes | None = None
        self.was_verbose = False
        self.containers: dict[str, dict[str, str]] = {}
        """The labels of each by its id."""
        self.raw_containers: bytes | None = None
        self.container_state = RUNNING
        self.states: dict[str, int] = {}
        """Of those containers that are in another state, by id."""

    def __mapping__(self) -> dict[str, Handler]:
        return {
            "/runtime.v1.RuntimeService/Version": Handler(self._version, Cardinality.UNARY_UNARY, bytes, bytes),
            f"/{OLD_SERVICE}/Version": Handler(self._refuse_old, Cardinality.UNARY_UNARY, bytes, bytes),
            "/runtime.v1.RuntimeService/Status": Handler(self._status, Cardinality.UNARY_UNARY, bytes, bytes),
            "/runtime.v1.RuntimeService/ListContainers": Handler(self._list, Cardinality.UNARY_UNARY, bytes, bytes),
        }

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[None]:
        server = Server([self], codec=RawCodec())
        await server.start(path=str(path))
        try:
            yield
        finally:
            server.close()
            await server.wait_closed()

    async def _version(self, stream: Stream[bytes, bytes]) -> None:
        await stream.recv_message()
        if self.hangs:
            await anyio.sleep_forever()
        if self.refuses:
            raise GRPCError(Status.UNIMPLEMENTED, "unknown service runtime.v1.RuntimeService")
        fields = (
            encode_field(1, "0.1.0"),
            encode_field(2, self.name),
            encode_field(3, self.version),
            encode_field(4, "v1"),
        )
        await stream.send_message(b"".join(fields))

    async def _refuse_old(self, stream: Stream[bytes, bytes]) -> None:
        raise GRPCError(Status.UNIMPLEMENTED, f"unknown service {OLD_SERVICE}")

    async def _status(self, stream: Stream[bytes, bytes]) -> None:
        self.was_verbose = await stream.recv_message() == b"\x08\x01"
        is_so = encode_number(2 << 3) + encode_number(1)
        conditions = [encode_field(1, encode_field(1, kind) + is_so) for kind in CONDITIONS]
        status = encode_field(1, b"".join(conditions))
        if self.config is not None and self.was_verbose:
            status += encode_field(2, encode_field(1, "config") + encode_field(2, self.config))
        for handler in self.handlers:
            status += encode_field(3, encode_field(1, handler))
        await stream.send_message(self.raw_status if self.raw_status is not None else status)

    async def _list(self, stream: Stream[bytes, bytes]) -> None:
        await stream.recv_message()
        listed = b"".join(encode_field(1, self._encode(*one)) for one in self.containers.items())
        await stream.send_message(self.raw_containers if self.raw_containers is not None else listed)

    def _encode(self, number: str, labels: Mapping[str, str]) -> bytes:
        """Its id, its name as metadata, its state, and its labels."""
        metadata = encode_field(3, encode_field(1, labels.get("io.kubernetes.container.name", "")))
        number_of_state = self.states.get(number, self.container_state)
        state = encode_number(6 << 3) + encode_number(number_of_state) if number_of_state else b""
        pairs = [encode_field(8, encode_field(1, key) + encode_field(2, text)) for key, text in labels.items()]
        return encode_field(1, number) + metadata + state + b"".join(pairs)
