"""What a node publishes comes back whole, and what anybody else writes there never passes for it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.model.errors import PublicationUnreadable
from nodeagent.model.gpu import Inventory
from nodeagent.rules.fractions.published import Published, PublishedGpu, read_published, render_published
from nodeagent.rules.placement.space import plan_space
from tests.property.rules.test_placement_laws import inventories
from tests.support.placement import BLOCK, eight

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


def publish(inventory: Inventory) -> Published:
    gpus = tuple(PublishedGpu(uuid=gpu.uuid, index=gpu.index, model=gpu.name) for gpu in inventory.gpus)
    return Published(profile="tencent", space=plan_space(inventory, BLOCK, withheld={}, users_max=10), gpus=gpus)


@given(inventories())
def test_any_node_comes_back_as_it_was_published(inventory: Inventory) -> None:
    """However its GPUs are joined."""
    published = publish(inventory)
    assert read_published(render_published(published)) == published


@given(st.sampled_from(["form", "profile", "block", "gpus", "tree", "news"]), anything, st.integers(0, 7))
def test_a_change_by_others_is_read_as_it_stands_or_refused(key: str, value: Any, gpu: int) -> None:
    """Nothing but the one error, and whatever is read has each GPU once."""
    document = json.loads(render_published(publish(eight())))
    for changed in (document | {key: value}, document | {"gpus": [document["gpus"][gpu] | {key: value}]}):
        try:
            found = read_published(json.dumps(changed))
        except PublicationUnreadable:
            continue
        assert sorted(found.space.tree.leaves) == list(range(len(found.space.rooms))) or not found.gpus
        assert [room.gpu for room in found.space.rooms] == [each.uuid for each in found.gpus]
        assert read_published(render_published(found)) == found


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda content: content.decode("latin-1")))
def test_any_text_is_refused_and_never_fatal(text: str) -> None:
    """Whoever may write annotations of a node could write anything."""
    with pytest.raises(PublicationUnreadable, match=r"cannot read nvidia\.com/gpu-fractions"):
        read_published(text)
