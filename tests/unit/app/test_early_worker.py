"""The GPU worker that is started ahead of everything: when, with what, and what becomes of it."""

import json
import os
from pathlib import Path

import pytest

from nodeagent.app.early_worker import are_nodes_there, name_driver, start_early_worker
from nodeagent.config.load import load_settings
from nodeagent.config.schema import Settings
from nodeagent.core.children.frames import FrameDecoder
from nodeagent.core.children.spawn import discard, spawn
from nodeagent.edge.nvml.agent.command import EarlyWorker, render_command, render_environment

NO_LIBRARY = ("driver.nvml_library=/nowhere/libnvidia-ml.so.1",)


def load(*overrides: str) -> Settings:
    return load_settings(environ={}, overrides=overrides).settings


def place(directory: Path, *names: str) -> None:
    directory.mkdir(parents=True)
    for name in names:
        (directory / name).touch()


def read_frame(descriptor: int) -> tuple[int, object]:
    decoder = FrameDecoder()
    while data := os.read(descriptor, 65536):
        for number, payload in decoder.feed(data):
            return number, json.loads(payload)
    raise AssertionError("the worker ended without a word")


def test_the_library_is_being_opened_before_anybody_asks() -> None:
    """A question goes ahead, under a number that no later one has; what comes of it is the worker's to keep."""
    settings = load(*NO_LIBRARY)
    with start_early_worker(settings) as worker:
        assert worker is not None
        process = worker.take(render_command(*name_driver(settings)), render_environment({}))
        assert process is not None
        assert process.stdout is not None
        number, answer = read_frame(process.stdout.fileno())
        discard(process)
        process.wait()
    assert number == 0xFFFFFFFF
    assert "cannot load /nowhere" in json.dumps(answer)


@pytest.mark.parametrize(
    ("listed", "nodes", "overrides", "there"),
    [
        ((), (), (), True),
        (("0000:1b:00.0", "0000:43:00.0"), ("nvidia0", "nvidia1", "nvidiactl"), (), True),
        (("0000:1b:00.0", "0000:43:00.0"), ("nvidia0", "nvidiactl"), (), False),
        (("0000:1b:00.0",), ("nvidia0",), ("driver.dev_root=/nowhere",), False),
    ],
    ids=["no module", "complete", "one missing", "elsewhere"],
)
def test_the_library_is_left_alone_while_nodes_are_missing(
    tmp_path: Path, listed: tuple[str, ...], nodes: tuple[str, ...], overrides: tuple[str, ...], *, there: bool
) -> None:
    """The driver component makes the nodes first; a library opened before that would not see all GPUs."""
    place(tmp_path / "proc/driver/nvidia/gpus", *listed)
    place(tmp_path / "dev", *nodes)
    settings = load(f"node.proc_dir={tmp_path}/proc", f"node.host_root={tmp_path}", *overrides)
    assert are_nodes_there(settings) is there


def test_no_question_is_asked_while_nodes_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker starts all the same."""
    place(tmp_path / "driver/nvidia/gpus", "0000:1b:00.0")
    opened: list[EarlyWorker] = []
    monkeypatch.setattr(EarlyWorker, "open_library", opened.append)
    with start_early_worker(load(f"node.proc_dir={tmp_path}", f"node.host_root={tmp_path}/absent")) as worker:
        assert worker is not None
    assert opened == []


def test_made_up_gpus_need_no_worker() -> None:
    """A simulation starts no process."""
    with start_early_worker(load("gpus.source=simulated:t4")) as worker:
        assert worker is None


def test_a_worker_that_cannot_be_started_is_left_to_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who needs it tries again and says what is wrong."""
    monkeypatch.setattr("nodeagent.app.early_worker.render_command", lambda *_: ["/nowhere/python"])
    with start_early_worker(load(*NO_LIBRARY)) as worker:
        assert worker is None


def test_a_worker_that_nobody_takes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a refused start nor other settings leave a process behind, and none is taken twice."""
    processes = []

    def note(*words: object) -> object:
        processes.append(spawn(*words))  # type: ignore[arg-type] # passed on as they come
        return processes[-1]

    monkeypatch.setattr("nodeagent.edge.nvml.agent.command.spawn", note)
    settings = load(*NO_LIBRARY)
    with start_early_worker(settings):
        pass
    with start_early_worker(settings) as worker:
        assert worker is not None
        argv = render_command(*name_driver(settings))
        assert worker.take(argv, render_environment({"OTHER": "1"})) is None
        assert worker.take(argv, render_environment({})) is None
        worker.open_library()
    assert [process.wait(20) for process in processes] == [-9, -9]
