"""Whether a device works, and the way back to healthy."""

import pytest

from nodeagent.model.devices import HostDevice, Standing
from nodeagent.model.ids import DeviceId
from nodeagent.rules.devices.health import Judged, describe_gone, judge, judge_files, plan_command, plan_files
from tests.support.devices import make_class

DEVICE = HostDevice(id=DeviceId("DEV-x"), name="/dev/x", nodes=("/dev/x",), sysfs="devices/x")


def test_a_device_is_healthy_again_after_as_many_clean_looks_as_a_gpu() -> None:
    """One that follows at once upon another does not count, and each fault begins anew."""
    said = judge(None, ["hot"], is_there=True, clean_looks=2)
    assert said == Judged(standing=Standing.UNHEALTHY, reason="hot")
    again = judge(said, [], is_there=True, clean_looks=2, counts=False)
    assert (again.standing, again.clean_looks) == (Standing.UNHEALTHY, 0)
    once = judge(again, [], is_there=True, clean_looks=2)
    assert once.reason == "hot; mended since, clean in 1 of 2 looks"
    assert judge(once, [], is_there=True, clean_looks=2) == Judged(standing=Standing.HEALTHY)
    assert judge(once, ["hot"], is_there=True, clean_looks=2).clean_looks == 0


def test_at_first_sight_a_device_is_healthy() -> None:
    assert judge(None, [], is_there=True, clean_looks=5).standing is Standing.HEALTHY


def test_a_device_that_is_not_there_is_gone_and_comes_back_by_clean_looks() -> None:
    gone = judge(Judged(standing=Standing.HEALTHY), ["hot"], is_there=False, clean_looks=2)
    assert gone.standing is Standing.GONE
    assert judge(gone, [], is_there=True, clean_looks=2).standing is Standing.UNHEALTHY
    assert judge(gone, [], is_there=True, clean_looks=1).standing is Standing.HEALTHY


@pytest.mark.parametrize(
    ("check", "text", "finding"),
    [
        ({"equals": "ok"}, "ok", ""),
        ({"equals": "ok"}, "bad", "/sys/devices/x/f says 'bad' instead of 'ok'"),
        ({"below": 90}, "89.5", ""),
        ({"below": 90}, "90", "/sys/devices/x/f says 90, which is not below 90"),
        ({"below": 90}, "warm", "/sys/devices/x/f says 'warm', which is no number"),
        ({"below": 90}, "", "/sys/devices/x/f cannot be read, or says nothing"),
    ],
)
def test_files_of_sysfs_say_what_they_must(check: dict[str, object], text: str, finding: str) -> None:
    """One that cannot be read speaks against the device."""
    one = make_class(nodes=["/dev/x"], health={"sysfs": [{"file": "f", **check}]})
    assert plan_files(one, DEVICE) == ("devices/x/f",)
    assert judge_files(one, DEVICE, {"devices/x/f": text}) == ((finding,) if finding else ())


def test_a_file_may_be_named_by_all_of_its_path() -> None:
    """Or below the device, which sysfs has to know then."""
    one = make_class(
        nodes=["/dev/x"], health={"sysfs": [{"file": "/sys/a/b", "equals": "1"}, {"file": "f", "equals": "1"}]}
    )
    bare = HostDevice(id=DeviceId("DEV-x"), name="/dev/x", nodes=("/dev/x",))
    assert plan_files(one, bare) == ("a/b", "")
    assert judge_files(one, bare, {"a/b": "1"}) == ("sysfs does not know it, so that f cannot be looked at",)


def test_a_command_is_told_the_node() -> None:
    """The device's first one."""
    one = make_class(nodes=["/dev/x"], health={"command": ["probe", "--of={node}"]})
    assert plan_command(one, DEVICE) == ("probe", "--of=/dev/x")
    assert plan_command(make_class(nodes=["/dev/x"]), DEVICE) == ()


def test_a_device_that_went_is_named_with_who_has_it() -> None:
    assert describe_gone(DEVICE, ["a/b", "c/d"]).startswith("/dev/x is gone while a/b and c/d has it")
