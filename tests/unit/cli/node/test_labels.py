"""`nodeagent labels` and `nodeagent render labels`, as scripts and people see them."""

import http.client
import json

import pytest
from msgspec import json as wire

from nodeagent.cli.answers.client import AgentClient
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.node import labels
from nodeagent.model.labels import LabelState
from tests.support.programs.command_line import run_here


@pytest.mark.may_block("the command reads the profile in its own short-lived loop")
def test_labels_are_rendered_without_an_agent() -> None:
    """Sorted `key=value` lines, and the same as JSON."""
    code, text, _ = run_here("render", "labels", "--gpus", "simulated:t4")
    lines = text.splitlines()
    assert code == ExitCode.OK
    assert lines == sorted(lines, key=lambda line: line.partition("=")[0])
    assert "nvidia.com/gpu.product=Tesla-T4" in lines
    found = json.loads(run_here("render", "labels", "--gpus", "simulated:t4", "--json")[1])
    assert [f"{key}={value}" for key, value in found.items()] == lines


@pytest.mark.may_block("the command reads the profile in its own short-lived loop")
def test_an_unknown_node_is_one_line() -> None:
    """A slip in the profile's name is said, with the names there are."""
    code, _, error = run_here("render", "labels", "--gpus", "simulated:typo")
    assert code == ExitCode.BAD_INPUT
    assert error.count("\n") == 1
    assert "dgx-h100" in error


class FakeAgent(AgentClient):
    """Answers one body."""

    where, simulated = "/run/nodeagent/admin.sock", ""

    def __init__(self, state: LabelState | None) -> None:
        super().__init__(http.client.HTTPConnection("nowhere"), "nowhere")
        self._body = wire.encode(state)

    def get(self, path: str) -> bytes:
        assert path == "/api/v1/labels"
        return self._body


def show(monkeypatch: pytest.MonkeyPatch, state: LabelState | None, *words: str) -> tuple[int, str]:
    monkeypatch.setattr(labels, "find_asked", lambda _arguments: FakeAgent(state))
    code, text, _ = run_here("labels", *words)
    return code, text


def test_labels_in_place_are_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything as wanted is exit code 0, and says where and since when."""
    state = LabelState(wanted={"a": "1"}, applied={"a": "1"}, sink="node", since_seconds=0)
    code, text = show(monkeypatch, state)
    assert code == ExitCode.OK
    assert "to be written to: node; unchanged since 19" in text


def test_what_is_held_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the labels would seem to know less than everybody else; nothing is wrong meanwhile."""
    held = {"a": "2", "b": ""}
    state = LabelState(wanted={"a": "1"}, applied={"a": "1"}, sink="node", since_seconds=0, held_back=held)
    code, text = show(monkeypatch, state)
    assert code == ExitCode.OK
    assert "held back until it has lasted: a=2, b to go\n" in text


def test_labels_that_differ_are_shown_with_both_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, other and left-over labels are told apart, with the last error; scripts get the state."""
    state = LabelState(wanted={"a": "1", "b": "2"}, applied={"b": "3", "c": "4"}, last_error="forbidden\x1b[2J")
    code, text = show(monkeypatch, state)
    assert code == ExitCode.UNWELL
    rows = [line.split() for line in text.splitlines()]
    assert ["a", "1", "no"] in rows
    assert ["b", "2", "3"] in rows
    assert ["c", "(none)", "4"] in rows
    assert "written nowhere" in text
    assert "\x1b" not in text
    code, text = show(monkeypatch, state, "--json")
    assert json.loads(text)["last_error"].startswith("forbidden")


def test_no_labels_yet_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first round there is nothing to compare."""
    assert show(monkeypatch, None) == (ExitCode.UNWELL, "no labels yet\n")
