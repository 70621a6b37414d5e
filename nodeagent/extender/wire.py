"""The questions and answers of kube-scheduler's extender interface, version 1, as they are on the wire.

Owns the names of the fields: kube-scheduler writes them with a capital and reads them in any case. With
`nodeCacheCapable: true` nodes come and go by name, otherwise as whole objects, handed back untouched. Refuses to parse
unbounded objects: a byte of a question can weigh a hundred once parsed.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from nodeagent.edge.kube.fleet_documents import decode_as, parse_pod
from nodeagent.extender.decide import Filtered
from nodeagent.extender.errors import QuestionMalformed, QuestionTooLarge
from nodeagent.model.scheduling import SeenPod

_WHAT: Final = "ExtenderArgs"
_NULL: Final = b"null"
POD_BYTES_MAX: Final = 3 << 20
"""The largest object that the API server takes."""
CONTAINERS_MAX: Final = 10_000
"""The most containers that fit into the largest object, as the API server writes them."""
NAME_BYTES: Final = 256
"""The longest name of a node, its quotes and a comma."""
NodeName: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
_EMPTY: Final = msgspec.Raw()
D = TypeVar("D")


class Asked(NamedTuple):
    """A question: a pod, and the nodes left for the pod."""

    pod: SeenPod
    names: tuple[str, ...]
    nodes: Mapping[str, msgspec.Raw] | None = None
    """Whole nodes, as received; `None` for nodes by name."""


class _Question(msgspec.Struct, frozen=True):
    """Other keys of the document are skipped, without a value made of them."""

    pod: msgspec.Raw = msgspec.field(default=_EMPTY, name="Pod")
    names: msgspec.Raw = msgspec.field(default=_EMPTY, name="NodeNames")
    nodes: msgspec.Raw = msgspec.field(default=_EMPTY, name="Nodes")


class _OldQuestion(msgspec.Struct, frozen=True):
    """A question as older releases spell it."""

    pod: msgspec.Raw = _EMPTY
    names: msgspec.Raw = msgspec.field(default=_EMPTY, name="nodenames")
    nodes: msgspec.Raw = _EMPTY


class _NodeList(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] | None = None


class _Counted(msgspec.Struct, frozen=True):
    """An object counted on parsing, so that an object too many ends the parsing."""

    left: ClassVar[int] = 0

    def __post_init__(self) -> None:
        _Counted.left -= 1
        if _Counted.left < 0:
            raise ValueError("there are too many of them")


class _NodeMetadata(msgspec.Struct, frozen=True):
    name: NodeName


class _NodeHead(_Counted, frozen=True):
    metadata: _NodeMetadata


class _NodeHeads(msgspec.Struct, frozen=True):
    items: list[_NodeHead] | None = None


class _SpecHead(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[_Counted] | None = None
    init_containers: list[_Counted] | None = None


class _PodHead(msgspec.Struct, frozen=True):
    spec: _SpecHead | None = None


class _FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    nodes: Mapping[str, object] | None = None
    node_names: tuple[str, ...] | None = None
    failed_nodes: Mapping[str, str] = {}
    failed_and_unresolvable_nodes: Mapping[str, str] = {}
    error: str = ""


class _HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    host: str
    score: int


def parse_question(body: bytes, *, most_nodes: int) -> Asked:
    """Read a question about at most `most_nodes` nodes.

    Raises:
        QuestionMalformed: No answerable question; the error says what is missing or wrong.
        QuestionTooLarge: More than a cluster of this size could ask.
    """
    try:
        question: _Question | _OldQuestion = decode_as(body, _Question, _WHAT)
        if not _has(question.pod):
            question = decode_as(body, _OldQuestion, _WHAT)
        if not _has(question.pod):
            raise QuestionMalformed("it names no pod")
        if len(memoryview(question.pod)) > POD_BYTES_MAX:
            raise QuestionTooLarge(f"the pod is longer than {POD_BYTES_MAX} bytes")
        _decode_counted(question.pod, _PodHead, "a pod", CONTAINERS_MAX)
        pod = parse_pod(question.pod)
        if _has(question.names):
            return Asked(pod, _read_names(question.names, most_nodes))
        if not _has(question.nodes):
            raise QuestionMalformed("it has neither NodeNames nor Nodes")
        nodes = _read_nodes(question.nodes, most_nodes)
    except ValueError as error:
        raise QuestionMalformed(str(error)) from error
    return Asked(pod, tuple(nodes), nodes)


def _has(raw: msgspec.Raw) -> bool:
    """Whether the field is set: kube-scheduler writes `null` for the unused one of the two."""
    return bool(raw) and bytes(memoryview(raw)[:4]) != _NULL


def _read_names(raw: msgspec.Raw, most: int) -> tuple[str, ...]:
    if len(memoryview(raw)) > (most + 1) * NAME_BYTES:
        raise QuestionTooLarge(_describe_too_many(most))
    names = decode_as(raw, list[NodeName], "a list of node names")
    if len(names) > most:
        raise QuestionTooLarge(_describe_too_many(most))
    return tuple(names)


def _read_nodes(raw: msgspec.Raw, most: int) -> dict[str, msgspec.Raw]:
    heads = _decode_counted(raw, _NodeHeads, "a list of nodes", most).items or ()
    items = decode_as(raw, _NodeList, "a list of nodes").items or ()
    return {head.metadata.name: item for head, item in zip(heads, items, strict=True)}


def _decode_counted(raw: msgspec.Raw, kind: type[D], what: str, most: int) -> D:
    _Counted.left = most
    try:
        return decode_as(raw, kind, what)
    except ValueError as error:
        if _Counted.left < 0:
            raise QuestionTooLarge(f"{what} with more than {most} entries") from error
        raise


def _describe_too_many(most: int) -> str:
    return f"a list of node names with more than {most} entries"


def render_filtered(asked: Asked, found: Filtered) -> bytes:
    """The answer to filter."""
    failed, hopeless = found.failed, found.hopeless
    return _render(asked, found.fitting, _FilterResult(failed_nodes=failed, failed_and_unresolvable_nodes=hopeless))


def render_all(asked: Asked) -> bytes:
    """The answer to filter for a pod without fractions: every node fits."""
    return _render(asked, asked.names, _FilterResult())


def _render(asked: Asked, fitting: Iterable[str], result: _FilterResult) -> bytes:
    if asked.nodes is None:
        return msgspec.json.encode(msgspec.structs.replace(result, node_names=tuple(fitting)))
    items = [asked.nodes[name] for name in fitting]
    return msgspec.json.encode(msgspec.structs.replace(result, nodes={"metadata": {}, "items": items}))


def render_refusal(reason: str) -> bytes:
    """The answer to filter without a result; of any status but 200 the scheduler would show the number alone."""
    return msgspec.json.encode(_FilterResult(error=reason))


def render_scores(scores: Iterable[tuple[str, int]]) -> bytes:
    """The answer to prioritize."""
    return msgspec.json.encode([_HostPriority(host=host, score=score) for host, score in scores])
