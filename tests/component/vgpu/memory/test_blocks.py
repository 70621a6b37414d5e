"""What a process has by address: found once, by its address or with its context, and never in a child."""

import shutil

import pytest

from tests.component.vgpu.place import Place
from tests.component.vgpu.talk import talk

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]


@pytest.mark.long
def test_an_address_is_taken_once(place: Place) -> None:
    """A second free and a foreign address are not there; the address given out again is."""
    with talk(place, "blocks_talk") as one:
        assert one.ask("add 0 4096 7 1 100") == "1"
        assert one.ask("take 0 4608") == "unknown"
        assert one.ask("take 0 4096") == "7 1 100"
        assert one.ask("take 0 4096") == "unknown"
        assert one.ask("add 0 4096 8 2 200") == "1"
        assert one.ask("take 1 4096") == "unknown"
        assert one.ask("take 0 4096") == "8 2 200"


@pytest.mark.long
def test_a_context_takes_its_own_with_it(place: Place) -> None:
    """And nothing of another one; context 0 is none."""
    with talk(place, "blocks_talk") as one:
        for number in range(3000):
            one.ask(f"add {number % 5} {(number + 1) << 21} {1 + number % 3} 0 {number}")
        assert one.ask("keep 2") == "kept"
        assert one.ask("drop 2") == f"1000 {sum(range(1, 3000, 3))}"
        assert (one.ask("drop 2"), one.ask("drop 0")) == ("0 0", "0 0")
        assert one.ask(f"take 0 {1 << 21}") == "1 0 0"
        assert one.ask(f"take 1 {2 << 21}") == "unknown"
        assert one.ask("drop 1").split()[0] == "999"


@pytest.mark.long
def test_a_child_has_none_of_its_parents(place: Place) -> None:
    with talk(place, "blocks_talk") as one:
        one.ask("add 0 4096 7 1 100")
        assert one.ask("fork") == "child"
        assert (one.ask("take 0 4096"), one.ask("drop 7")) == ("unknown", "0 0")
        one.ask("add 0 512 7 1 5")
        assert one.ask("take 0 512") == "7 1 5"
        assert one.ask("end") == "parent"
        assert one.ask("take 0 4096") == "7 1 100"


def test_threads_find_their_own_and_share_without_loss(place: Place) -> None:
    """An address that several threads add and take is there as often as it was added and not taken."""
    with talk(place, "blocks_talk") as one:
        assert one.ask("hammer 4 20000") == "0 0"
