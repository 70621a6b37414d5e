"""The worker's own side, run in the test's process on the fake library: answers to requests, and odd libraries."""

import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pynvml
import pytest

from nodeagent.edge.nvml import launch, worker
from nodeagent.edge.nvml.command import render_command
from nodeagent.edge.nvml.errors import NOT_SUPPORTED, SUCCESS, UNINTELLIGIBLE, UNLOADABLE
from nodeagent.edge.nvml.events import Watcher
from nodeagent.edge.nvml.fabric import read_fabric
from nodeagent.edge.nvml.fields import _ITEM, FieldReader
from nodeagent.edge.nvml.gpm import METRICS, Profiler
from nodeagent.edge.nvml.library import SONAME, load_library
from nodeagent.edge.nvml.mig import read_mig
from nodeagent.edge.nvml.query import Query, call
from nodeagent.edge.nvml.sample import Sampler
from nodeagent.edge.nvml.worker import EXIT_RENEW, RENEW_SECONDS, Worker
from nodeagent.kernel.frames import UNASKED, read_frames
from tests.component.edge_nvml.conftest import InProcess

Load = Callable[..., InProcess]
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
    end_watch(loaded)


def end_watch(loaded: InProcess) -> None:
    """Let the waiting thread end, so that the test leaves none behind."""
    loaded.fake.push_wait_error(999)
    for thread in threading.enumerate():
        if thread.name == "nvml events":
            thread.join(10)


def test_requests_come_and_answers_go_in_frames(
    make_worker: MakeWorker, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer carries its request's number, until the pipe is closed."""
    worker, _ = make_worker("t4")
    asking = [(1, b'{"do":"open"}'), (2, b'{"do":"count"}')]
    monkeypatch.setattr("nodeagent.edge.nvml.worker.read_frames", lambda _descriptor: iter(asking))
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
from nodeagent.edge.nvml import launch
exec(sys.argv[3])
launch.load_slim()
import nodeagent.edge.nvml.worker as worker
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
    code = "import sys; sys.path.extend(sys.argv[1:3]); from nodeagent.edge.nvml.launch import load_slim; load_slim()"
    command = [sys.executable, "-I", "-S", "-E", "-c", f"{code}; print(*sys.modules)", *places]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "nodeagent.edge.nvml.worker" in loaded
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
    """Before anything else the worker ties its life to the agent's."""
    steps: list[str] = []
    monkeypatch.setattr(worker, "die_with_parent", lambda: steps.append("tied"))

    def claim() -> int:
        steps.append("claimed")
        return pipe[1]

    monkeypatch.setattr(worker, "claim_answers", claim)
    monkeypatch.setattr(worker, "read_frames", lambda _descriptor: iter(()))
    worker.serve("/", "")
    assert steps == ["tied", "claimed"]


def test_text_that_is_none_is_unintelligible(load_in_process: Load) -> None:
    """Bytes that are no text are a code, not an exception."""
    loaded = load_in_process("t4")
    loaded.fake.gpu(0).serial = b"\xff\xfe"
    query = Query(loaded.handle(0), {})
    assert call("nvmlDeviceGetSerial", query.handle) == (UNINTELLIGIBLE, None)
    assert query.ask("serial", "nvmlDeviceGetSerial") is None
    assert query.unreadable == [{"what": "serial", "reason": "the answer makes no sense (NVML code -2)"}]


def test_a_field_of_an_unknown_type_is_unintelligible(load_in_process: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value type that this agent does not know is not guessed at; the "unsupported" triple is absence."""
    loaded = load_in_process("t4")
    query = Query(loaded.handle(0), {})
    answers = {
        74: (1, 1, 99, bytes(8)),
        75: (0, 0, 0, bytes(8)),
        82: (1, 1, 1, struct.pack("=Q", 250)),
        83: (1, 1, 0, struct.pack("=d", float("nan"))),
        197: (1, 1, 5, struct.pack("=i4x", -3)),
    }

    def answer(_function: str, _handle: Any, _count: Any, buffer: Any) -> int:
        items = []
        for field, scope, *_ in _ITEM.iter_unpack(buffer.raw):
            timestamp, latency, kind, value = answers.get(field, (1, 1, 3, bytes(8)))
            items.append(_ITEM.pack(field, scope, timestamp, latency, kind, SUCCESS, value))
        buffer.raw = b"".join(items)
        return SUCCESS

    monkeypatch.setattr("nodeagent.edge.nvml.query.call_library", answer)
    assert FieldReader(0).read_swift(query) == {
        "pcie_transmit_bytes": -3,
        "pcie_receive_bytes": 0,
        "recovery_action": 0,
    }
    assert [mark["what"] for mark in query.unreadable] == ["power_violation_nanoseconds", "energy_millijoules"]


def test_implausible_temperatures_are_absent(load_in_process: Load) -> None:
    """No card runs at 250 degrees: that is how some say that they have no sensor."""
    loaded = load_in_process("t4")
    loaded.fake.gpu(0).temperature = 250
    sample, _ = Sampler(loaded.handle(0)).read()
    assert "gpu_temperature_celsius" not in sample


def test_a_licensed_guest_says_so(load_in_process: Load) -> None:
    """Only inside a virtual machine with a vGPU is the licence asked for."""
    loaded = load_in_process("t4")
    gpu = loaded.fake.gpu(0)
    assert Sampler(loaded.handle(0)).read()[0]["vgpu_license_active"] is False
    gpu.virtualization_mode, gpu.license_supported = 2, 1
    assert Sampler(loaded.handle(0)).read()[0]["vgpu_license_active"] is False
    gpu.license_active = 1
    assert Sampler(loaded.handle(0)).read()[0]["vgpu_license_active"] is True
    loaded.fake.fail("nvmlDeviceGetGridLicensableFeatures_v4", 999)
    assert "vgpu_license_active" not in Sampler(loaded.handle(0)).read()[0]


def test_a_burst_of_processes_is_asked_for_again(load_in_process: Load) -> None:
    """The list may outgrow its buffer between the binding's two calls; the second try has them all."""
    loaded = load_in_process("t4")
    loaded.fake.add_process(0, 5, 1 << 20)
    original, answers = pynvml.nvmlDeviceGetComputeRunningProcesses_v3, [pynvml.NVMLError(7)]

    def burst(handle: Any) -> Any:
        if answers:
            raise answers.pop()
        return original(handle)

    pynvml.nvmlDeviceGetComputeRunningProcesses_v3 = burst
    try:
        sample, _ = Sampler(loaded.handle(0)).read()
    finally:
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3 = original
    assert [process["pid"] for process in sample["processes"]] == [5]


@pytest.mark.parametrize("function", ["nvmlDeviceGetSupportedEventTypes", "nvmlEventSetCreate"])
def test_a_watch_that_cannot_begin_tells_its_code(load_in_process: Load, function: str) -> None:
    """Neither the question for kinds nor the set may fail unseen."""
    loaded = load_in_process("t4")
    watcher = Watcher(lambda _event: None)
    with loaded.fake.failing(function, 999):
        assert watcher.register(loaded.handle(0), "GPU-1") == 999
    loaded.fake.gpu(0).events_supported = 0x1
    assert watcher.register(loaded.handle(0), "GPU-1") == NOT_SUPPORTED


def test_an_event_by_another_handle_is_named_by_asking(load_in_process: Load) -> None:
    """A handle that was not registered is asked for its UUID; if it has none, nothing is told."""
    loaded = load_in_process()
    sent: list[dict[str, Any]] = []
    watcher = Watcher(sent.append)
    watcher.register(loaded.handle(0), "GPU-0")
    watcher._uuids.clear()
    loaded.fake.push_event(0, 8, 1)
    while not sent:
        time.sleep(0.005)
    loaded.fake.fail("nvmlDeviceGetUUID", 999)
    loaded.fake.push_event(0, 8, 2)
    end_watch(loaded)
    assert [one.get("gpu") for one in sent] == [loaded.fake.gpu(0).uuid.decode(), None]
    assert sent[-1] == {"ended": 999}


def test_without_the_privilege_for_some_kinds_xids_are_watched(load_in_process: Load) -> None:
    """A refusal of the whole mask is answered with the one kind that matters most."""
    loaded = load_in_process("t4")
    sent: list[dict[str, Any]] = []
    watcher = Watcher(sent.append)
    loaded.fake.fail("nvmlDeviceRegisterEvents", 4, times=1)
    assert watcher.register(loaded.handle(0), "GPU-0") == SUCCESS
    loaded.fake.push_event(0, 0x2, 1)
    loaded.fake.push_event(0, 0x8, 2)
    end_watch(loaded)
    assert [one.get("data") for one in sent] == [2, None]


def test_a_device_without_a_spoken_name_gets_a_computed_one(load_in_process: Load) -> None:
    """Old drivers name neither profiles nor devices; with the memory unknown too there is no name to trust."""
    loaded = load_in_process("a100-80gb-mig", hidden={"nvmlDeviceGetGpuInstanceProfileInfoV"})
    slot = loaded.fake.gpu(0).mig_devices[0]
    slot.name = b"NVIDIA A100"
    slot.compute_slices, slot.gpu_slices = 1, 2
    query = Query(loaded.handle(0), {})
    found = read_mig(query, loaded.fake.gpu(0).memory_total, "GPU-0")
    assert found is not None
    assert found["devices"][0]["profile"] == "1c.2g.10gb"
    assert found["profiles"][0]["name"] == "1g.10gb"
    nameless = read_mig(query, 0, "GPU-0")
    assert nameless is not None
    assert (len(nameless["devices"]), nameless["profiles"]) == (6, [])
    assert "profile of mig device 0" in [mark["what"] for mark in query.unreadable]


def test_a_device_that_is_gone_is_left_out_soon(load_in_process: Load) -> None:
    """A layout that changed between enumerations costs one sample with marks; the next has the devices that exist."""
    loaded = load_in_process("a100-80gb-mig")
    sampler = Sampler(loaded.handle(0))
    assert len(sampler.read()[0]["mig"]) == 7
    loaded.fake.cut(0, ["3g.40gb"])
    assert sampler.read()[0]["unreadable"] != []
    after, _ = sampler.read()
    assert [share["uuid"] for share in after["mig"]] == [loaded.fake.gpu(0).mig_devices[0].uuid.decode()]
    assert after["unreadable"] == []


def test_processes_are_merged_over_lists(load_in_process: Load) -> None:
    """One that computes and draws is one process, with the larger of its memories; unknown memory stays unknown."""
    loaded = load_in_process("t4")
    loaded.fake.add_process(0, 7, 100)
    loaded.fake.add_process(0, 7, 200, kind=1)
    loaded.fake.add_process(0, 8, 0xFFFFFFFFFFFFFFFF, gpu_instance=1)
    first, second = Sampler(loaded.handle(0)).read()[0]["processes"]
    assert (first["pid"], first["memory_used_bytes"], first["graphics"]) == (7, 200, True)
    assert (second["pid"], second["gpu_instance_id"], "memory_used_bytes" in second) == (8, 1, False)


def test_a_board_outside_a_fabric_has_none(load_in_process: Load) -> None:
    """State 0 means that there is nothing to register with."""
    loaded = load_in_process()
    loaded.fake.gpu(0).fabric_state = 0
    assert read_fabric(Query(loaded.handle(0), {})) is None


def test_a_library_asked_for_by_name_tells_its_file(load_in_process: Load) -> None:
    """The dynamic loader's choice is found among what is mapped."""
    load_in_process("t4")
    found = Path(load_library(SONAME).path)
    assert found.is_absolute()
    assert found.name == SONAME


def test_counters_start_over_when_samples_do_not_match(load_in_process: Load) -> None:
    """A failure between two samples costs one reading, not the counters for good."""
    loaded = load_in_process()
    sampler = Sampler(loaded.handle(0))
    sampler.read()
    for function in ("nvmlGpmMetricsGet", "nvmlGpmSampleGet"):
        time.sleep(0.12)
        with loaded.fake.failing(function, 999):
            broken, _ = sampler.read()
        assert "profiling" not in broken
        time.sleep(0.12)
        assert "profiling" not in sampler.read()[0]
        time.sleep(0.12)
        assert "profiling" in sampler.read()[0]
    sampler.close()


def test_profiling_buffers_that_cannot_be_had_are_told(load_in_process: Load) -> None:
    """Out of memory in the driver costs the counters and nothing else; nothing is kept half."""
    loaded = load_in_process()
    sampler = Sampler(loaded.handle(0))
    loaded.fake.fail("nvmlGpmSampleAlloc", 20)
    sample, _ = sampler.read()
    assert [mark["what"] for mark in sample["unreadable"]] == ["profiling"]
    assert sample["gpu_temperature_celsius"] == 29


def test_all_gpus_ask_for_metrics_in_one_buffer(load_in_process: Load) -> None:
    """Each gets its own numbers for its own list, though the answers of others lay in the same place before."""
    loaded = load_in_process()
    loaded.fake.gpu(0).gpm[2], loaded.fake.gpu(1).gpm[2] = 250, 750
    first, second = (Query(loaded.handle(index), {}) for index in (0, 1))
    asked = [(Profiler(), first), (Profiler(), second), (Profiler(None, {2: ("busy", 1.0)}), first)]
    assert [profiler.read(query) for profiler, query in asked] == [None] * 3
    time.sleep(0.12)
    whole, other, short = (profiler.read(query) or {} for profiler, query in asked)
    assert (whole["sm_active"], other["sm_active"], short) == (2.5, 7.5, {"busy": 250.0})
    assert list(whole) == list(other) == [name for name, _ in METRICS.values()]
    for profiler, _ in asked:
        profiler.close()
