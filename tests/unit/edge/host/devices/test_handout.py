"""What is found of nodes and channels."""

import os
import stat
import threading
from pathlib import Path

import pytest

from nodeagent.edge.host.devices import handout
from nodeagent.edge.host.devices.handout import HandoutReader, parse_capabilities, read_capabilities
from nodeagent.edge.host.driver.roots import DriverRoots
from nodeagent.edge.host.errors import HostStuck
from nodeagent.model.plugin import HandoutFacts, MigCapability

MINORS = """config 1
monitor 2
gpu0/gi7/access 66
gpu0/gi7/ci0/access 67
gpu12/gi1/ci3/access 1440
nonsense
gpu0/gi7/ci0/access x
"""
CAPABILITIES = (
    MigCapability(gpu_minor=0, gpu_instance_id=7, compute_instance_id=None, node=66),
    MigCapability(gpu_minor=0, gpu_instance_id=7, compute_instance_id=0, node=67),
    MigCapability(gpu_minor=12, gpu_instance_id=1, compute_instance_id=3, node=1440),
)


def test_access_lines_become_capabilities() -> None:
    """Lines about access count, every other line is passed over."""
    assert tuple(parse_capabilities(MINORS)) == CAPABILITIES


def test_a_missing_list_is_no_capability(tmp_path: Path) -> None:
    """A driver without MIG has no such file."""
    assert read_capabilities(tmp_path / "none") == ()


async def test_nodes_and_channels_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control nodes at their own path, channels below either root, and only real device nodes count as channels."""
    channels = tmp_path / "driver/dev/nvidia-caps-imex-channels"
    channels.mkdir(parents=True)
    (channels / "channel0").touch()
    (channels / "channel1").mkdir()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    minors = tmp_path / "proc/driver/nvidia-caps/mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text(MINORS)
    # only root may make device nodes: plain files stand for them here, a directory for anything else
    monkeypatch.setattr(stat, "S_ISCHR", stat.S_ISREG)
    reader = HandoutReader(root=tmp_path, proc_dir=tmp_path / "proc")
    roots = DriverRoots(host=tmp_path, driver=tmp_path / "driver", dev=tmp_path / "driver")
    assert await reader.read(lambda: roots, [0, 1, 2]) == HandoutFacts(
        control_nodes=("/dev/nvidiactl",), dev_root="/driver", capabilities=CAPABILITIES, imex_channels=(0,)
    )
    reader.close()


async def test_a_hung_look_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that hangs with its driver costs a time limit, not the event loop."""
    back, ended = threading.Event(), threading.Event()

    def hang(_: Path) -> tuple[MigCapability, ...]:
        back.wait(10)
        ended.set()
        return ()

    monkeypatch.setattr(handout, "READ_SECONDS", 0.05)
    monkeypatch.setattr(handout, "read_capabilities", hang)
    reader = HandoutReader(root=tmp_path, proc_dir=tmp_path)
    with pytest.raises(HostStuck, match="the driver's nodes"):
        await reader.read(lambda: DriverRoots(host=tmp_path, driver=tmp_path, dev=tmp_path), [])
    back.set()
    assert ended.wait(10)
    reader.close()


def test_this_machines_null_device_is_a_character_device() -> None:
    """The check that tests replace works on a real node."""
    assert handout._is_character_device(Path(os.devnull))
