"""When a layout that failed is tried again by itself."""

import pytest

from nodeagent.components.mig.request import TRIES, LayoutRequest, Retry
from nodeagent.model.events import ConfigurationReloaded, GpuAppeared
from nodeagent.model.ids import GpuUuid

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
REQUEST, OTHER = LayoutRequest(layout="x"), LayoutRequest(layout="y")


class World:
    """One that counts its seconds."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.again = Retry(lambda: self.seconds, lambda tries: 10.0 * tries)

    def come(self, gpu: GpuUuid) -> None:
        self.again.note(GpuAppeared(gpu=gpu, generation=1))

    def is_barred_after(self, seconds: float, request: LayoutRequest = REQUEST) -> bool:
        self.seconds += seconds
        return self.again.is_barred(request)


def test_what_failed_is_barred_and_nothing_else() -> None:
    world = World()
    assert not world.is_barred_after(0)
    assert world.again.note_failed(REQUEST, "why", (A,))
    assert world.is_barred_after(1e6)
    assert world.again.rest_seconds() is None
    assert not world.is_barred_after(0, OTHER)


@pytest.mark.parametrize(
    ("gpus", "comes", "is_tried"), [((A,), A, True), ((A,), B, False), ((), A, False), (None, B, True)]
)
def test_who_has_come_decides(gpus: tuple[GpuUuid, ...] | None, comes: GpuUuid, is_tried: bool) -> None:
    """The GPU at which it failed; any, where it was refused; none, where a boot is needed."""
    world = World()
    world.again.note_failed(REQUEST, "why", gpus)
    world.come(comes)
    assert world.is_barred_after(9)
    assert world.is_barred_after(11) is not is_tried


def test_who_comes_and_goes_is_left_alone_until_it_stays() -> None:
    world = World()
    world.again.note_failed(REQUEST, "why", None)
    for _ in range(5):
        world.come(A)
        assert world.is_barred_after(8)
    assert world.again.rest_seconds() == 2
    assert not world.is_barred_after(3)
    assert world.again.rest_seconds() == 0


def test_each_try_is_waited_for_longer_and_the_last_one_is_the_last() -> None:
    world = World()
    for tries in range(1, TRIES):
        world.again.note_failed(REQUEST, "why", (A,))
        world.come(A)
        assert world.is_barred_after(10 * tries + 9)
        assert not world.is_barred_after(1)
    world.again.note_failed(REQUEST, "why", (A,))
    world.come(A)
    assert world.is_barred_after(1e6)
    world.again.note_failed(OTHER, "why", (A,))
    world.come(A)
    assert not world.is_barred_after(20, OTHER)


def test_a_refusal_is_no_try_and_is_news_once() -> None:
    world = World()
    news = [world.again.note_failed(REQUEST, reason, None) for reason in ("a", "a", "b")]
    assert news == [True, False, True]
    assert world.again.note_failed(REQUEST, "b", (A,))
    assert world.again.note_failed(REQUEST, "b", (A,))
    world.again.note_failed(REQUEST, "c", None)
    world.come(B)
    assert world.is_barred_after(29)
    assert not world.is_barred_after(1)


def test_a_reload_forgets_it() -> None:
    """As what was wrong may have been the settings; where nothing has failed, nothing is waited for."""
    world = World()
    world.again.note_failed(REQUEST, "why", (A,))
    world.again.note(ConfigurationReloaded(changed=()))
    world.come(A)
    assert not world.is_barred_after(0)
    assert world.again.rest_seconds() is None
