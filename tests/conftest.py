"""What holds for every test: nothing leaks, nothing blocks the loop, nothing comes in from the environment.

A test that leaves a task, thread, descriptor or child process behind fails, and so does library code that blocks the
event loop.
`virtual_time` runs a test on a clock that jumps (see `tests/support/virtual_time.py`).
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, MutableMapping
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog

from nodeagent.core.children.worker_thread import WorkerThread
from tests.support.guards.blocking import forbid_blocking
from tests.support.guards.leaks import Leaks, forbid_leaked_tasks
from tests.support.virtual_time import FakeClock, VirtualTimeLoop

_FOREIGN_VARIABLES = ("NO_COLOR", "FORCE_COLOR", "KUBECONFIG", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_MEASURING = "COVERAGE_PROCESS_CONFIG"
_MEASURED = tuple(Path(__file__).parent / name for name in ("component/app", "component/core", "unit/core"))
"""Whose children are measured: measuring doubles the time of a process, and other agents run the same lines."""
_FOREIGN_PREFIXES = ("NODEAGENT_", "NVIDIA_", "KUBERNETES_", "CUDA_")


# no deadline per example, nor for making one: a busy machine is not a failure; the timeout per test remains
hypothesis.settings.register_profile(
    "nightly", deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
# the same examples in every run: what fails, or what coverage finds, is the change's doing; by night they are others
hypothesis.settings.register_profile(
    "change", hypothesis.settings.get_profile("nightly"), derandomize=True, max_examples=25
)


def pytest_configure(config: pytest.Config) -> None:
    # A change is tried with a quarter of the examples, as `make nightly` tries all of them.
    hypothesis.settings.load_profile(config.getoption("--hypothesis-profile") or "change")
    # Of a run that a script started in the background, each child would inherit that Ctrl-C is nothing to it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "virtual_time: the loop's clock jumps to the next timer when all is idle")
    config.addinivalue_line("markers", "may_leak(reason): the leak guard looks away; say why")
    config.addinivalue_line("markers", "may_block(reason): library code may block the loop here; say why")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Among several workers what takes long begins first; whoever is done takes over from whoever is not."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: -sum(item.get_closest_marker(name) is not None for name in ("slow", "long")))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    # before the coroutine is made a plain function for the loop's runner: from there on nobody sees its tasks
    if isinstance(item, pytest.Function) and not item.get_closest_marker("may_leak"):
        holder, name = (item.obj.hypothesis, "inner_test") if hasattr(item.obj, "hypothesis") else (item, "obj")
        if iscoroutinefunction(test := getattr(holder, name)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(holder, name, forbid_leaked_tasks(test))
                return (yield)
    return (yield)


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that an async test runs on: on a jumping clock where it asks for it."""
    if item.get_closest_marker("virtual_time"):
        return {"virtual": VirtualTimeLoop}
    return {"real": asyncio.SelectorEventLoop}


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory with a short name: a unix socket's path has room for 107 bytes, and pytest's own names are long."""
    directory = Path(tempfile.mkdtemp(prefix="na-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def worker() -> Iterator[WorkerThread]:
    worker = WorkerThread("test")
    yield worker
    worker.close()


@pytest.fixture
def clock() -> FakeClock:
    """A clock tied to the test's loop."""
    return FakeClock()


@pytest.fixture(autouse=True)
def _clean_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not any(request.path.is_relative_to(place) for place in _MEASURED):
        monkeypatch.delenv(_MEASURING, raising=False)
    for name in list(os.environ):
        if name in _FOREIGN_VARIABLES or name.startswith(_FOREIGN_PREFIXES):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _leak_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("may_leak"):
        yield
        return
    leaks = Leaks()
    yield
    leaks.check()


@pytest.fixture(autouse=True)
def _blocking_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("may_block"):
        yield
        return
    with forbid_blocking():
        yield


@pytest.fixture
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    """Every log line of the test as its event and fields, whatever the threshold."""
    structlog.reset_defaults()  # a command run earlier in this process may have set a threshold
    with structlog.testing.capture_logs() as lines:
        yield lines
