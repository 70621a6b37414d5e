"""Whatever connections do, the next one is let in or the reason is that everybody is being served this very second."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.edge.http.crowd import SLOW_SECONDS, Crowd, find_party

ADDRESSES = st.sampled_from(["a", "b", "c", "d"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "arrive", "arrive", "begin", "serve", "rest", "leave", "longest"]),
        ADDRESSES,
        st.integers(0, 40),
        st.sampled_from([0.0, 0.1, 2.0]),
    ),
    max_size=120,
)


class Model:
    """What is in, as the crowd tells it, beside the crowd itself."""

    def __init__(self, total: int, each: int) -> None:
        self.crowd: Crowd[int] = Crowd(total, each)
        self.inside: dict[int, str] = {}
        self.served_since: dict[int, float] = {}
        self.now = 0.0

    def arrive(self, key: int, address: str) -> None:
        verdict = self.crowd.arrive(key, address, self.now)
        if verdict.leaves is not None:
            gone_address = self.inside.pop(verdict.leaves)
            counts = Counter([*self.inside.values(), gone_address])
            # Whoever leaves is of the newcomer's address when that is full, else of an address that has most.
            assert gone_address == address or counts[gone_address] == max(counts.values())
            since = self.served_since.pop(verdict.leaves, None)
            assert since is None or self.now - since > SLOW_SECONDS
        if verdict.is_welcome:
            self.inside[key] = address
        else:
            crowded = Counter(self.inside.values())
            assert crowded[address] >= self.crowd.each or len(self.inside) >= self.crowd.total
            assert any(self.now - since <= SLOW_SECONDS for since in self.served_since.values())


@given(st.integers(1, 9), st.integers(1, 9), STEPS)
def test_the_crowd_never_exceeds_its_limits_and_shuts_nobody_out(
    total: int, each: int, steps: list[tuple[str, str, int, float]]
) -> None:
    """In all and for each address; a newcomer is refused only where all who could leave are served this second."""
    model, next_key = Model(total, each), 0
    for what, address, pick, seconds in steps:
        model.now += seconds
        keys = list(model.inside)
        key = keys[pick % len(keys)] if keys else -1
        if what == "arrive":
            model.arrive(next_key, address)
            next_key += 1
        elif what == "longest":
            gone = model.crowd.longest(model.now)
            if gone is not None:
                del model.inside[gone]
                model.served_since.pop(gone, None)
        elif what == "serve":
            model.crowd.serve(key, model.now)
            if key in model.inside:
                model.served_since[key] = model.now
        elif what == "begin":
            model.crowd.begin(key, model.now)
        elif what == "rest":
            model.crowd.rest(key)
            model.served_since.pop(key, None)
        else:
            model.crowd.leave(key)
            model.inside.pop(key, None)
            model.served_since.pop(key, None)
        assert len(model.crowd) == len(model.inside) <= total
        assert all(count <= each for count in Counter(model.inside.values()).values())
        debt = model.crowd.oldest_debt()
        assert debt is None or (debt[0] in model.inside and debt[0] not in model.served_since)
    for key in list(model.inside):
        model.crowd.leave(key)
    assert len(model.crowd) == 0
    assert model.crowd.longest(model.now) is None


def test_a_silent_crowd_gives_way_to_a_newcomer_the_oldest_first() -> None:
    """The attack: as many silent connections as there is room for. Each newcomer is let in, the oldest goes."""
    crowd: Crowd[int] = Crowd(4, 4)
    for key in range(4):
        assert crowd.arrive(key, "attacker", 0.0).leaves is None
    assert [crowd.arrive(key, "attacker", 1.0).leaves for key in (4, 5)] == [0, 1]


def test_whose_crowd_it_is_gives_way_and_not_another() -> None:
    """One kept connection of Prometheus outlives any number from one other address."""
    crowd: Crowd[str] = Crowd(4, 3)
    crowd.arrive("prometheus", "p", 0.0)
    crowd.serve("prometheus", 0.0)
    crowd.rest("prometheus")
    gone = [crowd.arrive(f"attack-{number}", "a", 1.0 + number).leaves for number in range(20)]
    assert gone[:3] == [None] * 3
    assert gone[3:] == [f"attack-{number}" for number in range(17)]


def test_who_is_served_stays_and_who_is_slow_does_not() -> None:
    """A request that is being answered is not cut off; an answer that nobody takes for a second is no protection."""
    crowd: Crowd[str] = Crowd(1, 1)
    crowd.arrive("first", "a", 0.0)
    crowd.serve("first", 0.0)
    assert not crowd.arrive("second", "b", 0.5).is_welcome
    verdict = crowd.arrive("second", "b", 2.0)
    assert (verdict.is_welcome, verdict.leaves) == (True, "first")


def test_a_debt_begins_with_the_first_byte_and_ends_with_the_request() -> None:
    """Who has just come owes a request; who rests between two owes none; further bytes do not put the debt off."""
    crowd: Crowd[str] = Crowd(4, 4)
    crowd.arrive("a", "x", 1.0)
    crowd.begin("a", 2.0)
    assert crowd.oldest_debt() == ("a", 1.0)
    crowd.serve("a", 3.0)
    crowd.begin("a", 3.5)
    assert crowd.oldest_debt() is None
    crowd.rest("a")
    assert crowd.oldest_debt() is None
    crowd.begin("a", 5.0)
    assert crowd.oldest_debt() == ("a", 5.0)
    crowd.leave("a")
    for late in (crowd.serve, crowd.begin):
        late("a", 6.0)
    crowd.rest("a")
    crowd.leave("a")
    assert (len(crowd), crowd.oldest_debt()) == (0, None)


def test_an_ipv6_network_counts_as_one_address() -> None:
    """A machine may have a /64 to itself; an IPv4 address is one whichever way it is written."""
    assert find_party("2001:db8::1") == find_party("2001:db8::ffff:2") == "2001:db8::"
    assert find_party("2001:db8:0:1::1") != find_party("2001:db8::1")
    assert find_party("::ffff:192.0.2.1") == find_party("192.0.2.1") == "192.0.2.1"
    assert find_party("fe80::1%eth0") == "fe80::"
    assert find_party("::1") == "::1"
    assert find_party("no address") == "no address"
