"""The source of an answer: a simulation's answer is marked by a first line, or by a field."""

from typing import Any, Protocol

FIELD = "simulated"


class Answerer(Protocol):
    """The source of an answer."""

    where: str
    simulated: str
    """The hardware profile of the answering simulation; empty for a node."""


class NoAgent:
    """The source of an answer without an agent: the driver, or a source named on the command line."""

    where = ""
    simulated = ""


def say_simulated(answerer: Answerer) -> str:
    """The first line of a simulation's answer; empty for this node's answer."""
    if not answerer.simulated:
        return ""
    return f"{answerer.where}: a made-up {answerer.simulated}; nothing of this is about this machine\n"


def mark(document: Any, profile: str) -> Any:
    """The document with a field that marks the simulation, a list in each of its entries."""
    if not profile:
        return document
    if isinstance(document, dict):
        return {FIELD: profile, **document}
    if isinstance(document, list):
        return [mark(entry, profile) for entry in document]
    return document
