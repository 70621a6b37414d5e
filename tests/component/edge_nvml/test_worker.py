"""The worker's own side, run in the test's process on the fake library: answers to requests."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from nodeagent.core.children.frames import UNASKED, read_frames
from nodeagent.edge.nvml.agent.command import render_command
from nodeagent.edge.nvml.errors import UNLOADABLE
from nodeagent.edge.nvml.worker import launch
from nodeagent.edge.nvml.worker import main as worker
from nodeagent.edge.nvml.worker.main import EXIT_RENEW, RENEW_SECONDS, Worker
from tests.component.edge_nvml.conftest import InProcess, Load

MakeWorker = Callable[..., tuple[Worker, InProcess]]


class Exited(Exception):
    """The worker would have ended itself."""


@pytest.fixture(autouse=True)
def _no_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(status: int) -> None:
        raise Exited(status)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(worker, "announce_step", lambda _name: None)  # this process has a name of its own


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Where the worker writes its answers, and where the agent would read them."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


@pytest.fixture
def make_worker(load_in_process: Load, pipe: tuple[int, int]) -> MakeWorker:
    """A worker over a fake that is loaded into this process."""

    def make(profile: str = "dgx-h100", **options: Any) -> tuple[Worker, InProcess]:
        loaded = load_in_process(profile, **options)
        return Worker("", str(loaded.library), pipe[1]), loaded

    return make


def ask_sample(address: str, uuid: str) -> dict[str, Any]:
    """The question for a sample of the first GPU."""
    return {"do": "sample", "gpus": [(0, address, uuid)]}


def test_nothing_is_answered_before_the_library_is_open(make_worker: MakeWorker) -> None:
    """The agent is told to open first; opening twice changes nothing."""
    worker, _ = make_worker("t4")
    assert worker.answer({"do": "count"}) == {"closed": True}
    opened = worker.answer({"do": "open"})
    assert opened["value"]["gpu_count"] == 1
    assert worker.answer({"do": "open"}) == opened
    assert worker.answer({"do": "count"}) == {"value": 1}


def test_failures_are_answers(make_worker: MakeWorker) -> None:
    """A failed call, a lost GPU and a missing library each have their code and words."""
    worker, loaded = make_worker()
    loaded.fake.fail("nvmlInitWithFlags", 9)
    assert worker.answer({"do": "open"})["failure"]["code"] == 9
    loaded.fake.clear()
    worker.answer({"do": "open"})
    loaded.fake.fail("nvmlDeviceGetCount_v2", 999)
    assert worker.answer({"do": "count"})["failure"]["message"].startswith("nvmlDeviceGetCount_v2: ")
    loaded.fake.fail("nvmlDeviceGetUUID", 15)
    assert worker.answer({"do": "gpu", "index": 0})["failure"]["code"] == 15


def test_a_new_enumeration_makes_the_samples_ask_again(make_worker: MakeWorker) -> None:
    """What a GPU did not support before may be there after a change; a bad index is a failure of that index."""
    worker, loaded = make_worker("t4")
    worker.answer({"do": "open"})
    request = ask_sample("0000:00:1e.0", loaded.fake.gpu(0).uuid.decode())
    assert "fan_speed_percent" not in worker.answer(dict(request))["value"]["samples"][0]
    loaded.fake.gpu(0).fan_percent = 30
    assert "fan_speed_percent" not in worker.answer(dict(request))["value"]["samples"][0]
    assert worker.answer({"do": "gpu", "index": 0})["value"]["name"] == "Tesla T4"
    assert worker.answer(dict(request))["value"]["samples"][0]["fan_speed_percent"] == 30
    assert worker.answer({"do": "gpu", "index": 1})["failure"]["code"] == 2


def test_a_missing_library_is_an_answer(pipe: tuple[int, int], tmp_path: Path) -> None:
    """It says which file, under a code that is none of NVML's."""
    answer = Worker("", str(tmp_path / "none.so"), pipe[1]).answer({"do": "open"})
    assert answer["failure"]["code"] == UNLOADABLE
    assert str(tmp_path / "none.so") in answer["failure"]["message"]


def test_a_library_replaced_before_it_worked_needs_a_new_process(
    make_worker: MakeWorker,
) -> None:
    """While the driver is down its library may be upgraded; what is loaded stays loaded."""
    worker, loaded = make_worker("t4")
    loaded.fake.fail("nvmlInitWithFlags", 18)
    worker.answer({"do": "open"})
    os.utime(loaded.library, ns=(1, 1))
    with pytest.raises(Exited, match=str(EXIT_RENEW)):
        worker.answer({"do": "open"})


def test_another_gpu_at_the_address_is_not_taken_for_the_known_one(
    make_worker: MakeWorker,
) -> None:
    """A card that was exchanged has another UUID: its sample says so instead of its numbers."""
    worker, _ = make_worker()
    worker.answer({"do": "open"})
    sample = worker.answer(ask_sample("0000:1b:00.0", "GPU-other"))["value"]["samples"][0]
    assert "another GPU sits at 0000:1b:00.0" in sample["lost"]


def test_a_gpu_that_cannot_be_opened_is_lost(make_worker: MakeWorker) -> None:
    """Whether its handle or its UUID fails, the reason names the call."""
    worker, loaded = make_worker()
    worker.answer({"do": "open"})
    uuid = loaded.fake.gpu(0).uuid.decode()
    request = {"gpu": "0000:1b:00.0", "uuid": uuid}
    for function in ("nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetUUID"):
        with loaded.fake.failing(function, 999):
            sampled = worker.answer(ask_sample(request["gpu"], uuid))["value"]["samples"][0]
            assert function in sampled["lost"]
            assert function in worker.answer({"do": "watch", **request})["failure"]["message"]


def test_stale_handles_need_a_new_process(make_worker: MakeWorker) -> None:
    """After a reset the process cannot open the GPU anew; before it has ever answered, staleness is not assumed."""
    worker, loaded = make_worker()
    worker.answer({"do": "open"})
    request = ask_sample("0000:1b:00.0", loaded.fake.gpu(0).uuid.decode())
    assert "lost" not in worker.answer(dict(request))["value"]["samples"][0]
    loaded.fake.restore(0)
    with pytest.raises(Exited, match=str(EXIT_RENEW)):
        worker.answer(dict(request))


def test_a_gpu_reset_before_it_was_ever_opened_needs_a_new_process(
    make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told as lost at first, and after a while the process makes way, however often the GPU is asked for."""
    worker, loaded = make_worker()
    worker.answer({"do": "open"})
    loaded.fake.restore(0)
    request = ask_sample("0000:1b:00.0", loaded.fake.gpu(0).uuid.decode())
    assert "handle may be stale" in worker.answer(dict(request))["value"]["samples"][0]["lost"]
    assert "handle may be stale" in worker.answer({"do": "gpu", "index": 0})["failure"]["message"]
    later = time.monotonic() + RENEW_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    for asked in (request, {"do": "gpu", "index": 0}):
        with pytest.raises(Exited, match=str(EXIT_RENEW)):
            worker.answer(dict(asked))


def test_paths_fabric_and_watch(make_worker: MakeWorker, pipe: tuple[int, int]) -> None:
    """The smaller questions, and an event that comes unasked."""
    worker, loaded = make_worker()
    worker.answer({"do": "open"})
    first, second = (
        {"gpu": address, "uuid": loaded.fake.gpu(index).uuid.decode()}
        for index, address in enumerate(("0000:1b:00.0", "0000:43:00.0"))
    )
    others = [(second["gpu"], second["uuid"])]
    assert worker.answer({"do": "paths", **first, "others": others}) == {"value": [40]}
    with loaded.fake.failing("nvmlDeviceGetTopologyCommonAncestor", 999):
        assert worker.answer({"do": "paths", **first, "others": others}) == {"value": [None]}
    assert worker.answer({"do": "fabric", **first})["value"]["phase"] == "completed"
    assert worker.answer({"do": "watch", **first}) == {"value": None}
    loaded.fake.push_event(0, 8, 31)
    number, payload = next(read_frames(pipe[0]))
    assert (number, b'"data":31' in payload) == (UNASKED, True)
    loaded.end_watch()


def test_requests_come_and_answers_go_in_frames(
    make_worker: MakeWorker, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer carries its request's number, until the pipe is closed."""
    worker, _ = make_worker("t4")
    asking = [(1, b'{"do":"open"}'), (2, b'{"do":"count"}')]
    monkeypatch.setattr("nodeagent.edge.nvml.worker.main.read_frames", lambda _descriptor: iter(asking))
    worker.serve()
    answers = read_frames(pipe[0])
    assert [next(answers)[0], next(answers)] == [1, (2, b'{"value":1}')]


def test_the_launch_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line of the worker is what it serves with."""
    served: list[tuple[str, ...]] = []
    monkeypatch.setattr(worker, "serve", lambda *arguments: served.append(arguments))
    launch.main(["/driver", ""])
    assert served == [("/driver", "")]


LAUNCH = """
import sys
sys.path.extend(sys.argv[1:3])
from nodeagent.edge.nvml.worker import launch
exec(sys.argv[3])
launch.load_slim()
import nodeagent.edge.nvml.worker.main as worker
import json, re, string
text = json.dumps({"a b": [1, -2.5, None, True, "\u00fc\\n"]}, allow_nan=False, separators=(",", ":"))
print(text, json.loads(text), worker.pynvml.NVMLError_GpuIsLost.__name__, re.match("a+", "aab")[0], string.digits)
"""


@pytest.mark.parametrize(
    "change",
    [
        "pass",
        "launch.make_stand_ins = dict",
        "launch.NoPattern.__init__ = lambda self: None",
        "launch.capitalize_words = None",
        "launch.PlainThread = launch.name_after = None",
    ],
    ids=["slim", "whole", "json dislikes it", "pynvml dislikes it", "the decorators are others"],
)
def test_slim_and_whole_imports_behave_alike(change: str) -> None:
    """With stand-ins, without, or where a release wants more of them: same text, and real modules afterwards."""
    places = render_command("", "")[6:8]
    command = [sys.executable, "-I", "-S", "-E", "-c", LAUNCH, *places, change]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = """{"a b":[1,-2.5,null,true,"\\u00fc\\n"]} {'a b': [1, -2.5, None, True, 'ü\\n']}"""
    assert done.stdout == f"{expected} NVMLError_GpuIsLost aa 0123456789\n"


def test_the_slim_worker_does_without_costly_modules() -> None:
    """Its memory and its start-up time are the agent's promise."""
    places = render_command("", "")[6:8]
    code = (
        "import sys; sys.path.extend(sys.argv[1:3]); from nodeagent.edge.nvml.worker import launch; launch.load_slim()"
    )
    command = [sys.executable, "-I", "-S", "-E", "-c", f"{code}; print(*sys.modules)", *places]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "nodeagent.edge.nvml.worker.main" in loaded
    costly = {
        "collections",
        "ctypes.util",
        "enum",
        "functools",
        "re",
        "signal",
        "string",
        "subprocess",
        "threading",
        "typing",
    }
    assert sorted(costly & set(loaded)) == []


def test_a_stand_in_names_a_wrapper_after_what_it_wraps() -> None:
    """What people see of the binding's functions is what the real `functools.wraps` shows."""

    def ask() -> None:
        """Ask it."""

    named = launch.name_after(ask)(lambda: None)
    assert (named.__name__, named.__doc__) == ("ask", "Ask it.")


def test_the_stand_in_for_a_thread_runs_beside_the_others() -> None:
    """It is started with its arguments and ends by itself; one that could outlive the process is refused."""
    said: Queue[int] = Queue()
    launch.PlainThread(target=said.put, args=(7,), name="says", daemon=True).start()
    assert said.get(timeout=20) == 7
    with pytest.raises(AssertionError, match="the thread says would not end with the process"):
        launch.PlainThread(target=said.put, args=(7,), name="says", daemon=False)


def test_serve_dies_with_the_agent_and_claims_the_answers(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int]
) -> None:
    """Before anything else the worker ties its life to the agent's, and gives up what it shall not do."""
    steps: list[str] = []
    monkeypatch.setattr(worker, "die_with_parent", lambda: steps.append("tied"))
    # For good, for whatever else this process would do.
    monkeypatch.setattr(worker, "give_up_device_nodes", lambda: steps.append("given up"))

    def claim() -> int:
        steps.append("claimed")
        return pipe[1]

    monkeypatch.setattr(worker, "claim_answers", claim)
    monkeypatch.setattr(worker, "read_frames", lambda _descriptor: iter(()))
    worker.serve("/", "")
    assert steps == ["tied", "given up", "claimed"]
