"""One failing GPU, followed by causes from the driver's word to the node's labels through every part of an agent."""

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs.agent_process import PATIENCE_SECONDS, AgentProcess, run_command, running_simulation
from tests.support.texts.html import Page

Events = dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
def node() -> Iterator[AgentProcess]:
    """A simulated node on which GPU 3 has just fallen off the bus, and everybody has heard of it."""
    with tempfile.TemporaryDirectory(prefix="na-") as directory:
        with running_simulation(Path(directory), "--pods", "0", "--set", "labels.hold_seconds=0") as agent:
            agent.wait_for("/readyz", "\nready\n")
            agent.wait_for("/api/v1/events?follow=false&types=LabelsApplied", "gpu.healthy.count")
            agent.inject("xid", "79", "3")
            wait_for_effects(agent)
            yield agent


def read_events(agent: AgentProcess) -> Events:
    return {one["seq"]: one for one in agent.get_json("/api/v1/events?follow=false")}


def follow_back(events: Events, seq: int) -> list[dict[str, Any]]:
    """The event and its causes, the first last."""
    chain: list[dict[str, Any]] = []
    at: int | None = seq
    while at is not None:
        chain.append(events[at])
        at = events[at]["cause"]
    return chain


def find_root(events: Events) -> int:
    return next(seq for seq, one in events.items() if one["type"] == "XidReported" and one["value"]["xid"] == 79)


def find_effects(events: Events) -> dict[str, dict[str, Any]]:
    """By type, the last event that goes back to the XID."""
    root = find_root(events)
    return {one["type"]: one for seq, one in events.items() if follow_back(events, seq)[-1]["seq"] == root}


def wait_for_effects(agent: AgentProcess) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    wanted = {"GpuVanished", "VerdictChanged", "DevicesAdvertised", "LabelsApplied"}
    while time.monotonic() < deadline:
        if wanted <= find_effects(read_events(agent)).keys():
            return
        time.sleep(0.1)
    raise AssertionError(f"only {sorted(find_effects(read_events(agent)))} go back to the XID")


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("GpuEventReported", "inventory"),
        ("Inventory", "inventory"),
        ("GpuVanished", "inventory"),
        ("HealthReport", "health"),
        ("VerdictChanged", "health"),
        ("CdiState", "cdi"),
        ("PluginState", "deviceplugin"),
        ("DevicesAdvertised", "deviceplugin"),
        ("LabelsApplied", "labeler"),
        ("LabelState", "labeler"),
        ("ActiveConditions", "conditions"),
    ],
)
def test_every_part_passes_the_cause_on(node: AgentProcess, kind: str, source: str) -> None:
    """From whatever a part says about the lost GPU, causes lead back to the XID."""
    effects = find_effects(read_events(node))
    assert kind in effects
    assert effects[kind]["source"] == source


def test_the_cause_is_an_event_before_and_not_the_time(node: AgentProcess) -> None:
    """Causes come before their effects, and the injection beside the XID, which nobody named, is a chain of its own."""
    events = read_events(node)
    assert all(one["cause"] is None or one["cause"] < seq for seq, one in events.items())
    injected = next(seq for seq, one in events.items() if one["type"] == "FaultInjected")
    assert injected not in {one["seq"] for one in follow_back(events, find_root(events))}


def test_the_page_shows_one_chain(node: AgentProcess) -> None:
    """XID, vanished, unhealthy, kubelet told and labels changed stand in one entry of the page."""
    page = Page(node.get("/")[1])
    (chain,) = [text for text in page.list_texts() if "XID 79" in text]
    words = ("XID 79 on GPU 3", "GPU 3 is lost", "GPU 3 healthy → unhealthy", "kubelet told: 7 of 8", "labels changed")
    assert [word for word in words if word not in chain] == []
    assert "XID 79" in node.get("/gpus/3")[1]
    assert "labels changed" in node.get("/gpus/3")[1]


@pytest.mark.long
def test_the_terminal_shows_the_same_chain(node: AgentProcess) -> None:
    """`nodeagent events` indents what follows from the XID under it, and can be asked about the one GPU."""
    lines = run_command(node.directory, "events", "--gpu", "3").stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.endswith("XID 79 on GPU 3"))
    below = []
    for line in lines[at + 1 :]:
        if not line.lstrip().startswith("+"):
            break
        below.append(line)
    for word in ("GPU 3 is lost", "GPU 3 healthy → unhealthy", "kubelet told: 7 of 8", "labels changed (nfd_file)"):
        assert any(word in line for line in below), (word, lines)
    records = json.loads(run_command(node.directory, "events", "--json").stdout)
    assert {one["type"] for one in records} >= {"XidReported", "LabelsApplied"}
    assert run_command(node.directory, "events", "--gpu", "9").returncode == 2
    assert run_command(node.directory, "events", "--last", "0").returncode == 2
