"""The whole agent on simulated nodes whose GPUs pods cannot get: it never says that all is well."""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.programs.agent_process import AgentProcess, run_command, running_agent, running_simulation

STATE = "/api/v1/state"


@contextmanager
def running(*words: str) -> Iterator[AgentProcess]:
    directory = Path(tempfile.mkdtemp(prefix="na-"))
    with running_simulation(directory, *words) as agent:
        yield agent
    directory.rmdir()


def show(node: AgentProcess) -> tuple[int, str, dict[str, Any]]:
    """Exit code, headline and record of `nodeagent status`."""
    status = run_command(node.directory, "status")
    record = json.loads(run_command(node.directory, "status", "--json").stdout)
    return status.returncode, status.stdout.splitlines()[1], record  # after the line that says that all is made up


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "code", "headline", "condition"),
    [
        (("--set", "gpus.include=[nope]"), 1, "✗ broken", "gpu-include-empty"),
        (("--set", "gpus.exclude=[0,1]"), 0, "6 of 8 GPUs offered: 2 excluded by configuration", "gpu-excluded"),
        (("--set", "gpus.expected=9"), 1, "9 by `gpus.expected`, 8 found", "gpus-fewer-than-expected"),
        (("--set", "device_plugin.enabled=false"), 0, "not offered to pods: `device_plugin.enabled` is false", ""),
        (("--profile", "a100-80gb-mig"), 1, "GPU 0: it is cut into MIG devices", "gpu-not-offered"),
    ],
)
def test_a_configuration_that_offers_less_is_told(
    words: tuple[str, ...], code: int, headline: str, condition: str
) -> None:
    """By the headline, by a condition, by the exit code, and by `/readyz`."""
    with running(*words) as node:
        node.wait_for("/readyz", "\nready\n")
        node.wait_for("/api/v1/conditions", condition)
        returned, first, record = show(node)
        assert returned == code, first
        assert headline in first
        assert "all is well" not in first
        assert record["sentence"] in node.get("/readyz")[1]


@pytest.mark.long
def test_a_gpu_taken_out_is_missed_until_it_is_forgotten() -> None:
    """Under a running pod and after; pods can get seven of eight."""
    with running("--pods", "8") as node:
        node.wait_for("/readyz", "\nready\n")
        node.wait_for(STATE, '"pod":{')
        node.inject("unplug", "3")
        node.wait_for("/api/v1/conditions", "gpu-vanished")
        returned, first, record = show(node)
        assert (returned, record["verdict"]) == (1, "broken")
        assert "a GPU that this node had is gone" in first
        assert 'nodeagent_gpus{state="vanished"} 1' in node.get("/metrics")[1]
        (gone,) = record["gpus"]["vanished"]
        assert "gone: GPU 3" in run_command(node.directory, "gpu", "list").stdout
        assert "no longer missed" in run_command(node.directory, "gpu", "forget", gone["uuid"]).stdout
        node.wait_gone("/api/v1/conditions", "gpu-vanished")
        assert run_command(node.directory, "gpu", "forget", "3").returncode != 0


@pytest.mark.long
def test_a_driver_that_hangs_is_an_error_when_pods_can_get_nothing() -> None:
    """Headline, metrics and the gauges that clusters alert on agree."""
    quick = ("--set", "health.poll_seconds=0.5", "--set", "driver.call_timeout_seconds=0.5")
    with running(*quick) as node:
        node.wait_for("/readyz", "\nready\n")
        node.wait_for(STATE, "all is well")
        node.inject("hang", "sample", "forever")
        node.wait_for("/metrics", "nodeagent_devices_offered 0")
        node.wait_for("/api/v1/conditions", "nothing-offered")
        returned, first, record = show(node)
        assert (returned, record["verdict"]) == (1, "broken")
        assert "0 of 8 GPUs offered" in first
        metrics = node.get("/metrics")[1]
        assert 'gpu_operator_node_plugin_ready{node="' in metrics
        assert "plugin_ready" in metrics
        (line,) = [line for line in metrics.splitlines() if line.startswith("gpu_operator_node_plugin_ready{")]
        assert line.endswith(" 0")


@pytest.mark.long
def test_a_driver_that_hangs_is_said_as_soon_as_readings_are_old() -> None:
    """At no moment is all well while a reading is old; a condition tells it, and the metric has that condition."""
    with running("--set", "driver.call_timeout_seconds=20") as node:
        node.wait_for("/readyz", "\nready\n")
        node.wait_for(STATE, "all is well")
        node.inject("hang", "sample", "forever")
        was_told, deadline = False, time.monotonic() + 10.0
        while not was_told and time.monotonic() < deadline:
            record = node.get_json(STATE)
            is_old = any(gpu["sample_is_old"] for gpu in record["gpus"]["gpus"])
            assert not (is_old and record["verdict"] == "ok"), record["sentence"]
            was_told = any(one["code"] == "sample-stale" for one in record["conditions"])
        assert was_told
        returned, first, _ = show(node)
        assert returned == 1
        assert "GPU readings are old" in first
        metrics = node.get("/metrics")[1]
        assert 'nodeagent_condition_active{code="sample-stale"' in metrics
        assert "nodeagent_driver_ready 0" in metrics
        # The start has passed the gate of the same name; nobody says of a gate that it is open, as of a state of now.
        assert 'nodeagent_gate_passed{gate="driver_ready"} 1' in metrics
        readiness = node.get("/readyz")[1]
        assert "[+] gate driver_ready passed" in readiness
        assert "sample-stale" in readiness


@pytest.mark.long
def test_a_preference_is_of_what_pods_can_get_now() -> None:
    """A lost GPU is not recommended, nor one that is held; a pod that asks for more than there is waits."""
    with running("--pods", "0") as node:
        node.wait_for("/readyz", "\nready\n")
        node.inject("lost", "0")
        node.wait_for("/metrics", "nodeagent_devices_offered 7")
        lost = node.get_json("/api/v1/gpus/0")["gpu"]["uuid"]
        seven = json.loads(run_command(node.directory, "gpu", "prefer", "--size", "7", "--json").stdout)["devices"]
        assert len(seven) == 7
        assert lost not in seven
        waits = run_command(node.directory, "gpu", "prefer", "--size", "8").stdout
        assert "a pod that asks for 8 waits: 7 of 8 are free and healthy" in waits


@pytest.mark.long
def test_gpus_that_are_all_gone_are_missed_by_an_agent_that_was_started_without_them(short_dir: Path) -> None:
    """A node that had GPUs is broken, and no node that never had any; a person may say that they are gone for good."""
    profile = short_dir / "node.yaml"
    words = ("--set", f"gpus.source=simulated:{profile}", "--set", "kubernetes.enabled=false")
    head = "summary: two T4\ndriver: {version: 535.261.03, cuda: [12, 2], open_module: false}\nnuma_cpus: {0: 0-3}\n"
    profile.write_text(f'{head}gpus: [{{model: t4, numa: 0, addresses: ["00:1e.0", "00:1f.0"]}}]\n')
    with running_agent(short_dir, *words) as agent:
        agent.wait_for("/api/v1/gpus", "0000:00:1f.0")
    profile.write_text(f"{head}gpus: []\n")
    with running_agent(short_dir, *words) as agent:
        agent.wait_for("/api/v1/conditions", "gpus-all-gone")
        record = agent.get_json(STATE)
        assert record["verdict"] == "broken"
        assert "all GPUs that this node had are gone: 2 GPUs were here until" in record["sentence"]
        assert [one["code"] for one in record["conditions"] if one["severity"] == "error"] == ["gpus-all-gone"]
        assert len(record["gpus"]["vanished"]) == 2
        assert 'nodeagent_gpus{state="vanished"} 2' in agent.get("/metrics")[1]
        for index in ("0", "1"):
            assert agent.post("/api/v1/forget", {"gpu": index, "who": "me"})[0] == 200
        agent.wait_for("/api/v1/conditions", "driver-no-hardware")
    with running_agent(short_dir, *words) as agent:
        agent.wait_for("/api/v1/conditions", "driver-no-hardware")
        assert "gpus-all-gone" not in agent.get("/api/v1/conditions")[1]


@pytest.mark.long
def test_what_happened_outlives_the_agent(short_dir: Path) -> None:
    """Events of the last life stand before those of this one, with their causes; a damaged file is said."""
    words = ("--set", "gpus.source=simulated:t4", "--set", "kubernetes.enabled=false")
    with running_agent(short_dir, *words) as agent:
        agent.wait_for("/api/v1/events?follow=false", "driver ready")
        agent.inject("xid", "79", "0")
        agent.wait_for("/api/v1/events?follow=false", "XID 79 on GPU 0")
    with running_agent(short_dir, *words) as agent:
        agent.wait_for("/api/v1/events?follow=false", "XID 79 on GPU 0")
        events = agent.get_json("/api/v1/events?follow=false")
        assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
        assert next(event for event in events if "XID 79" in event["text"])["seq"] < 0 < events[-1]["seq"]
        assert all(event["seq"] > 0 for event in agent.get_json("/api/v1/events?follow=false&since=0"))
    (short_dir / "state" / "events.json").write_bytes(b"nodeagent-events 1 3 beef\nabc")
    with running_agent(short_dir, *words) as agent:
        assert "events.json.aside.1" in agent.wait_for("/api/v1/conditions", "events-lost")
