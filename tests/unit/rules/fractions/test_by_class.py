"""The fractions of divisible classes on the node object: what is written is read, whole or not at all."""

import pytest

from nodeagent.model.errors import PublicationUnreadable
from nodeagent.rules.fractions.bound import render_bound
from nodeagent.rules.fractions.by_class import (
    CLASSES_ANNOTATION,
    CLASSES_BOUND_ANNOTATION,
    read_by_class,
    render_by_class,
)
from tests.support.fractions import make_bound, make_parted, part
from tests.support.scheduling import publish

AMD, INTEL = "amd.com/gpu", "gpu.intel.com/xe"


def test_each_class_has_its_own_gpus_and_bindings() -> None:
    node = make_parted(2)
    bound = render_bound([make_bound(1, (), part(1, 30, 8))], node).text
    said = {
        CLASSES_ANNOTATION: render_by_class({INTEL: publish(node), AMD: publish(node)}),
        CLASSES_BOUND_ANNOTATION: render_by_class({AMD: bound, INTEL: ""}),
    }
    found = read_by_class(said)
    assert {name: each.profile for name, each in found.items()} == {AMD: AMD, INTEL: INTEL}
    assert found[AMD].bound == {"uid-a": {"main": (part(1, 30, 8),)}}
    assert found[INTEL].bound == {}
    assert found[INTEL].space == found[AMD].space


def test_a_node_without_such_classes_says_nothing() -> None:
    assert render_by_class({}) == render_by_class({AMD: ""}) == ""
    assert read_by_class({}) == {}


@pytest.mark.parametrize("text", ["{", "[1]", '{"amd.com/gpu": {"form": 9}}', "x" * 131073])
def test_what_is_not_whole_is_an_error(text: str) -> None:
    """Named by its annotation."""
    with pytest.raises(PublicationUnreadable, match=r"nvidia\.com/(gpu|device)-fractions"):
        read_by_class({CLASSES_ANNOTATION: text})
