"""What the stand-in's device manager decides, as the kubelet of Kubernetes 1.36 does."""

from random import Random

import pytest

from nodeagent_sim.kubelet.checkpoint import parse_checkpoint, render_checkpoint
from nodeagent_sim.kubelet.device_manager import GRACE_SECONDS, Device, DeviceManager, DeviceRefused, Offer

GPU = "nvidia.com/gpu"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_manager(devices: int = 4, clock: Clock | None = None) -> DeviceManager:
    manager = DeviceManager(Random(0), clock or Clock())
    manager.register(GPU)
    manager.receive_list(GPU, [Device(f"G{number}", healthy=True) for number in range(devices)])
    return manager


def take(manager: DeviceManager, pod: str, size: int, *preferred: str) -> tuple[str, ...]:
    choice = manager.begin(pod, "main", GPU, size, ())
    assert choice is not None
    chosen = manager.choose(choice, preferred)
    manager.commit(pod, "main", GPU, chosen, b"answer")
    return chosen


def test_list_replaces_the_one_before() -> None:
    """Capacity counts all devices of the newest list, allocatable the healthy ones; an empty list leaves zero."""
    manager = make_manager()
    manager.receive_list(GPU, [Device("G0", healthy=True), Device("G9", healthy=False)])
    assert manager.offers() == {GPU: Offer(2, 1)}
    manager.receive_list(GPU, [])
    assert manager.offers() == {GPU: Offer(0, 0)}


def test_preference_wins_as_far_as_it_is_free() -> None:
    """Unknown, repeated and surplus ids in a preference are tolerated; a short one is filled up."""
    manager = make_manager(8)
    surplus = take(manager, "a", 2, "G5", "G5", "nonsense", "G6", "G7")
    assert len(surplus) == 2
    assert set(surplus) < {"G5", "G6", "G7"}
    filled = take(manager, "b", 3, *surplus, "G0")
    assert filled[0] == "G0"
    assert len({*filled, *surplus}) == 5


def test_no_device_is_given_twice() -> None:
    """Pods get different devices until none is left, and then are refused in the kubelet's words."""
    manager = make_manager(4)
    first, second = take(manager, "a", 2), take(manager, "b", 2)
    assert not {*first} & {*second}
    with pytest.raises(DeviceRefused, match=r"unavailable for nvidia\.com/gpu\. Requested: 1, Available: 0"):
        manager.begin("c", "main", GPU, 1, ())


def test_devices_of_dead_pods_are_free_at_the_next_admission() -> None:
    """A pod that is gone holds its devices until the next admission looks."""
    manager = make_manager(2)
    take(manager, "a", 2)
    manager.release_all_but({"b"})
    assert len(take(manager, "b", 2)) == 2


def test_failed_admission_gives_back_what_was_not_committed() -> None:
    """Devices chosen for a pod that then failed are free again, committed ones are not."""
    manager = make_manager(4)
    kept = take(manager, "a", 1)
    choice = manager.begin("b", "main", GPU, 3, ())
    assert choice is not None
    manager.choose(choice, ())
    manager.forget_undecided()
    again = manager.begin("c", "main", GPU, 3, ())
    assert again is not None
    assert not again.free & {*kept}


def test_init_containers_devices_are_used_again() -> None:
    """What an init container had comes first, and stands in the choice as already taken."""
    manager = make_manager(4)
    choice = manager.begin("a", "main", GPU, 3, {"G2", "G3"})
    assert choice is not None
    assert (choice.taken, choice.open) == (("G2", "G3"), 1)
    assert manager.choose(choice, ["G0"]) == ("G2", "G3", "G0")
    more = manager.begin("a", "other", GPU, 1, {"G2", "G3"})
    assert more is not None
    assert more.open == 0


def test_container_that_has_its_devices_is_not_asked_about() -> None:
    """After a restart, what is in the checkpoint stands; another size is refused."""
    manager = make_manager(4)
    take(manager, "a", 2)
    assert manager.begin("a", "main", GPU, 2, ()) is None
    with pytest.raises(DeviceRefused, match="changed request"):
        manager.begin("a", "main", GPU, 3, ())


def test_refusals_speak_as_the_kubelet_does() -> None:
    """Unregistered, unhealthy and formerly healthy devices are refused with the texts people search for."""
    clock = Clock()
    manager = make_manager(2, clock)
    held = take(manager, "a", 1)
    manager.receive_list(GPU, [Device(name, healthy=name not in held) for name in ("G0", "G1")])
    with pytest.raises(DeviceRefused, match="previously allocated devices are no longer healthy"):
        manager.begin("a", "main", GPU, 1, ())
    manager.disconnect(GPU)
    with pytest.raises(DeviceRefused, match="no healthy devices present; cannot allocate unhealthy devices"):
        manager.begin("b", "main", GPU, 1, ())
    clock.now += GRACE_SECONDS + 1
    manager.offers()
    with pytest.raises(DeviceRefused, match="cannot allocate unregistered device"):
        manager.begin("b", "main", GPU, 1, ())


def test_lost_plugin_has_a_grace_period() -> None:
    """A lost plugin's devices are unhealthy at once and gone after five minutes; one that is back has lost nothing."""
    clock = Clock()
    manager = make_manager(2, clock)
    manager.disconnect(GPU)
    assert manager.offers() == {GPU: Offer(2, 0)}
    clock.now += GRACE_SECONDS + 1
    assert manager.offers() == {}
    manager.register(GPU)
    manager.receive_list(GPU, [Device("G0", healthy=True)])
    clock.now += GRACE_SECONDS + 1
    assert manager.offers() == {GPU: Offer(1, 1)}


def test_disconnecting_a_stranger_changes_nothing() -> None:
    """A resource that was never registered cannot be lost."""
    manager = make_manager()
    manager.disconnect("other/x")
    assert set(manager.offers()) == {GPU}


def test_checkpoint_brings_back_who_holds_what() -> None:
    """After a restart from the file, holders are known and the resource is there with nothing in it."""
    manager = make_manager(4)
    manager.receive_list(GPU, [Device("G0", healthy=True, numa_nodes=(0, 1)), Device("G1", healthy=True)])
    take(manager, "a", 2)
    reborn = DeviceManager(Random(1), Clock())
    reborn.restore(parse_checkpoint(render_checkpoint(manager.checkpoint())))
    (entry,) = reborn.entries()
    assert entry.devices == {0: ("G0",), 1: ("G0",), -1: ("G1",)}
    assert (entry.answer, sorted(entry.ids)) == (b"answer", ["G0", "G1"])
    assert reborn.offers() == {GPU: Offer(0, 0)}
    assert reborn.is_device_resource(GPU)
    assert not reborn.is_device_resource("other/x")
