"""How what an agent answered is printed: with a first line, or a field, where it is about made-up hardware."""

from typing import Any, Protocol

from msgspec import json

FIELD = "simulated"


class Answerer(Protocol):
    """Who answered."""

    where: str
    simulated: str
    """The profile of made-up hardware that the answer is about; empty for a node."""


def say_simulated(answerer: Answerer) -> str:
    """The first line of an answer that is not about this node; empty for one that is."""
    if not answerer.simulated:
        return ""
    return f"{answerer.where}: a made-up {answerer.simulated}; nothing of this is about this machine\n"


def render_json(document: object, answerer: Answerer) -> str:
    """A document for scripts; what a simulation says carries its profile, a list in each of its entries."""
    content = document if isinstance(document, bytes) else json.encode(document)
    if answerer.simulated:
        content = json.encode(mark(json.decode(content), answerer.simulated))
    return json.format(content, indent=2).decode().rstrip() + "\n"


def mark(document: Any, profile: str) -> Any:
    """The document with the field that says that it is made up."""
    if isinstance(document, dict):
        return {FIELD: profile, **document}
    if isinstance(document, list):
        return [mark(entry, profile) for entry in document]
    return document
