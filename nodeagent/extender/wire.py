"""The questions and answers of kube-scheduler's extender interface, version 1, as they are on the wire.

Owns the names of their fields. Kube-scheduler writes them with a capital and reads them in any case; so does this.
With `nodeCacheCapable: true` nodes come and go by name, without it as whole objects, which are handed back untouched.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from nodeagent.edge.kube.fleet_documents import Version, decode_as, parse_pod
from nodeagent.extender.decide import Filtered
from nodeagent.extender.errors import QuestionMalformed
from nodeagent.model.scheduling import SeenPod

_WHAT: Final = "ExtenderArgs"
_NULL: Final = b"null"


class Asked(NamedTuple):
    """One question: a pod, and the nodes that are left for it."""

    pod: SeenPod
    names: tuple[str, ...]
    nodes: Mapping[str, msgspec.Raw] | None = None
    """Whole, as they came; `None` where they came by name."""


class _NodeList(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


class _FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    nodes: Mapping[str, object] | None = None
    node_names: tuple[str, ...] | None = None
    failed_nodes: Mapping[str, str] = {}
    failed_and_unresolvable_nodes: Mapping[str, str] = {}
    error: str = ""


class _HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    host: str
    score: int


def parse_question(body: bytes) -> Asked:
    """Read what is asked.

    Raises:
        QuestionMalformed: it cannot be answered; says what is missing or wrong.
    """
    try:
        fields = {key.lower(): value for key, value in decode_as(body, dict[str, msgspec.Raw], _WHAT).items()}
        if "pod" not in fields:
            raise QuestionMalformed("it names no pod")
        pod = parse_pod(fields["pod"])
        if _has(fields, "nodenames"):
            return Asked(pod, tuple(decode_as(fields["nodenames"], list[str], "a list of node names")))
        if not _has(fields, "nodes"):
            raise QuestionMalformed("it has neither NodeNames nor Nodes")
        listing = decode_as(fields["nodes"], _NodeList, "a list of nodes")
        nodes = {_read_name(item): item for item in listing.items or ()}
    except ValueError as error:
        raise QuestionMalformed(str(error)) from error
    return Asked(pod, tuple(nodes), nodes)


def _has(fields: Mapping[str, msgspec.Raw], name: str) -> bool:
    """Kube-scheduler writes `null` for the one of the two that it does not use."""
    return name in fields and bytes(memoryview(fields[name])[:4]) != _NULL


def _read_name(item: msgspec.Raw) -> str:
    name = decode_as(item, Version, "a node").name
    if not name:
        raise QuestionMalformed("a node has no name")
    return name


def render_filtered(asked: Asked, found: Filtered) -> bytes:
    """The answer to filter."""
    failed, hopeless = found.failed, found.hopeless
    return _render(asked, found.fitting, _FilterResult(failed_nodes=failed, failed_and_unresolvable_nodes=hopeless))


def render_all(asked: Asked) -> bytes:
    """The answer to filter for a pod that is none of ours: every node will do."""
    return _render(asked, asked.names, _FilterResult())


def _render(asked: Asked, fitting: Iterable[str], result: _FilterResult) -> bytes:
    if asked.nodes is None:
        return msgspec.json.encode(msgspec.structs.replace(result, node_names=tuple(fitting)))
    items = [asked.nodes[name] for name in fitting]
    return msgspec.json.encode(msgspec.structs.replace(result, nodes={"metadata": {}, "items": items}))


def render_refusal(reason: str) -> bytes:
    """The answer to filter where there is none; of any status but 200 the scheduler would show the number alone."""
    return msgspec.json.encode(_FilterResult(error=reason))


def render_scores(scores: Iterable[tuple[str, int]]) -> bytes:
    """The answer to prioritize."""
    return msgspec.json.encode([_HostPriority(host=host, score=score) for host, score in scores])
