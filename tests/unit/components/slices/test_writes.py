"""Writes: none for nothing, one for one, a new generation for anything more."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.components.slices.own import OwnWrites
from nodeagent.components.slices.writes import SliceWrite, name_slice, plan_writes
from nodeagent.model.slices import SliceContent, SliceDevice, SlicePool, StoredSlice

POOL = SlicePool(driver="gpu.nvidia.com", node="node-1")


def content(*names: str) -> SliceContent:
    return SliceContent(devices=tuple(SliceDevice(name=name) for name in names))


def store(
    contents: Sequence[SliceContent], generation: int = 1, count: int | None = None, version: int = 1
) -> dict[str, StoredSlice]:
    """What the API server has after these were written."""
    return {
        name_slice(POOL, index): StoredSlice(
            name=name_slice(POOL, index),
            uid=f"uid-{index}",
            version=str(version),
            generation=generation,
            slice_count=len(contents) if count is None else count,
            content=one,
        )
        for index, one in enumerate(contents)
    }


def plan(
    contents: Sequence[SliceContent], stored: dict[str, StoredSlice], newest: int = 0
) -> list[tuple[str, str, int, int]]:
    writes = plan_writes(POOL, contents, stored, {}, newest=newest)
    return [(one.kind, one.name[:4], one.generation, one.slice_count) for one in writes]


def test_the_first_slices_are_generation_one() -> None:
    assert plan([content("a"), content("b")], {}) == [("create", "0000", 1, 2), ("create", "0001", 1, 2)]


def test_nothing_is_written_where_nothing_differs() -> None:
    """However often it is looked."""
    assert plan([content("a"), content("b")], store([content("a"), content("b")], generation=5)) == []


def test_one_slice_that_changes_is_one_write_in_the_same_generation() -> None:
    """A taint comes and goes, and nobody has to read all slices anew."""
    stored = store([content("a"), content("b")], generation=5)
    assert plan([content("a"), content("c")], stored) == [("update", "0001", 5, 2)]


def test_two_that_change_are_a_new_generation_of_all() -> None:
    """A consumer must not put the halves of two pools together."""
    stored = store([content("a"), content("b"), content("c")], generation=5)
    assert plan([content("x"), content("y"), content("c")], stored) == [
        ("update", "0000", 6, 3),
        ("update", "0001", 6, 3),
        ("update", "0002", 6, 3),
    ]


def test_one_that_is_missing_is_made_in_a_new_generation() -> None:
    stored = store([content("a"), content("b")], generation=3)
    del stored[name_slice(POOL, 0)]
    assert plan([content("a"), content("b")], stored) == [("update", "0001", 4, 2), ("create", "0000", 4, 2)]


def test_what_is_too_many_goes_first() -> None:
    """Whoever made it: it is in our pool, and two truths are none."""
    stored = store([content("a"), content("b")], generation=3)
    stored["zz"] = replace(stored[name_slice(POOL, 1)], name="zz", generation=9)
    assert plan([content("a")], stored) == [
        ("delete", "0001", 0, 0),
        ("delete", "zz", 0, 0),
        ("update", "0000", 10, 1),
    ]


def test_generations_never_go_back_while_they_are_remembered() -> None:
    """All slices were wiped; whoever has seen a later generation would not look at an earlier one."""
    assert plan([content("a")], {}, newest=7) == [("create", "0000", 8, 1)]


def test_an_object_that_does_not_go_with_its_node_is_written_again() -> None:
    """Made by hand, or by a version that did not know the node."""
    stored = {name: replace(one, is_owned=False) for name, one in store([content("a")]).items()}
    assert plan([content("a")], stored) == [("update", "0000", 1, 1)]


def test_what_somebody_put_into_it_is_written_over() -> None:
    """Content that nobody of ours writes."""
    stored = {name: replace(one, content=None) for name, one in store([content("a")]).items()}
    assert plan([content("a")], stored) == [("update", "0000", 1, 1)]


def test_what_the_server_makes_of_a_content_is_no_difference() -> None:
    """Or it would be written for ever."""
    name, wanted, kept = name_slice(POOL, 0), content("a", "b"), content("a")
    stored = store([kept])
    assert plan_writes(POOL, [wanted], stored, {name: (wanted, kept)}) == ()
    assert len(plan_writes(POOL, [content("c")], stored, {name: (wanted, kept)})) == 1
    assert len(plan_writes(POOL, [wanted], store([content("x")]), {name: (wanted, kept)})) == 1


@pytest.mark.parametrize("node", ["n", "a" * 240, "n." * 115 + "nn"])
def test_names_are_sorted_and_fit(node: str) -> None:
    pool = SlicePool(driver="gpu.nvidia.com", node=node)
    names = [name_slice(pool, index) for index in range(20)]
    assert names == sorted(set(names))
    assert all(len(name) <= 253 for name in names)
    assert len({name_slice(SlicePool(driver="d", node="a" * 250 + end), 0) for end in "abc"}) == 3


def carry_out(stored: dict[str, StoredSlice], writes: Sequence[SliceWrite]) -> dict[str, StoredSlice]:
    after = dict(stored)
    for write in writes:
        if write.kind == "delete":
            del after[write.name]
            continue
        assert (write.kind == "create") is (write.name not in after)
        after[write.name] = StoredSlice(
            name=write.name,
            uid=write.name,
            version="1",
            generation=write.generation,
            slice_count=write.slice_count,
            content=write.content,
        )
    return after


CONTENTS = st.lists(st.sampled_from([content("a"), content("b"), content("c"), SliceContent()]), min_size=1, max_size=4)


@given(CONTENTS, CONTENTS, st.integers(1, 3), st.sets(st.integers(0, 3)))
def test_from_anything_to_what_is_wanted_in_one_round(
    before: list[SliceContent], wanted: list[SliceContent], generation: int, lost: set[int]
) -> None:
    """Then all slices are of one generation and as many as they say, and nothing more is to be written."""
    stored = store(before, generation=generation)
    for index in lost:
        stored.pop(name_slice(POOL, index), None)
    after = carry_out(stored, plan_writes(POOL, wanted, stored, {}))
    assert [after[name].content for name in sorted(after)] == wanted
    assert {(one.generation, one.slice_count) for one in after.values()} == {
        (next(iter(after.values())).generation, len(wanted))
    }
    assert plan_writes(POOL, wanted, after, {}) == ()


def test_our_own_writes_count_until_the_watch_has_told_them() -> None:
    """It tells one after the other, and the first is older than the answer to the second."""
    own, name = OwnWrites(), name_slice(POOL, 0)
    old = store([content("a")], version=9)[name]
    new = replace(store([content("b")], version=10)[name], uid="of the one that was made after it")
    own.note_written(new)
    own.settle({name: old})
    assert own.put_over({name: old}) == {name: new}
    own.settle({})
    assert own.put_over({}) == {name: new}
    own.settle({name: new})
    assert own.put_over({}) == {}


def test_what_we_deleted_is_gone_before_the_watch_says_so() -> None:
    """And what came in its place is not."""
    own, name = OwnWrites(), name_slice(POOL, 0)
    old = store([content("a")])[name]
    own.note_written(old)
    own.note_deleted(old)
    own.settle({name: old})
    assert own.put_over({name: old}) == {}
    other = replace(old, uid="another")
    own.settle({name: other})
    assert own.put_over({name: other}) == {name: other}
    own.note_deleted(old)
    own.settle({})
    assert own.put_over({name: old}) == {name: old}


def test_a_new_list_is_newer_than_all_that_was_written() -> None:
    """It was asked for after that."""
    own, name = OwnWrites(), name_slice(POOL, 0)
    one = store([content("a")])[name]
    own.note_written(one)
    own.note_deleted(replace(one, name="other"))
    own.forget()
    assert own.put_over({}) == {}


def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    own, name = OwnWrites(), name_slice(POOL, 0)
    one = replace(store([content("a")])[name], version="x")
    own.note_written(one)
    own.settle({name: one})
    assert own.put_over({}) == {}


def test_a_watch_that_was_quicker_than_the_answer_is_believed() -> None:
    """It has told of what we wrote, and perhaps that it is gone again: an answer that comes then says nothing new."""
    one = store([content("a")], version=5)
    (name,) = one
    own = OwnWrites()
    own.settle({})
    own.settle(one)
    own.note_written(one[name])
    newer = {name: replace(one[name], version="7", generation=2)}
    assert own.put_over(newer) == newer
    own.settle({})
    assert own.put_over({}) == {}
    own.note_written(one[name])
    assert own.put_over({}) == {}, "told, and told to be gone, before the answer came"


def test_what_was_told_and_taken_away_is_gone_though_the_answer_was_first() -> None:
    """Others delete with rights of their own, at any moment."""
    one = store([content("a")], version=5)
    (name,) = one
    own = OwnWrites()
    own.note_written(one[name])
    assert own.put_over({}) == one
    own.settle(one)
    own.settle({})
    assert own.put_over({}) == {}
    again = {name: replace(one[name], uid="another", version="9")}
    own.note_written(again[name])
    assert own.put_over({}) == again
