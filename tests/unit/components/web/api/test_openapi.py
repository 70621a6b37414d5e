"""The API's own description of itself."""

from msgspec import json

from nodeagent.components.web.api.index import INDEX
from nodeagent.components.web.api.openapi import ANSWERS, TEXTS, build_openapi
from nodeagent.model.orders import ORDERS
from tests.support.nodes import make_rich_state
from tests.support.texts.json_schema import find_breaks

DOCUMENT = build_openapi()


def _walk(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for inner in value.values() for found in _walk(inner)]
    return [found for inner in value for found in _walk(inner)] if isinstance(value, list | tuple) else []


def test_every_call_is_described_and_nothing_else() -> None:
    """The document has the calls of the index, each with its method and the form of its answer."""
    described = {f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert described == {endpoint.call for endpoint in INDEX.calls}
    assert {call.split()[1] for call in described} == set(ANSWERS) | {order.path for order in ORDERS} | TEXTS


def test_every_reference_leads_somewhere() -> None:
    """Generators of clients stumble over a reference to nothing."""
    names = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    references = _walk(DOCUMENT)
    assert references
    assert set(references) <= names


def test_a_whole_node_is_what_the_document_says() -> None:
    """A state with something of everything validates, and a broken one does not."""
    state = json.decode(json.encode(make_rich_state()))
    schema = DOCUMENT["components"]["schemas"]["StateRecord"]
    assert list(find_breaks(state, schema, DOCUMENT)) == []
    breaks = list(find_breaks({**state, "verdict": "fine", "pid": "7", "new": 1, "ready": None}, schema, DOCUMENT))
    assert len(breaks) == 4
