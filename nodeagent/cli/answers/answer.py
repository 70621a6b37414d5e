"""Whose answer it is: what a simulation says has a first line, or a field, that it is about made-up hardware."""

from typing import Any, Protocol

FIELD = "simulated"


class Answerer(Protocol):
    """Who answered."""

    where: str
    simulated: str
    """The profile of made-up hardware that the answer is about; empty for a node."""


class NoAgent:
    """The answerer where the person named the source, or the driver itself was asked."""

    where = ""
    simulated = ""


def say_simulated(answerer: Answerer) -> str:
    """The first line of an answer that is not about this node; empty for one that is."""
    if not answerer.simulated:
        return ""
    return f"{answerer.where}: a made-up {answerer.simulated}; nothing of this is about this machine\n"


def mark(document: Any, profile: str) -> Any:
    """The document with the field that says that it is made up, a list in each of its entries."""
    if not profile:
        return document
    if isinstance(document, dict):
        return {FIELD: profile, **document}
    if isinstance(document, list):
        return [mark(entry, profile) for entry in document]
    return document
