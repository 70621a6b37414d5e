"""The whole agent on a simulated node, in a process of its own."""

import json
import os
import signal
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs.agent_process import AgentProcess, run_command, running_simulation


@pytest.fixture(scope="module")
def node() -> Iterator[AgentProcess]:
    """One simulated node for the tests that leave it as they found it."""
    directory = Path(tempfile.mkdtemp(prefix="na-"))
    with running_simulation(directory, "--pods", "2") as agent:
        yield agent
    directory.rmdir()


def test_a_simulated_node_becomes_ready(node: AgentProcess) -> None:
    """All gates of vital parts open by themselves, and the endpoint says so."""
    body = node.wait_for("/readyz", "\nready\n")
    assert "[-]" not in body
    assert node.get("/readyz")[0] == 200
    assert node.get("/livez") == (200, "alive\n")
    assert node.get("/healthz") == (200, "alive\n")


def test_the_api_knows_the_hardware(node: AgentProcess) -> None:
    """Eight GPUs with their load, found by any of their names."""
    node.wait_for("/api/v1/gpus", "gpu_utilization_percent")
    gpus = node.get_json("/api/v1/gpus")["gpus"]
    assert [one["gpu"]["index"] for one in gpus] == list(range(8))
    uuid = gpus[3]["gpu"]["uuid"]
    assert node.get_json(f"/api/v1/gpus/{uuid}")["gpu"]["index"] == 3
    assert node.get("/api/v1/gpus/nobody")[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metrics",
        "/api/v1/",
        "/api/v1/state",
        "/api/v1/allocations",
        "/api/v1/labels",
        "/api/v1/conditions",
        "/api/v1/components",
        "/api/v1/gates",
        "/api/v1/driver",
        "/api/v1/debug",
        "/api/v1/events?follow=false",
    ],
)
def test_every_page_answers(node: AgentProcess, path: str) -> None:
    """No page of a healthy node fails."""
    status, body = node.get(path)
    assert status == 200
    assert body


def test_nothing_can_be_changed_over_tcp(node: AgentProcess) -> None:
    """The address that Prometheus scrapes has no commands at all."""
    assert node.get("/api/v1/faults")[0] == 404
    mode = node.admin_socket.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_malformed_commands_are_refused(node: AgentProcess) -> None:
    """Nonsense gets a problem document that names the mistake."""
    assert node.post("/api/v1/faults", {"fault": 3})[0] == 400
    assert node.post("/api/v1/faults", {"fault": "sing"})[0] == 409
    assert node.post("/api/v1/crash", {"component": "nobody"})[0] == 409


def test_faults_show_everywhere_and_go_away(node: AgentProcess) -> None:
    """A GPU that falls off the bus is a condition with a remedy, on every surface, until it is back."""
    assert "GPU 3" in node.post("/api/v1/faults", {"fault": "lost", "arguments": ["3"]})[1]["done"]
    assert "drain the node" in node.wait_for("/readyz", "gpu-lost")
    status = run_command(node.directory, "status")
    assert status.returncode == 1
    assert "a GPU no longer answers" in status.stdout
    assert json.loads(run_command(node.directory, "status", "--json").stdout)["verdict"] == "broken"
    assert "lost" in node.get("/")[1]
    assert "Faults of the simulation" in run_command(node.directory, "simulate", "fault").stdout.capitalize()
    assert run_command(node.directory, "simulate", "fault", "clear").returncode == 0
    node.wait_gone("/api/v1/conditions", "gpu-lost")
    events = [event["type"] for event in node.get_json("/api/v1/events?follow=false")]
    assert "FaultInjected" in events
    assert "GpuVanished" in events


def test_who_holds_what_is_a_command_away(node: AgentProcess) -> None:
    """Pods of the simulation are listed with their devices, as a table and for scripts, the ended ones too."""
    node.wait_for("/api/v1/allocations", '"pod":{')
    rows = json.loads(run_command(node.directory, "allocations", "--json").stdout)
    assert rows
    assert all(row["devices"] and row["resource"] == "nvidia.com/gpu" for row in rows)
    assert "POD" in run_command(node.directory, "allocations").stdout
    history = run_command(node.directory, "allocations", "--history")
    assert history.returncode == 0
    assert history.stdout


def test_a_crashed_component_comes_back_alone(node: AgentProcess) -> None:
    """The crash of one part is counted, repaired, and felt by no other."""
    node.post("/api/v1/crash", {"component": "inventory", "reason": "a test"})
    body = node.wait_for("/metrics", 'nodeagent_component_restarts_total{component="inventory"} 1')
    assert 'nodeagent_component_restarts_total{component="web"} 0' in body
    node.wait_for("/readyz", "\nready\n")


def test_live_events_arrive(node: AgentProcess) -> None:
    """A page that follows the events hears of a fault without asking again."""
    host, port = node.url.removeprefix("http://").rstrip("/").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as follower:
        follower.sendall(b"GET /api/v1/events?types=FaultInjected HTTP/1.1\r\nHost: localhost\r\n\r\n")
        heard = follower.recv(4096)
        assert b"text/event-stream" in heard
        node.post("/api/v1/faults", {"fault": "clear"})
        while b"event: FaultInjected" not in heard:
            heard += follower.recv(4096)


@pytest.mark.long
def test_a_reader_of_rare_events_hears_that_the_agent_is_there(node: AgentProcess) -> None:
    """Samples come every second and are not wanted; who hears nothing for 40 s would take the agent for gone."""
    host, port = node.url.removeprefix("http://").rstrip("/").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as follower:
        follower.sendall(b"GET /api/v1/events?types=FaultInjected HTTP/1.1\r\nHost: localhost\r\n\r\n")
        heard = b""
        while heard.count(b"\n: ") < 2:
            more = follower.recv(4096)
            assert more, heard
            heard += more


def test_a_second_simulation_of_one_name_is_refused(node: AgentProcess) -> None:
    """Two agents on one node would hand out a GPU twice; the second says who the first is and touches nothing."""
    second = run_command(node.directory, "simulate", "--simulation", "1", "--set", "http.listen=127.0.0.1:0")
    assert second.returncode == 2
    assert str(node.process.pid) in second.stderr
    assert node.admin_socket.exists()


@pytest.mark.long
def test_two_simulations_side_by_side_are_told_apart(short_dir: Path) -> None:
    """Each has its own directory and faults; without being told which one is meant, a command asks."""
    with (
        running_simulation(short_dir, "--pods", "0") as first,
        running_simulation(short_dir, "--profile", "t4", "--pods", "0") as second,
    ):
        assert any("nodeagent status --simulation 2" in line for line in second.output)
        for agent in (first, second):
            agent.wait_for("/api/v1/gpus", "gpu_utilization_percent")
        asked = run_command(short_dir, "simulate", "fault", "lost", "0")
        assert asked.returncode == 2
        assert f"1 (dgx-h100, {first.url}, process {first.process.pid})" in asked.stderr
        assert f"2 (t4, {second.url}, process {second.process.pid})" in asked.stderr
        assert run_command(short_dir, "simulate", "fault", "lost", "0", "--simulation", "2").returncode == 0
        second.wait_for("/api/v1/conditions", "gpu-lost")
        assert "gpu-lost" not in first.get("/api/v1/conditions")[1]
        assert second.stop() == 0
        status = run_command(short_dir, "status")
        assert status.stdout.startswith("simulation 1: a made-up dgx-h100; nothing of this is about this machine\n")
    assert list(short_dir.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("kept", [(), ("--keep-state",)])
def test_a_start_after_a_kill_knows_nothing_of_the_run_before(short_dir: Path, kept: tuple[str, ...]) -> None:
    """Unless it is asked to: the verdict on a GPU outlives a kill, as it does on a node."""
    with running_simulation(short_dir, "--pods", "0") as killed:
        killed.post("/api/v1/faults", {"fault": "xid", "arguments": ["48", "3"]})
        killed.wait_for("/api/v1/gpus/3", '"unhealthy"')
        killed.process.kill()
        killed.process.wait()
    with running_simulation(short_dir, "--pods", "0", *kept) as agent:
        agent.wait_for("/readyz", "\nready\n")
        body = agent.wait_for("/api/v1/gpus/3", '"verdict"')
        assert ('"unhealthy"' in body) == bool(kept)
    assert (list(short_dir.iterdir()) != []) == bool(kept)


@pytest.mark.parametrize(
    "words",
    [
        ("status", "--json"),
        ("top", "--json"),
        ("labels", "--json"),
        ("allocations", "--json"),
        ("events", "--json"),
        ("gpu", "list", "--json"),
        ("gpu", "health", "--json"),
        ("gpu", "topology", "--json"),
        ("gpu", "prefer", "--json"),
    ],
    ids=" ".join,
)
@pytest.mark.long
def test_nothing_made_up_passes_for_this_node(node: AgentProcess, words: tuple[str, ...]) -> None:
    """Whatever a simulation answers says so: people in its first line, scripts in a field, of each entry of a list."""
    node.wait_for("/api/v1/allocations", '"pod":{')
    node.wait_for("/api/v1/labels", "nvidia.com/gpu.count")
    document = json.loads(run_command(node.directory, *words).stdout)
    assert document
    for entry in document if isinstance(document, list) else [document]:
        assert entry["simulated"] == "dgx-h100"
    first = run_command(node.directory, *[word for word in words if word != "--json"], *ONCE.get(words[0], ()))
    assert first.stdout.startswith("simulation 1: a made-up dgx-h100; nothing of this is about this machine\n")


@pytest.mark.long
def test_the_doctor_says_that_it_asked_a_simulation(node: AgentProcess) -> None:
    """The rest of what it finds is about this machine."""
    said = "the agent that answers is a simulation of dgx-h100: what it says of itself is not about this machine\n"
    assert run_command(node.directory, "doctor").stdout.startswith(said)
    assert json.loads(run_command(node.directory, "doctor", "--json").stdout)["asked_simulation"] == "dgx-h100"


ONCE = {"top": ("--once",)}


def test_port_in_use_is_one_line(node: AgentProcess, short_dir: Path) -> None:
    """The error names the setting and the remedy, and nothing is left behind."""
    address = node.url.removeprefix("http://").rstrip("/")
    second = run_command(short_dir, "simulate", "--set", f"http.listen={address}")
    assert second.returncode == 2
    assert second.stderr.count("\n") == 1
    assert "http.listen" in second.stderr
    assert list(short_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "needle"),
    [
        (("--profile", "dgx-h1000"), "dgx-h100"),
        (("--set", "http.lisen=1"), "listen"),
        (("--set", "http.listen=nowhere"), "http.listen"),
        (("--set", "inventory.sample_seconds=-1"), "inventory.sample_seconds"),
        (("--set", "node.state_dir=/proc/nodeagent"), "node.state_dir"),
        (("--config", "/"), "directory"),
        (("--config", "/nowhere/config.yaml"), "/nowhere/config.yaml"),
        (("--pods", "-1"), "--pods"),
    ],
)
@pytest.mark.long
def test_bad_input_is_one_line_and_code_two(short_dir: Path, words: tuple[str, ...], needle: str) -> None:
    """What cannot start says why in one line, and leaves nothing behind."""
    refused = run_command(short_dir, "simulate", *words, "--for", "1s")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert needle in refused.stderr
    assert list(short_dir.iterdir()) == []


def test_a_profile_of_ones_own_that_is_wrong_is_named(short_dir: Path) -> None:
    """A person who writes a profile learns which file is wrong and where."""
    profile = short_dir / "mine.yaml"
    profile.write_text("driver: {version: 5}\n")
    refused = run_command(short_dir, "simulate", "--profile", str(profile), "--for", "1s")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert str(profile) in refused.stderr


def test_a_node_without_device_plugin_is_ready_without_a_kubelet(short_dir: Path) -> None:
    """Where another device plugin is in charge, readiness does not wait for ours."""
    with running_simulation(short_dir, "--set", "device_plugin.enabled=false", "--pods", "0") as agent:
        agent.wait_for("/readyz", "\nready\n")


def test_a_part_that_fails_for_good_is_a_condition_and_nothing_else(short_dir: Path) -> None:
    """Past its crash budget a part that is not vital is given up: on every surface, with everything else at work."""
    with running_simulation(short_dir, "--set", "supervisor.crash_budget=0") as agent:
        agent.wait_for("/readyz", "\nready\n")
        agent.post("/api/v1/crash", {"component": "exporter", "reason": "once too often"})
        body = agent.wait_for("/readyz", "component-failed")
        assert "once too often" in body
        assert body.endswith("\nready\n")
        status = run_command(short_dir, "status")
        assert status.returncode == 1
        assert "given up" in status.stdout
        agent.stop()
        assert agent.process.stderr is not None
        assert "component-failed" in agent.process.stderr.read()


def test_sigterm_ends_it_in_order(short_dir: Path) -> None:
    """The agent leaves with 0 and takes its directory along."""
    with running_simulation(short_dir) as agent:
        assert agent.stop() == 0
    assert list(short_dir.iterdir()) == []


def test_a_hung_call_does_not_hold_up_the_stop(short_dir: Path) -> None:
    """A driver call that never comes back is left to its fate when the agent must go."""
    with running_simulation(short_dir) as agent:
        agent.post("/api/v1/faults", {"fault": "hang", "arguments": ["all"]})
        assert agent.stop(signal.SIGINT) == 0


def test_a_vital_component_past_its_budget_ends_the_process(short_dir: Path) -> None:
    """What crashes again and again is given up loudly, with the code that a service manager restarts on."""
    with running_simulation(short_dir, "--set", "supervisor.crash_budget=0") as agent:
        agent.post("/api/v1/crash", {"component": "inventory", "reason": "once too often"})
        assert agent.process.wait(30) == 5
        assert agent.process.stderr is not None
        assert "once too often" in agent.process.stderr.read()


@pytest.mark.long
def test_reload_applies_what_may_change_and_names_the_rest(short_dir: Path) -> None:
    """SIGHUP takes over reloadable fields, names the others, and an invalid file changes nothing."""
    config = short_dir / "config.yaml"
    config.write_text("inventory: {sample_seconds: 2}\n")
    with running_simulation(short_dir, "--config", str(config)) as agent:
        config.write_text("inventory: {sample_seconds: 0.5}\nnode: {name: other}\n")
        agent.process.send_signal(signal.SIGHUP)
        agent.wait_for("/api/v1/events?follow=false&types=ConfigurationReloaded", "inventory.sample_seconds")
        agent.wait_for("/api/v1/conditions", "configuration-needs-restart")
        config.write_text("inventory: {sample_secnds: 1}\n")
        os.kill(agent.process.pid, signal.SIGHUP)
        assert "sample_secnds" in agent.wait_for("/api/v1/conditions", "configuration-invalid")
        refused = run_command(short_dir, "reload")
        assert refused.returncode == 2
        config.write_text("inventory: {sample_seconds: 0.5}\n")
        assert run_command(short_dir, "reload").returncode == 0
        agent.wait_gone("/api/v1/conditions", "configuration-")
