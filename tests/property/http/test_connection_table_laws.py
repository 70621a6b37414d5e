"""Whatever connections do, the next one is let in or the reason is that all have been served for less than a second."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.edge.http.connection_table import SLOW_SECONDS, ConnectionTable

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "wait", "answer", "remove", "choose"]),
        st.sampled_from(["a", "b", "c", "d"]),
        st.integers(0, 40),
        st.sampled_from([0.0, 0.1, 2.0]),
    ),
    max_size=120,
)


class Model:
    """The connections as a table's owner sees them, beside the table."""

    def __init__(self, total: int, each: int) -> None:
        self.table: ConnectionTable[int] = ConnectionTable(total, each)
        self.total, self.each = total, each
        self.inside: dict[int, str] = {}
        self.answering_since: dict[int, float] = {}
        self.now = 0.0

    def add(self, key: int, address: str) -> None:
        if self.table.is_full(address):
            oldest = self.table.choose(self.now, address)
            counts = Counter(self.inside.values())
            if oldest is None:
                assert counts[address] >= self.each or len(self.inside) >= self.total
                young = [key for key, since in self.answering_since.items() if self.now - since <= SLOW_SECONDS]
                assert set(young) >= {
                    key for key, of in self.inside.items() if counts[address] < self.each or of == address
                }
                return
            assert self.inside[oldest] == address or counts[address] < self.each
            since = self.answering_since.get(oldest)
            assert since is None or self.now - since > SLOW_SECONDS
            self.remove(oldest)
        self.table.add(key, address)
        self.inside[key] = address

    def remove(self, key: int) -> None:
        self.table.remove(key)
        self.inside.pop(key, None)
        self.answering_since.pop(key, None)


@given(st.integers(1, 9), st.integers(1, 9), STEPS)
def test_the_table_never_exceeds_its_limits_and_shuts_nobody_out(
    total: int, each: int, steps: list[tuple[str, str, int, float]]
) -> None:
    """In all and of one address; a connection is refused only where each that could go is served this second."""
    model = Model(total, each)
    for number, (what, address, pick, seconds) in enumerate(steps):
        model.now += seconds
        keys = list(model.inside)
        key = keys[pick % len(keys)] if keys else -1
        if what == "add":
            model.add(number, address)
        elif what == "choose":
            oldest = model.table.choose(model.now)
            if oldest is not None:
                model.remove(oldest)
        elif what == "answer":
            model.table.answer(key, model.now)
            if key in model.inside:
                model.answering_since[key] = model.now
        elif what == "wait":
            model.table.wait(key)
            model.answering_since.pop(key, None)
        else:
            model.remove(key)
        assert set(model.table) == set(model.inside)
        assert len(model.table) == len(model.inside) <= total
        assert all(count <= each for count in Counter(model.inside.values()).values())
    for key in list(model.inside):
        model.remove(key)
        model.remove(key)
    assert (len(model.table), model.table.choose(model.now), model.table.is_full("a")) == (0, None, False)


def test_silent_connections_give_way_the_oldest_first() -> None:
    """A connection that was answered lately has waited for less long than one that came before and said nothing."""
    table: ConnectionTable[str] = ConnectionTable(3, 3)
    for key in ("prometheus", "silent", "late"):
        table.add(key, "a")
    table.answer("prometheus", 1.0)
    table.wait("prometheus")
    gone = []
    for key in ("fourth", "fifth", "sixth"):
        oldest = table.choose(2.0, "b")
        assert oldest is not None
        gone.append(oldest)
        table.remove(oldest)
        table.add(key, "b")
    assert gone == ["silent", "late", "prometheus"]


def test_an_address_that_has_all_it_may_have_makes_room_for_itself() -> None:
    """The kept connection of another address stays, whoever waits longer, and however long an answer takes."""
    table: ConnectionTable[str] = ConnectionTable(4, 2)
    table.add("prometheus", "p")
    table.add("slow", "a")
    table.add("young", "a")
    assert table.choose(0.0, "a") == "slow"
    table.answer("slow", 0.0)
    table.answer("young", 5.0)
    assert table.choose(0.5, "a") is None
    assert table.choose(5.0, "a") == "slow"
    assert table.choose(5.0) == "prometheus"
