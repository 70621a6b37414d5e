"""Programs that ask NVML see the container's part of a device, and what of it the container's processes have."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodeagent.edge.host.vgpu.limits_file import DeviceLimit, FailMode, Limits, create_limits
from nodeagent.edge.host.vgpu.usage_file import create_usage
from tests.component.vgpu.build import build_library, build_program
from tests.component.vgpu.front import nvml_say
from tests.component.vgpu.place import Place
from tests.component.vgpu.talk import talk
from tests.fakes.nvml.control import FakeNvml

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

GIB = 1 << 30


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator[FakeNvml]:
    fake = FakeNvml(tmp_path)
    yield fake
    fake.close()


def create(place: Place, nvml: FakeNvml, memory_bytes: int | None, fail_mode: FailMode = FailMode.PASS) -> str:
    """Both files, for the first of the devices; its UUID."""
    uuid = str(nvml.state.gpus[0].uuid.decode())
    create_limits(place.limits_path, Limits((DeviceLimit(uuid, memory_bytes=memory_bytes),), fail_mode))
    create_usage(place.usage_path)
    return uuid


def ask(place: Place, nvml: FakeNvml, uuid: str, version: int = 3, *, with_library: bool = True) -> dict[str, Any]:
    more = {"LD_PRELOAD": str(build_library())} if with_library else {}
    environ = place.environ(
        LD_LIBRARY_PATH=str(nvml.library_directory),
        NODEAGENT_FAKE_NVML=str(nvml.state_path),
        PYTHONPATH=":".join(sys.path),
        **more,
    )
    command = [sys.executable, nvml_say.__file__, uuid, str(version)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.long
@pytest.mark.parametrize("version", [2, 3])
def test_within_the_fraction(place: Place, nvml: FakeNvml, version: int) -> None:
    """What the container has, by the pids that it knows; what would change the device for others is not allowed."""
    uuid = create(place, nvml, 8 * GIB)
    with talk(place) as one, talk(place) as other, talk(place) as idle:
        one.reserve(GIB)
        other.reserve(2 * GIB)
        assert idle.look()[2] == 8 * GIB
        said = ask(place, nvml, uuid, version)
        assert said["first"] == [8 * GIB, 5 * GIB, 3 * GIB]
        assert said["second"] == [8 * GIB, 5 * GIB, 3 * GIB, 0]
        assert said["processes"] == {one.ask("who"): GIB, other.ask("who"): 2 * GIB}
        assert said["may_set"] is False


@pytest.mark.parametrize("memory_bytes", [None, 8 * GIB])
def test_without_a_limit_it_is_what_the_driver_says(place: Place, nvml: FakeNvml, memory_bytes: int | None) -> None:
    """For a device that has none, or another device, and where the limits cannot be used."""
    uuid = create(place, nvml, memory_bytes)
    other = str(nvml.state.gpus[1].uuid.decode())
    plain = {each: ask(place, nvml, each, with_library=False) for each in (uuid, other)}
    assert plain[uuid]["may_set"] is True
    assert ask(place, nvml, other) == plain[other]
    if memory_bytes is None:
        said = ask(place, nvml, uuid)
        assert (said["first"], said["processes"]) == (plain[uuid]["first"], plain[uuid]["processes"])
    place.overwrite(8, b"\2")
    assert ask(place, nvml, uuid) == plain[uuid]


def test_what_the_driver_cannot_say_is_its_own_error(place: Place, nvml: FakeNvml) -> None:
    uuid = create(place, nvml, 8 * GIB)
    nvml.fail("nvmlDeviceGetMemoryInfo", 15)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        ask(place, nvml, uuid)
    assert "GPU is lost" in caught.value.stderr


def test_too_little_room_is_answered_with_what_is_wanted(place: Place, nvml: FakeNvml) -> None:
    """In the layout of each version, also the first, which no tool of today asks for."""
    create(place, nvml, 8 * GIB)
    environ = place.environ(
        LD_LIBRARY_PATH=str(nvml.library_directory),
        NODEAGENT_FAKE_NVML=str(nvml.state_path),
        LD_PRELOAD=str(build_library()),
    )
    with talk(place) as one, talk(place) as other:
        one.reserve(GIB)
        other.reserve(2 * GIB)
        done = subprocess.run([build_program("nvml_room")], env=environ, capture_output=True, text=True, check=True)
        pids = f"{one.ask('who')}:{GIB} {other.ask('who')}:{2 * GIB}"
        assert done.stdout.splitlines() == ["7 2", "7 2", f"0 2 {pids}", "7 2", "7 2", f"0 2 {pids}"]
