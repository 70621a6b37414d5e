"""The API as an OpenAPI document, made from the record classes; pure."""

from functools import cache
from typing import Any

import msgspec

from nodeagent import __version__
from nodeagent.components.web.api.admin import CommandDone
from nodeagent.components.web.api.claims import ClaimsRecord, SlicesRecord
from nodeagent.components.web.api.fractions import FractionsRecord
from nodeagent.components.web.api.index import ADMIN, INDEX, Index
from nodeagent.components.web.api.records import (
    ComponentRecord,
    ConditionRecord,
    DeviceClassRecord,
    EventRecord,
    GateRecord,
    GpuRecord,
    GpusRecord,
    LayoutsRecord,
    StateRecord,
)
from nodeagent.model.allocation import Allocation, AllocationRow
from nodeagent.model.driver import DriverState
from nodeagent.model.labels import LabelState
from nodeagent.model.mig import MigState
from nodeagent.model.mps import MpsState
from nodeagent.model.offering import GpuAllocationMode
from nodeagent.model.orders import ORDERS
from nodeagent.model.proof import GpuProofs
from nodeagent.model.repairs import RepairState
from nodeagent.model.upgrades import UpgradeState
from nodeagent.model.usage import FractionUsage
from nodeagent.model.values import Value
from nodeagent.rules.receipts import Receipt

Schema = dict[str, Any]


class Problem(Value, frozen=True):
    """An error in the form of RFC 9457."""

    status: int
    title: str
    type: str = "about:blank"
    detail: str = ""


ANSWERS: dict[str, Any] = {
    "/api/v1/": Index,
    "/api/v1/state": StateRecord,
    "/api/v1/gpus": GpusRecord,
    "/api/v1/gpus/{name}": GpuRecord,
    "/api/v1/allocations": tuple[Allocation, ...],
    "/api/v1/allocations/history": tuple[AllocationRow, ...],
    "/api/v1/receipts": tuple[Receipt, ...],
    "/api/v1/parts": FractionsRecord,
    "/api/v1/claims": ClaimsRecord,
    "/api/v1/slices": SlicesRecord,
    "/api/v1/usage": FractionUsage,
    "/api/v1/doors": tuple[GpuAllocationMode, ...],
    "/api/v1/mig": MigState,
    "/api/v1/layouts": LayoutsRecord,
    "/api/v1/mps": MpsState,
    "/api/v1/repairs": RepairState,
    "/api/v1/upgrades": UpgradeState,
    "/api/v1/proofs": GpuProofs,
    "/api/v1/devices": tuple[DeviceClassRecord, ...],
    "/api/v1/labels": LabelState | None,
    "/api/v1/conditions": tuple[ConditionRecord, ...],
    "/api/v1/components": tuple[ComponentRecord, ...],
    "/api/v1/gates": tuple[GateRecord, ...],
    "/api/v1/driver": DriverState | None,
    "/api/v1/events": tuple[EventRecord, ...],
    "/api/v1/debug": dict[str, Any],
    "/api/v1/openapi.json": dict[str, Any],
}
"""The form of each GET's answer."""

COMMANDS: dict[str, Any] = {order.path: order.arguments for order in ORDERS if order.fields}
"""The form of each POST's body, where it has one."""

TEXTS = {"/livez", "/readyz", "/metrics"}

PARAMETERS: dict[str, tuple[tuple[str, str, str, Schema], ...]] = {
    "/api/v1/gpus/{name}": (("name", "path", "UUID, index or PCI address", {"type": "string", "minLength": 1}),),
    "/api/v1/events": (
        ("types", "query", "only events of these types, separated by commas", {"type": "string"}),
        ("since", "query", "only events after this seq", {"type": "integer", "minimum": 0}),
        ("follow", "query", "`false` for a list instead of a stream", {"enum": ["true", "false"], "default": "true"}),
    ),
}


_LOOKING = {
    400: "bytes that are no request, or HTTP/1.1 without Host",
    405: "another method than GET or HEAD",
    408: "a request that does not arrive in time",
    421: "over loopback, a Host that is no name of this machine; http.allowed_hosts adds names",
    503: "more connections than http.max_connections, and all of them at work; try again",
}
_FOUND = {404: "there is none of this name"}
_BUSY = {503: "more are served than the settings allow; try again"}
_COMMANDED = {
    400: "a body that is not what the command takes",
    403: "neither root nor the agent's own user",
    409: "it cannot be done; says why",
    413: "a body larger than http.max_request_bytes",
}
PROBLEMS: dict[str, dict[int, str]] = {
    "/api/v1/gpus/{name}": _FOUND,
    "/api/v1/events": _BUSY | {400: "a parameter that says nothing"},
    "/metrics": _BUSY,
}
"""The refusals of each GET, besides the refusals common to all."""


@cache
def build_openapi() -> Schema:
    """The whole document."""
    kinds = [*ANSWERS.values(), *COMMANDS.values(), CommandDone, Problem]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    named = dict(zip([*ANSWERS, *COMMANDS], schemas, strict=False))
    paths: dict[str, Schema] = {}
    for endpoint in INDEX.calls:
        method, _, path = endpoint.call.partition(" ")
        where = " Only on the admin socket." if endpoint.where == ADMIN else ""
        operation = {"summary": endpoint.gives, "description": endpoint.gives + "." + where}
        paths[path] = {method.lower(): operation | _describe(method, path, named)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "nodeagent",
            "version": __version__,
            "summary": "What one GPU node is, has, does and lacks",
            "description": f"Compatibility: {INDEX.promise}. Readers must accept fields that they do not know.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _describe(method: str, path: str, named: dict[str, Schema]) -> Schema:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    told = _COMMANDED if method == "POST" else _LOOKING | PROBLEMS.get(path, {})
    refused: Schema = {str(status): {"description": why, "content": problem} for status, why in sorted(told.items())}
    refused["default"] = {"description": "it could not be done; says why", "content": problem}
    if method == "POST":
        done = {"application/json": {"schema": {"$ref": "#/components/schemas/CommandDone"}}}
        body = {"requestBody": {"content": {"application/json": {"schema": named[path]}}}} if path in named else {}
        return {**body, "responses": {"200": {"description": "done", "content": done}, **refused}}
    parameters = [
        {"name": name, "in": where, "description": text, "schema": schema, "required": where == "path"}
        for name, where, text, schema in PARAMETERS.get(path, ())
    ]
    content: Schema = {"text/plain": {"schema": {"type": "string"}}}
    if path not in TEXTS:
        content = {"application/json": {"schema": named[path]}}
    if path == "/api/v1/events":
        content["text/event-stream"] = {"schema": {"type": "string"}}
    answers: Schema = {"200": {"description": "the answer", "content": content}, **refused}
    if path == "/readyz":
        answers["503"] = {"description": "not ready; the lines say why", "content": content}
    return {**({"parameters": parameters} if parameters else {}), "responses": answers}
