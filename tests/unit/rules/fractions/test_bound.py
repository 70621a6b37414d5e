"""What containers have as their node says it to schedulers."""

import json

import pytest
from msgspec.structs import replace

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.errors import PublicationUnreadable
from nodeagent.rules.fractions.bound import LONGEST, read_bound, render_bound
from tests.support.fractions import make_bound, make_parted, make_pod, part
from tests.support.gpus import gpu_uuid

GPUS = {0: gpu_uuid(0), 1: gpu_uuid(1)}


def test_what_is_written_is_read_back() -> None:
    """By pod and container, in whatever order the bindings were made; a pod without a uid is not told of yet."""
    one = make_bound(1, (), part(0, 30, 8), part(1, 30, 8))
    side = replace(make_bound(2, (), part(1, 10, 1)), container="side")
    other = make_bound(3, (), part(1, 100, 32), pod=make_pod("b"))
    nameless = make_bound(4, (), part(0, 1, 1), pod=PodIdentity(namespace="ns", name="c"))
    rendered = render_bound([one, side, other, nameless], make_parted())
    assert rendered == render_bound([other, nameless, side, one], make_parted())
    assert read_bound(rendered.text, GPUS) == {
        "uid-a": {"main": one.parts, "side": side.parts},
        "uid-b": {"main": other.parts},
    }


def test_nothing_is_said_where_nobody_has_anything() -> None:
    """Nor of a GPU that the node does not have, by either side."""
    assert render_bound([], make_parted()).text == ""
    assert render_bound([make_bound(1, (), part(7, 30, 8))], make_parted()).text == ""
    assert read_bound(render_bound([make_bound(1, (), part(1, 30, 8))], make_parted()).text, {0: gpu_uuid(0)}) == {
        "uid-a": {"main": ()}
    }


def test_more_than_an_annotation_may_have_is_left_out_and_counted() -> None:
    """Sixteen GPUs in hundredths, each with pods of long names."""
    board = make_parted(16)
    bindings = [
        replace(
            make_bound(number, (), part(number % 16, 1, 1), pod=make_pod("a", uid=f"{number:036}")), container="c" * 63
        )
        for number in range(1600)
    ]
    rendered = render_bound(bindings, board)
    assert LONGEST * 0.9 < len(rendered.text) <= LONGEST
    found = read_bound(rendered.text, {gpu.index: gpu.uuid for gpu in board.gpus})
    assert len(found) + rendered.left_out == 1600
    assert render_bound(bindings[:500], board).left_out == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x" * (LONGEST + 1), "characters"),
        ("{", "truncated"),
        (json.dumps({"form": 2, "pods": {}}), "form 2"),
        (json.dumps({"form": 2}), "form 2"),
        (json.dumps({"form": 1, "pods": {"a": {"main": [[0, 1]]}}}), "length 3"),
        (json.dumps({"form": 1, "pods": {"a": {"main": [[0, -1, 1]]}}}), "below zero"),
        (json.dumps({"form": 1, "pods": {}, "more": 1}), "more"),
    ],
)
def test_what_makes_no_sense_is_not_read_in_part(text: str, reason: str) -> None:
    """The error names the annotation and what is wrong with it."""
    with pytest.raises(PublicationUnreadable, match=reason) as raised:
        read_bound(text, GPUS)
    assert "nvidia.com/gpu-fractions-bound" in str(raised.value)
