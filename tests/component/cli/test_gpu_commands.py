"""The `gpu` commands, alone and beside a running simulation."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs.agent_process import AgentProcess, run_command, running_simulation
from tests.support.programs.command_line import run_here

NOBODY = ("--set", "http.listen=127.0.0.1:1")


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Arguments with which no agent is found."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return (*NOBODY, "--set", f"node.run_dir={tmp_path}", "--set", f"node.proc_dir={tmp_path}")


def test_list_works_without_an_agent(alone: tuple[str, ...]) -> None:
    """The driver itself is asked."""
    code, out, _ = run_here("gpu", "list", "--gpus", "simulated:dgx-h100", *alone)
    assert (code, len(out.splitlines())) == (0, 9)
    code, out, _ = run_here("gpu", "list", "--json", "--set", "gpus.source=simulated:mixed", *alone)
    assert (code, len(json.loads(out)["gpus"])) == (0, 3)


def test_topology_works_without_an_agent(alone: tuple[str, ...]) -> None:
    code, out, _ = run_here("gpu", "topology", "--gpus", "simulated:dgx-h100", *alone)
    assert (code, out.splitlines()[1].split()[:3]) == (0, ["GPU0", "X", "NV18"])
    code, out, _ = run_here("gpu", "topology", "--json", "--gpus", "simulated:dgx-h100", *alone)
    assert (code, len(json.loads(out)["pairs"]), len(json.loads(out)["numa_nodes"])) == (0, 28, 8)


def test_made_up_node_that_does_not_exist_is_bad_input(alone: tuple[str, ...]) -> None:
    """The message names the profiles there are."""
    code, _, err = run_here("gpu", "list", "--gpus", "simulated:nobody", *alone)
    assert code == 2
    assert "nobody" in err


def test_missing_driver_has_its_own_exit_code(alone: tuple[str, ...], tmp_path: Path) -> None:
    """Scripts tell a node without a driver from a mistyped command."""
    library = f"driver.nvml_library={tmp_path}/libnvidia-ml.so.1"
    code, out, err = run_here("gpu", "list", *alone, "--set", "gpus.source=nvml", "--set", library)
    assert (code, out) == (3, "")
    assert "no agent runs, and the GPUs cannot be read" in err


def test_health_needs_the_agent(alone: tuple[str, ...]) -> None:
    code, _, err = run_here("gpu", "health", *alone)
    assert code == 4
    assert "no agent answers" in err


def test_xids_need_nobody(alone: tuple[str, ...]) -> None:
    """The catalogue is part of the program, and is shown with this node's policy."""
    assert len(run_here("gpu", "xids", *alone)[1].splitlines()) == 177
    code, out, _ = run_here("gpu", "xids", "79", "--json", *alone, "--set", "health.disable_xids=[79]")
    (xid,) = json.loads(out)
    assert (code, xid["xid"]["number"], xid["xid"]["verdict"], xid["verdict_here"]) == (0, 79, "unhealthy", "healthy")
    assert run_here("gpu", "xids", "XID 13", *alone)[1].startswith("XID 13: ")


def test_holders_come_from_proc(alone: tuple[str, ...], tmp_path: Path) -> None:
    """No driver and no agent is needed; a pod nobody can name keeps its uid."""
    assert run_here("gpu", "holders", *alone)[1] == "no process holds a device file of the driver\n"
    process = tmp_path / "42"
    (process / "fd").mkdir(parents=True)
    (process / "fd" / "3").symlink_to("/dev/nvidia0")
    (process / "cmdline").write_bytes(b"python\0train.py\0")
    uid = "01234567-89ab-cdef-0123-456789abcdef"
    (process / "cgroup").write_text(f"0::/kubepods/pod{uid}/x\n")
    code, out, _ = run_here("gpu", "holders", "--json", *alone)
    (holder,) = json.loads(out)
    assert (code, holder["holder"]["pid"], holder["holder"]["pod_uid"], holder["pod"]) == (0, 42, uid, "")


def test_clear_asks_for_a_reason(alone: tuple[str, ...]) -> None:
    """Nobody takes a board back without saying why."""
    code, _, err = run_here("gpu", "clear", "0", *alone)
    assert code == 2
    assert "--reason" in err


@pytest.fixture(scope="module")
def node() -> Iterator[AgentProcess]:
    """One simulated node; each test leaves it as it found it."""
    directory = Path(tempfile.mkdtemp(prefix="na-"))
    options = ("--profile", "mixed", "--pods", "0", "--set", "health.poll_seconds=0.5")
    with running_simulation(directory, *options) as agent:
        agent.wait_for("/api/v1/gpus", '"verdict":"healthy"')
        yield agent
    directory.rmdir()


def test_agent_is_asked_where_one_runs(node: AgentProcess) -> None:
    """Its list has the verdicts."""
    listed = run_command(node.directory, "gpu", "list", *NOBODY)
    assert (listed.returncode, listed.stdout.count("healthy")) == (0, 3)
    health = run_command(node.directory, "gpu", "health", *NOBODY)
    assert (health.returncode, health.stdout.count("healthy")) == (0, 3)


@pytest.mark.long
def test_person_clears_a_board(node: AgentProcess) -> None:
    """From the fault to the clearing, with who and why in the events."""
    node.post("/api/v1/faults", {"fault": "row-remap", "arguments": ["1", "failed"]})
    node.wait_for("/api/v1/gpus", '"verdict":"unhealthy"')
    health = run_command(node.directory, "gpu", "health", *NOBODY)
    assert health.returncode == 1
    assert "GPU 1: unhealthy" in health.stdout
    assert "nodeagent gpu clear" in health.stdout
    done = run_command(node.directory, "gpu", "clear", "1", "--reason", "board tested", *NOBODY)
    assert (done.returncode, "\nGPU 1: forgot remap-failed" in done.stdout) == (0, True)
    assert '"reason":"board tested"' in node.get("/api/v1/events?follow=false&types=GpuCleared")[1]
    assert run_command(node.directory, "gpu", "health", *NOBODY).returncode == 0
    assert node.post("/api/v1/faults", {"fault": "clear"})[0] == 200


def test_health_is_not_well_while_a_gpu_is_gone(node: AgentProcess) -> None:
    """The others are healthy, and the one that has no verdict is told; of one of the others nothing is wrong."""
    node.post("/api/v1/faults", {"fault": "unplug", "arguments": ["1"]})
    node.wait_for("/api/v1/conditions", '"gpu-vanished"')
    health = run_command(node.directory, "gpu", "health", *NOBODY)
    assert health.returncode == 1
    assert "error: a GPU that this node had is gone" in health.stdout
    one = run_command(node.directory, "gpu", "health", "--gpu", "0", *NOBODY)
    assert (one.returncode, "gone" in one.stdout) == (0, False)
    assert node.post("/api/v1/faults", {"fault": "clear"})[0] == 200
    node.wait_gone("/api/v1/conditions", '"gpu-vanished"')
    node.wait_gone("/api/v1/gpus", '"verdict":"unknown"')


def test_clearing_nothing_is_refused(node: AgentProcess) -> None:
    """An unknown GPU, a sound one, an empty reason."""
    assert run_command(node.directory, "gpu", "clear", "9", "--reason", "x", *NOBODY).returncode == 2
    assert (
        "nothing is held against" in run_command(node.directory, "gpu", "clear", "0", "--reason", "x", *NOBODY).stderr
    )
    assert node.post("/api/v1/clear", {"gpu": "0", "reason": " "})[0] == 400


def test_release_and_resume(node: AgentProcess) -> None:
    """The agent gives up its handles, keeps the verdicts, and takes the driver back."""
    released = run_command(node.directory, "release", "--for", "10m", "--reason", "driver upgrade", *NOBODY)
    assert (released.returncode, "600 s from now" in released.stdout) == (0, True)
    node.wait_for("/api/v1/driver", "driver upgrade")
    assert run_command(node.directory, "gpu", "health", *NOBODY).returncode == 0
    assert run_command(node.directory, "resume", *NOBODY).returncode == 0
    node.wait_for("/api/v1/driver", '"phase":"ready"')


@pytest.mark.long
def test_a_gpu_is_taken_out_of_service_and_given_back(node: AgentProcess) -> None:
    """The kubelet counts it no more; the table says who chose; a restart would not forget it."""
    taken = run_command(node.directory, "gpu", "set-door", "1", "none", "--wait", "30s", *NOBODY)
    assert (taken.returncode, "GPU 1: door none (set by a person)" in taken.stdout) == (0, True)
    node.wait_for("/api/v1/conditions", '"gpu-door"')
    shown = run_command(node.directory, "gpu", "doors", "--gpu", "1", *NOBODY)
    assert shown.stdout.splitlines()[-1].split()[:4] == ["1", "none", "none", "no"]
    back = run_command(node.directory, "gpu", "set-door", "1", "configured", *NOBODY)
    assert (back.returncode, "GPU 1: door whole (the default)" in back.stdout) == (0, True)
    listed = run_command(node.directory, "gpu", "doors", "--json", *NOBODY)
    assert {one["door"] for one in json.loads(listed.stdout)} == {"whole"}


@pytest.mark.long
def test_a_gpu_is_cordoned_and_given_back(node: AgentProcess) -> None:
    """The door stays, new pods do not get the GPU, and each refusal says what to do."""
    done = run_command(
        node.directory, "gpu", "cordon", "1", "--reason", "fan", "--until", "2131-05-01T08:00:00Z", *NOBODY
    )
    assert (done.returncode, "until 2131-05-01T08:00:00Z" in done.stdout) == (0, True)
    node.wait_for("/api/v1/conditions", '"gpu-cordoned"')
    shown = run_command(node.directory, "gpu", "doors", "--gpu", "1", *NOBODY)
    assert shown.stdout.splitlines()[-1].split()[:4] == ["1", "whole", "whole", "no"]
    for words, told in (
        (("cordon", "1"), "the reason is missing"),
        (("cordon", "1", "--reason", "fan", "--until", "noon"), "'noon' is no time of RFC 3339"),
        (("cordon", "9", "--reason", "fan"), "no GPU '9' on this node"),
        (("uncordon", "0"), "neither a person nor the brake has cordoned a GPU 0"),
    ):
        refused = run_command(node.directory, "gpu", *words, *NOBODY)
        assert (refused.returncode, told in refused.stderr) == (2, True), refused
    assert run_command(node.directory, "gpu", "uncordon", "1", *NOBODY).returncode == 0
    node.wait_for("/api/v1/doors", '"cordons":[],"held_by":[],"trial":null}]')


def test_a_door_that_is_none_and_a_gpu_that_is_none_are_refused(node: AgentProcess) -> None:
    assert run_command(node.directory, "gpu", "set-door", "1", "ajar", *NOBODY).returncode == 2
    refused = run_command(node.directory, "gpu", "set-door", "9", "none", *NOBODY)
    assert (refused.returncode, "no GPU 9: name it by index" in refused.stderr) == (2, True)
    assert node.post("/api/v1/door", {"gpu": "1", "door": "fractions"})[0] == 409
    assert node.post("/api/v1/door", {"gpu": "1", "door": "ajar"})[0] == 400
