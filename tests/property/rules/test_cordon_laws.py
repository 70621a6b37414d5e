"""Laws of cordons, for any sources, GPUs and times."""

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.model.cordons import Cordon, CordonSource, CordonTable, render_until
from nodeagent.model.ids import GpuUuid
from nodeagent.rules.cordons import (
    AskedCordon,
    drop_over,
    find_next_end,
    parse_annotation,
    plan_command,
    plan_cordons,
    plan_uncordon,
)
from tests.support.examples import examples
from tests.support.gpus import gpu_uuid, make_node

NODE = make_node(4)
TIMES = st.integers(0, 100).map(float)
NAMES = st.integers(0, 7).flatmap(lambda index: st.sampled_from([str(index), str(gpu_uuid(index))]))
ASKED = st.builds(AskedCordon, gpu=NAMES, reason=st.just("fan"), until_seconds=st.none() | TIMES)


def cordons(source: CordonSource) -> st.SearchStrategy[tuple[Cordon, ...]]:
    return st.lists(
        st.builds(
            lambda index, until: Cordon(
                gpu=gpu_uuid(index), source=source, named=str(index), reason="fan", until_seconds=until
            ),
            st.integers(0, 7),
            st.none() | TIMES,
        ),
        max_size=4,
        unique_by=lambda one: one.gpu,
    ).map(tuple)


TABLES = st.fixed_dictionaries({source: cordons(source) for source in CordonSource}).map(
    lambda by_source: CordonTable(by_source=by_source)
)


def list_closed(table: CordonTable, now: float) -> set[GpuUuid]:
    return {each.gpu for each in table.list_in_force(now)}


@settings(max_examples=examples(200))
@given(TABLES, TIMES)
def test_no_gpu_is_open_before_the_last_end_of_any_source(table: CordonTable, now: float) -> None:
    """What ends is removed, and what is removed has ended: the removal opens nothing."""
    every = [each for kept in table.by_source.values() for each in kept]
    closed = {each.gpu for each in every if each.until_seconds is None or each.until_seconds > now}
    assert list_closed(table, now) == closed
    left = CordonTable(by_source={**table.by_source, **drop_over(table, now)})
    assert list_closed(left, now) == closed
    assert drop_over(left, now) == {}
    end = find_next_end(table, now)
    assert end is None or (end > now and list_closed(table, now) >= list_closed(table, end))
    before = now if end is None else (now + end) / 2
    assert list_closed(table, before) == closed


@settings(max_examples=examples(200))
@given(TABLES, st.lists(ASKED, max_size=5), st.sampled_from(list(CordonSource)), TIMES)
def test_each_asked_cordon_is_in_force_told_or_over(
    table: CordonTable, asked: list[AskedCordon], source: CordonSource, now: float
) -> None:
    """None is dropped in silence, and no cordon is made that nobody asks for."""
    kept = table.by_source[source]
    plan = plan_cordons(source, asked, NODE, kept, now)
    over = [one for one in asked if one.until_seconds is not None and one.until_seconds <= now]
    refused = len(plan.problems)
    assert len(plan.over) == len(over)
    meant = {(each.named, each.until_seconds) for each in plan.cordons}
    wanted = {(one.gpu, one.until_seconds) for one in asked if one not in over}
    assert meant <= wanted
    assert len(wanted - meant) <= refused <= len(asked)
    known = {gpu.uuid for gpu in NODE.gpus} | {each.gpu for each in kept}
    assert all(each.gpu in known and each.source is source and not each.is_over(now) for each in plan.cordons)


@settings(max_examples=examples(100))
@given(cordons(CordonSource.COMMAND), ASKED, TIMES)
def test_a_command_cordons_its_own_gpu_alone(kept: tuple[Cordon, ...], asked: AskedCordon, now: float) -> None:
    plan = plan_command(asked, NODE, kept, now)
    gpus = {each.gpu for each in plan.cordons if each not in kept} or {GpuUuid("")}
    others = {each for each in kept if each.gpu not in gpus}
    assert {each for each in plan.cordons if each.gpu not in gpus} == others
    gpu, left = plan_uncordon(asked.gpu, NODE, kept)
    assert left == tuple(each for each in kept if each.gpu != gpu)


@settings(max_examples=examples(100))
@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    """A refusal is a `ValueError`; nothing else may end the agent's part."""
    asked: tuple[AskedCordon, ...] = ()
    with suppress(ValueError):
        asked = parse_annotation(text)
    assert asked == ()


@settings(max_examples=examples(100))
@given(st.lists(ASKED, max_size=5))
def test_an_annotation_means_what_was_written(asked: list[AskedCordon]) -> None:
    entries = [
        {"gpu": one.gpu, "reason": one.reason}
        | ({} if one.until_seconds is None else {"until": render_until(one.until_seconds)})
        for one in asked
    ]
    assert parse_annotation(json.dumps(entries)) == tuple(asked)
