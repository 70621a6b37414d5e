"""The commands about repairs, with an agent that says what the test says."""

import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from nodeagent.cli.answers import asking
from nodeagent.components.web.api.records import GpuRecord, GpusRecord
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.repairs import Ending, RepairState, Rung
from nodeagent.rules.repair.plans import plan_sessions
from nodeagent.rules.repair.sessions import Moment
from nodeagent.rules.signals import Hold
from tests.support.gpus import gpu_uuid, make_node
from tests.support.programs.command_line import run_here
from tests.support.repairs import make_attempt, make_session

pytestmark = pytest.mark.may_block("commands read files in their own short-lived loop")

NODE = make_node(2)
HELD = [Hold(pod=PodIdentity(namespace="team", name="train", uid="u"), device=gpu_uuid(1))]
GONE = replace(make_session(7, 5), ending=Ending.REMOVED, closed_seconds=120.0)
OPEN = make_session(12, 1, attempts=[replace(make_attempt(Rung.DRAIN), detail="the fault is still there")])
STATE = RepairState(
    mode="observe",
    sessions=(OPEN, GONE),
    plans=plan_sessions((OPEN, GONE), NODE, HELD, Moment(now_seconds=1.0, boot="one"), "observe"),
    reasons={gpu_uuid(0): "no fault is known"},
)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command with an agent in a state."""

    def run_with(state: RepairState, *words: str) -> tuple[int, str, str]:
        gpus = GpusRecord(generation=1, gpus=tuple(GpuRecord(gpu=gpu) for gpu in NODE.gpus))
        agent = SimpleNamespace(simulated="", read=lambda path, _: state if path.endswith("repairs") else gpus)
        monkeypatch.setattr(asking, "find_agent", lambda *_: agent)
        return run_here("repairs", *words)

    return run_with


def test_a_session_is_a_line_and_a_gpu_that_is_gone_keeps_its_last_index(run: Run) -> None:
    code, out, _ = run(STATE, "list", "-o", "wide", "--no-headers")
    first, second = (" ".join(line.split()) for line in out.splitlines()[:2])
    assert code == 0
    assert first.startswith("12 1 xid-119 reset open")
    assert first.endswith("would reset GPU 1; mode is observe")
    assert second.startswith("7 5 (gone) xid-119 reset removed")
    assert json.loads(run(STATE, "list", "--json")[1])["sessions"][0]["number"] == 12


def test_a_list_says_why_there_is_nothing_in_it(run: Run) -> None:
    assert "repairs are off" in run(RepairState(), "list")[1]
    assert "it settles" in run(RepairState(mode="observe", unsettled="it settles"), "list")[1]


def test_a_session_is_explained_by_number_or_gpu(run: Run) -> None:
    """Each fault, each attempt, the plan, and what keeps it back."""
    code, out, _ = run(STATE, "explain", "12")
    assert (code, run(STATE, "explain", "1")[1]) == (0, out)
    assert out == (
        "session 12  open, rung reset\n"
        f"  gpu        1  {gpu_uuid(1)}  0000:11:00.0  board {gpu_uuid(1)}\n"
        "  opened     1970-01-01T00:00:00Z by xid-119\n"
        "  fault      xid-119 of GPU 1, 1970-01-01T00:00:00Z: asks for reset\n"
        "  attempt    1970-01-01T00:00:00Z drain: failed; the fault is still there\n"
        "  plan       would reset GPU 1; mode is observe\n"
        "  must leave team/train\n"
        "  not done   mode is observe\n"
        "  not done   the GPUs are held by team/train\n"
    )
    closed = run(STATE, "explain", str(gpu_uuid(5)))[1]
    assert closed.startswith("session 7  removed, rung reset\n  gpu        5 (gone)")
    assert "  closed     1970-01-01T00:02:00Z, removed\n" in closed
    under_way = replace(STATE, sessions=(replace(OPEN, attempts=(make_attempt(outcome=None),)),))
    assert "reset: has not ended\n" in run(under_way, "explain", "12")[1]


@pytest.mark.parametrize(("state", "hint"), [(STATE, "`nodeagent repairs list`"), (RepairState(), "repairs are off")])
def test_a_session_that_is_not_there_is_an_error_with_the_way_on(run: Run, state: RepairState, hint: str) -> None:
    code, _, complaint = run(state, "explain", "0")
    assert code == 2
    assert complaint.startswith("nodeagent: no fault session 0, and none of a GPU 0: ")
    assert hint in complaint


def test_why_nothing_is_done_about_a_gpu(run: Run) -> None:
    assert run(STATE, "why-not", "1")[1] == (
        "GPU 1  session 12 would reset GPU 1; mode is observe\n"
        "  because    mode is observe\n"
        "  because    the GPUs are held by team/train\n"
    )
    assert run(STATE, "why-not", "0")[1] == "GPU 0  no session\n  because    no fault is known\n"
    assert "repairs are off" in run(RepairState(), "why-not", "0")[1]
    unsettled = RepairState(mode="observe", unsettled="it settles")
    assert run(unsettled, "why-not", "0")[1] == "GPU 0  no session\n  because    it settles\n"
    assert "no verdict yet" in run(RepairState(mode="observe"), "why-not", "0")[1]
    code, _, complaint = run(STATE, "why-not", "9")
    assert (code, "no GPU 9: name it by index" in complaint) == (2, True)
