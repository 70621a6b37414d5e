"""Fault sessions of a whole agent: kept over a kill and a reboot, told by commands, and with repairs off not loaded."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeagent.model.slots import CLUSTER, Domain
from tests.bench.around.api_server import ApiServerThread, api_server
from tests.fakes.apiserver import NODE
from tests.support.programs.agent_process import AgentProcess, run_command, running_agent, running_simulation

pytestmark = [pytest.mark.slow, pytest.mark.may_block("agents are processes of their own here")]

REPAIRS = "/api/v1/repairs"
LOADED = """
import re, sys
import nodeagent.app.agent
print([name for name in sys.modules if name.startswith("nodeagent.") and re.search("repair(s|_|$)", name)])
"""
FAST = ("--set", "health.poll_seconds=0.5", "--set", "health.clean_polls=1", "--set", "inventory.sample_seconds=0.2")


SLOW = ("--set", "health.poll_seconds=60")
"""Before its second poll an agent closes no session."""


SLOT = Domain(key=CLUSTER, value="", slots=1)


def words(
    directory: Path, boot: str, rhythm: tuple[str, ...] = FAST, *, mode: str = "observe", **more: object
) -> tuple[str, ...]:
    """An agent of made-up GPUs on a host whose kernel names this boot."""
    place = directory / "proc" / "sys" / "kernel" / "random"
    place.mkdir(parents=True, exist_ok=True)
    (place / "boot_id").write_text(f"{boot}\n")
    sets = {"gpus.source": "simulated:dgx-h100", "repairs.mode": mode, "node.proc_dir": directory / "proc"}
    sets |= {f"repairs.{key}": value for key, value in more.items()}
    return (*rhythm, *(word for key, value in sets.items() for word in ("--set", f"{key}={value}")))


def wait_sessions(agent: AgentProcess, is_so: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    body = agent.wait_until(REPAIRS, lambda body: is_so(json.loads(body)), "never came so far")
    sessions: list[dict[str, Any]] = json.loads(body)["sessions"]
    return sessions


def break_gpu(agent: AgentProcess) -> dict[str, Any]:
    """The session that a GPU off the bus opens; its silence may be seen before the event that explains it."""
    wait_sessions(agent, lambda state: state["mode"] == "observe" and not state["unsettled"])
    agent.inject("xid", "79", "3")
    (session,) = wait_sessions(agent, lambda state: "xid-79" in list_evidence(state["sessions"]))
    return session


def list_evidence(sessions: list[dict[str, Any]]) -> list[str]:
    return [one["key"] for session in sessions for one in session["evidence"]]


def test_a_session_outlives_a_kill_and_a_reboot(short_dir: Path) -> None:
    """Under the same number; the reboot is noted, and judged once the findings have settled."""
    with running_agent(short_dir, *words(short_dir, "one")) as agent:
        opened = break_gpu(agent)
        assert opened["cause"] in {"xid-79", "lost"}
        assert [gpu["index"] for gpu in opened["gpus"]] == [3]
        agent.wait_for("/api/v1/conditions", "GPU 3; mode is observe")
        agent.process.kill()
    with running_agent(short_dir, *words(short_dir, "one", SLOW)) as agent:
        (same,) = wait_sessions(agent, lambda state: len(state["sessions"]) == 1)
        assert (same["number"], same["boot"], same["attempts"]) == (opened["number"], "one", [])
        agent.process.kill()
    with running_agent(short_dir, *words(short_dir, "two")) as agent:
        (after,) = wait_sessions(agent, lambda state: bool(state["sessions"]) and not state["unsettled"])
        assert (after["number"], after["boot"]) == (opened["number"], "two")
        (attempt,) = after["attempts"]
        assert (attempt["rung"], attempt["is_own"]) == ("reboot", False)
        assert attempt["outcome"] is not None


def test_the_commands_say_what_would_be_done_and_why_it_is_not(short_dir: Path) -> None:
    with running_simulation(short_dir, "--pods", "0", "--set", "repairs.mode=observe", *FAST) as agent:
        number = break_gpu(agent)["number"]
        listed = run_command(short_dir, "repairs", "list")
        assert "would request a reboot of the node for GPU 3; mode is observe" in listed.stdout
        explained = run_command(short_dir, "repairs", "explain", str(number))
        assert f"session {number}  open, rung reboot" in explained.stdout
        asked = json.loads(run_command(short_dir, "repairs", "why-not", "3", "--json").stdout)
        assert asked["reasons"] == ["mode is observe"]
        assert "no fault is known" in run_command(short_dir, "repairs", "why-not", "2").stdout


def test_off_nothing_of_repairs_is_loaded() -> None:
    """But the journal's records, which every agent reads."""
    shown = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True).stdout
    allowed = {
        "nodeagent.model.repairs",
        "nodeagent.components.allocations.roles.repairs",
        "nodeagent.components.allocations.repair_journal_task",
    }
    assert set(json.loads(shown.replace("'", '"'))) == allowed


def test_a_gpu_that_needs_a_reset_is_reset_and_proven(short_dir: Path) -> None:
    """The agent lets go of the driver, resets the GPU, and closes the session once the polls find the GPU well."""
    with running_agent(short_dir, *words(short_dir, "one", mode="act")) as agent:
        wait_sessions(agent, lambda state: state["mode"] == "act" and not state["unsettled"])
        agent.inject("xid", "119", "3")
        (session,) = wait_sessions(agent, lambda state: [one["ending"] for one in state["sessions"]] == ["repaired"])
        (attempt,) = session["attempts"]
        assert (attempt["rung"], attempt["outcome"], attempt["is_own"]) == ("reset", "proven", True)
        assert session["closed_seconds"] - attempt["began_seconds"] < 10
        assert "reset under way" in run_command(short_dir, "events").stdout


@contextmanager
def running_in_cluster(api: ApiServerThread, directory: Path, node: str, boot: str) -> Iterator[AgentProcess]:
    """An agent whose repairs need the one slot of the cluster, and which may request a reboot that nobody does."""
    directory.mkdir(exist_ok=True)
    reboot = {"up_to": "reboot", "reboot_by": "command", "reboot_command": "true"}
    domains = json.dumps([{"label": CLUSTER, "slots": 1}])
    cluster = {
        "kubernetes.kubeconfig": api.server.write_kubeconfig(directory / "kubeconfig"),
        "node.name": node,
        "repairs.slots.domains": domains,
    }
    sets = [word for key, value in cluster.items() for word in ("--set", f"{key}={value}")]
    with running_agent(directory, *words(directory, boot, FAST, mode="act", **reboot), *sets) as agent:
        wait_sessions(agent, lambda state: state["mode"] == "act" and not state["unsettled"])
        yield agent


@pytest.mark.long
def test_two_nodes_with_one_slot_are_repaired_one_after_the_other(short_dir: Path) -> None:
    """The second names the first, which takes its slot over after its reboot and gives it back with the proof."""
    first, second, name = short_dir / "a", short_dir / "b", SLOT.name_slot(0)
    with api_server() as api:
        api.server.add_node("node-2")
        leases = api.server.store.objects["leases"]
        leases[name] = {"metadata": {"name": name, "namespace": "default", "resourceVersion": "1"}}

        with running_in_cluster(api, first, NODE, "one") as agent:
            agent.inject("xid", "79", "3")
            wait_sessions(agent, lambda state: any(one["attempts"] for one in state["sessions"]))
            assert leases[name]["spec"]["holderIdentity"].startswith(f"{NODE}/one/")
            agent.process.kill()
        with running_in_cluster(api, second, "node-2", "one") as agent:
            agent.inject("xid", "119", "5")
            agent.wait_for(REPAIRS, "no slot of cluster is free")
            said = run_command(second, "repairs", "why-not", "5").stdout
            assert f"no slot of cluster is free: {NODE}, seen for 0 min" in said
        with running_in_cluster(api, first, NODE, "two") as agent:
            wait_sessions(agent, lambda state: [one["ending"] for one in state["sessions"]] == ["repaired"])
            api.wait_for(lambda: leases[name]["spec"]["holderIdentity"] == "", "the slot back")
        with running_in_cluster(api, second, "node-2", "one") as agent:
            agent.inject("xid", "119", "5")
            wait_sessions(agent, lambda state: "repaired" in [one["ending"] for one in state["sessions"]])
            api.wait_for(lambda: '"results":[true,true]' in str(leases[name]["metadata"]), "both results")
