"""NVSentinel's platform connector as far as a health monitor of the same node notices the connector.

The wire format is the published service definition, in a description of its own: `PUBLISHED` has all fields of the
definition, whatever the agent's own `.proto` file has. The laws of faults and their ends, and where each is known from,
stand in `docs/development/stand-ins.md`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
from google.protobuf import descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from nodeagent.edge.grpc.calls import CallRefused, Unary
from nodeagent.edge.grpc.errors import Status
from nodeagent.edge.grpc.server import open_grpc_server

METHOD: Final = "/datamodels.PlatformConnector/HealthEventOccurredV1"
PUBLISHED: Final = {
    "HealthEvents": {"version": (1, "uint32"), "events": (2, "HealthEvent*")},
    "Entity": {"entityType": (1, "string"), "entityValue": (2, "string")},
    "BehaviourOverrides": {"force": (1, "bool"), "skip": (2, "bool")},
    "HealthEvent": {
        "version": (1, "uint32"),
        "agent": (2, "string"),
        "componentClass": (3, "string"),
        "checkName": (4, "string"),
        "isFatal": (5, "bool"),
        "isHealthy": (6, "bool"),
        "message": (7, "string"),
        "recommendedAction": (8, "int32"),
        "errorCode": (9, "string*"),
        "entitiesImpacted": (10, "Entity*"),
        "generatedTimestamp": (12, "google.protobuf.Timestamp"),
        "nodeName": (13, "string"),
        "quarantineOverrides": (14, "BehaviourOverrides"),
        "drainOverrides": (15, "BehaviourOverrides"),
        "processingStrategy": (16, "int32"),
        "id": (17, "string"),
        "customRecommendedAction": (18, "string"),
    },
}
"""Numbers and types of all fields but `metadata` (11); an enumeration is on the wire as a number."""
ACTIONS: Final = {
    "NONE": 0, "COMPONENT_RESET": 2, "CONTACT_SUPPORT": 5, "RUN_FIELDDIAG": 6, "RESTART_VM": 15, "RESTART_BM": 24,
    "REPLACE_VM": 25, "RUN_DCGMEUD": 26, "CUSTOM": 27, "UNKNOWN": 99,
}  # fmt: skip
STRATEGIES: Final = {"UNSPECIFIED": 0, "EXECUTE_REMEDIATION": 1, "STORE_ONLY": 2}
_KINDS: Final = {
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "string": FieldDescriptorProto.TYPE_STRING,
}


def _describe(name: str, fields: dict[str, tuple[int, str]]) -> DescriptorProto:
    described = DescriptorProto(name=name)
    for field, (number, written) in fields.items():
        kind = written.removesuffix("*")
        one = described.field.add(name=field, number=number)
        one.label = FieldDescriptorProto.LABEL_REPEATED if written != kind else FieldDescriptorProto.LABEL_OPTIONAL
        one.type = _KINDS.get(kind, FieldDescriptorProto.TYPE_MESSAGE)
        if kind not in _KINDS:
            one.type_name = f".{kind}" if "." in kind else f".datamodels.{kind}"
    return described


def _build_request_type() -> type[Message]:
    pool = descriptor_pool.DescriptorPool()
    timestamp = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    pool.Add(timestamp)
    file = FileDescriptorProto(name="published.proto", package="datamodels", syntax="proto3")
    file.dependency.append(timestamp.name)
    file.message_type.extend(_describe(name, fields) for name, fields in PUBLISHED.items())
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("datamodels.HealthEvents"))


REQUEST: Final = _build_request_type()

Fault = tuple[str, frozenset[tuple[str, str]]]


class FakePlatformConnector:
    """Stores events, and knows which faults stand."""

    def __init__(self, node: str = "node-1") -> None:
        self.node = node
        self.events: list[Any] = []
        self.standing: dict[Fault, Any] = {}
        self.refusal: CallRefused | None = None
        self.requests = 0
        self.is_silent = False

    async def take(self, request: Any) -> Empty:
        """The service's one call: all events, or none."""
        self.requests += 1
        if self.is_silent:
            await anyio.sleep_forever()
        if self.refusal is not None:
            raise self.refusal
        for event in request.events:
            if event.nodeName not in {"", self.node}:
                raise CallRefused(Status.PERMISSION_DENIED, f"node_mismatch: {event.nodeName}")
        for event in request.events:
            self._note(event)
        return Empty()

    def _note(self, event: Any) -> None:
        self.events.append(event)
        entities = frozenset((each.entityType, each.entityValue) for each in event.entitiesImpacted)
        if not event.isHealthy:
            self.standing[event.checkName, entities] = event
        elif entities:
            self.standing.pop((event.checkName, entities), None)
        else:
            self.standing = {key: each for key, each in self.standing.items() if key[0] != event.checkName}

    @property
    def acted_on(self) -> set[str]:
        """The checks of standing faults because of which the cluster may be changed."""
        stored = STRATEGIES["STORE_ONLY"]
        return {check for (check, _), event in self.standing.items() if event.processingStrategy != stored}

    @asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator["FakePlatformConnector"]:
        def crash(method: str, error: Exception) -> None:
            raise AssertionError(method) from error

        async with open_grpc_server(socket, {METHOD: Unary(REQUEST, self.take)}, crash):
            yield self
