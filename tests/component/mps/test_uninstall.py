"""An uninstall ends daemons that nobody works through, and gives their GPUs back."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.cli.uninstall.mps import end_daemons
from nodeagent.cli.uninstall.steps import Step
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import GpusSettings
from nodeagent.config.sections.mps import MpsSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.edge.mps.processes import find_daemon
from nodeagent.model.mps import MARKER
from tests.fakes.mps import FakeMps
from tests.support.gpus import gpu_uuid

pytestmark = pytest.mark.may_block("the command is run to its end, beside no event loop")
GPU = gpu_uuid(0)


@pytest.fixture
def left(short_dir: Path, fake: FakeMps) -> Iterator[Settings]:
    """A daemon of an agent that is gone, with a clean end for whatever the test leaves."""
    root = short_dir / "mps"
    pipes, logs = root / GPU / "pipe", root / GPU / "log"
    pipes.mkdir(parents=True)
    logs.mkdir()
    (root / MARKER).touch()
    environment = {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
        "CUDA_MPS_LOG_DIRECTORY": str(logs),
        "CUDA_VISIBLE_DEVICES": str(GPU),
    }
    subprocess.run([fake.program, "-d"], env=environment, check=True)
    yield Settings(
        mps=MpsSettings(program=fake.program, shared_memory="host"), device_plugin=DevicePluginSettings(mps_root=root)
    )
    if find_daemon(pipes) is not None:
        fake.behave()
        fake.ask(pipes, "quit -t 0")


def test_a_daemon_that_nobody_works_through_is_ended(left: Settings) -> None:
    """Its directory is gone; a mode that cannot be given back is told with the command that does it."""
    root = left.device_plugin.mps_root
    rehearsed = end_daemons(left, dry=True)
    assert [(one.step, one.what) for one in rehearsed] == [(Step.REMOVED, str(root / GPU))]
    assert find_daemon(root / GPU / "pipe") is not None
    removed, mode = end_daemons(left, dry=False)
    assert (removed.step, removed.what) == (Step.REMOVED, str(root / GPU))
    assert (mode.step, mode.what) == (Step.FAILED, f"compute mode of {GPU}")
    assert f"nvidia-smi -i {GPU} -c DEFAULT` by hand" in mode.detail
    assert find_daemon(root / GPU / "pipe") is None
    assert not root.exists()
    assert end_daemons(left, dry=False) == []


def test_gpus_that_are_made_up_have_no_mode_to_be_given_back(left: Settings) -> None:
    """The driver's tool knows none of them, and an uninstall that asked it failed."""
    outcomes = end_daemons(replace(left, gpus=GpusSettings(source="simulated:t4")), dry=False)
    assert [one.step for one in outcomes] == [Step.REMOVED]


def test_a_daemon_at_work_is_kept(left: Settings, fake: FakeMps) -> None:
    """With what to do."""
    pipes = left.device_plugin.mps_root / GPU / "pipe"
    with fake.open_client({"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline()
        (kept,) = end_daemons(left, dry=False)
        assert (kept.step, kept.detail[:11]) == (Step.KEPT, "1 processes")
        assert worker.poll() is None
    assert find_daemon(pipes) is not None


@pytest.mark.long
def test_one_that_does_not_answer_is_ended_too(left: Settings, fake: FakeMps) -> None:
    """Whoever worked through it cannot be asked for."""
    fake.behave("hang")
    (removed, _) = end_daemons(left, dry=False)
    assert removed.step is Step.REMOVED
    assert find_daemon(left.device_plugin.mps_root / GPU / "pipe") is None


def test_what_is_left_of_the_daemon_of_parts_is_given_back_too(left: Settings) -> None:
    """Its directory is called after its GPU as well, and so it is known when the daemon itself is gone."""
    root = left.device_plugin.mps_root
    (root / f"part-{GPU}" / "pipe").mkdir(parents=True)
    outcomes = end_daemons(left, dry=False)
    assert [one.what for one in outcomes if one.what == str(root / f"part-{GPU}")]
    assert [one.what for one in outcomes].count(f"compute mode of {GPU}") == 2


def test_what_an_agent_left_that_was_killed_in_between_goes_too(short_dir: Path) -> None:
    """Marked before there was a daemon, or when its directory was half gone; what is not ours stays, and is told."""
    root = short_dir / "mps"
    left = Settings(device_plugin=DevicePluginSettings(mps_root=root))
    for rest in ("shm", f"{GPU}/log", "."):
        (root / rest).mkdir(parents=True)
        (root / MARKER).touch()
        (rehearsed,) = end_daemons(left, dry=True)
        removed, *_ = end_daemons(left, dry=False)
        assert (rehearsed.step, rehearsed.what) == (removed.step, removed.what)
        assert removed.step is Step.REMOVED
        assert not root.exists()
    (root / "theirs").mkdir(parents=True)
    (root / MARKER).touch()
    (kept,) = end_daemons(left, dry=False)
    assert (kept.step, kept.what) == (Step.KEPT, str(root))


def test_shared_memory_that_cannot_go_is_told(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason, and the rest of an uninstall goes on."""
    root = short_dir / "mps"
    (root / "shm").mkdir(parents=True)
    (root / MARKER).touch()
    is_mount = Path.is_mount
    monkeypatch.setattr(Path, "is_mount", lambda path: path == root / "shm" or is_mount(path))
    (failed,) = end_daemons(Settings(device_plugin=DevicePluginSettings(mps_root=root)), dry=False)
    assert (failed.step, failed.what) == (Step.FAILED, str(root))
