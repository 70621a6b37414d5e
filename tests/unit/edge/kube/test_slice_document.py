"""Slices in JSON: what is written is read again as it was, and what others put into it is noticed."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.edge.kube.slice_document import parse_quantity, parse_slice, render_quantity, render_slice
from nodeagent.model.slices import (
    Attribute,
    Capacity,
    CapacityPolicy,
    CounterSet,
    DeviceTaint,
    SliceContent,
    SliceDevice,
    SlicePool,
    StoredSlice,
    Version,
)

POOL = SlicePool(driver="gpu.nvidia.com", node="node-1")
TAINT = DeviceTaint(key="gpu.nvidia.com/lost", value="unhealthy", effect="NoExecute")
DEVICE = SliceDevice(
    name="gpu-0",
    attributes={"type": "gpu", "numa": 1, "flag": True, "driverVersion": Version(text="550.1.2")},
    capacity={
        "memory": Capacity(
            value=80 << 30, share=CapacityPolicy(default=80 << 30, least=1 << 20, step=1 << 20, most=80 << 30)
        ),
        "cores": Capacity(value=100),
    },
    consumes=CounterSet(name="gpu-0-counter-set", counters={"memory": 80 << 30, "memory-slice-0": 1}),
    taints=(TAINT,),
    is_shared=True,
    is_proven_first=True,
)
CONTENT = SliceContent(devices=(DEVICE,))


def stored(document: Any, *, version: str = "7") -> StoredSlice:
    document = copy.deepcopy(document)
    document["metadata"] |= {"uid": "u", "resourceVersion": version, "managedFields": [], "generation": 3}
    return parse_slice(POOL, document)


def render(content: SliceContent = CONTENT, before: StoredSlice | None = None) -> Any:
    return render_slice(POOL, "s", content, (4, 2), "uid-of-node", before)


def test_a_slice_reads_as_the_api_wants_it() -> None:
    """Field by field, with nothing that says nothing."""
    document = render(SliceContent(devices=(SliceDevice(name="gpu-0", attributes={"type": "gpu"}, taints=(TAINT,)),)))
    assert document == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": "s",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-of-node", "controller": True}
            ],
        },
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "node-1",
            "pool": {"name": "node-1", "generation": 4, "resourceSliceCount": 2},
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {"type": {"string": "gpu"}},
                    "taints": [{"key": "gpu.nvidia.com/lost", "value": "unhealthy", "effect": "NoExecute"}],
                }
            ],
        },
    }


@pytest.mark.parametrize(
    "content",
    [
        CONTENT,
        SliceContent(),
        SliceContent(counter_sets=(CounterSet(name="a", counters={"memory": 5, "memory-slice-0": 1}),)),
    ],
)
def test_what_is_written_is_read_as_it_was(content: SliceContent) -> None:
    """Or it would be written again and again."""
    found = stored(render(content))
    assert (found.content, found.generation, found.slice_count, found.is_owned) == (content, 4, 2, True)


def test_counters_and_devices_are_never_in_one_slice() -> None:
    """The API refuses it."""
    assert "sharedCounters" not in render()["spec"]
    assert "devices" not in render(SliceContent(counter_sets=(CounterSet(name="a", counters={"x": 1}),)))["spec"]


def test_a_taint_that_stays_keeps_its_time() -> None:
    """Or the server would take it for a new one with each write, and evictions would begin anew."""
    document = render()
    document["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"
    before = stored(document)
    assert before.content == CONTENT
    written = render(CONTENT, before)
    assert written["spec"]["devices"][0]["taints"][0]["timeAdded"] == "2026-01-01T00:00:00Z"
    assert written["metadata"]["resourceVersion"] == "7"
    assert written["metadata"]["uid"] == "u"


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        ((), "allNodes", True),
        ((), "driver", "other.example.com"),
        (("pool",), "name", "other"),
        (("devices", 0), "nodeAllocatableResourceMappings", {}),
        (("devices", 0), "bindsToNode", False),
        (("devices", 0), "bindingConditions", ["example.com/attached"]),
        (("devices", 0), "bindingFailureConditions", []),
        (("devices", 0, "taints", 0), "effect", "Whatever"),
        (("devices", 0, "capacity", "cores"), "value", "1.5"),
        (("devices", 0, "attributes", "type"), "int", 3),
        (("devices", 0, "attributes"), "empty", {}),
        (("devices", 0, "capacity", "memory", "requestPolicy"), "validRange", {"min": "1"}),
        (("devices", 0), "consumesCounters", [{"counterSet": name, "counters": {}} for name in "ab"]),
    ],
)
def test_what_nobody_of_ours_writes_is_noticed(place: tuple[Any, ...], key: str, value: object) -> None:
    """Whoever wrote it: it is to be written over."""
    document = render()
    target = document["spec"]
    for step in place:
        target = target[step]
    target[key] = value
    found = stored(document)
    assert found.content is None
    assert found.taint_times == {}


def test_one_without_an_owner_is_noticed() -> None:
    """It would outlive its node."""
    document = render()
    del document["metadata"]["ownerReferences"]
    assert not stored(document).is_owned


def test_what_is_no_slice_is_an_error() -> None:
    """An answer that makes no sense is not an empty one."""
    with pytest.raises(KeyError):
        parse_slice(POOL, {"metadata": {}})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (100, "100"),
        (1 << 20, "1Mi"),
        (81559 << 20, "81559Mi"),
        (80 << 30, "80Gi"),
        (5, "5"),
        (3 << 40, "3Ti"),
    ],
)
def test_quantities_are_short(value: int, text: str) -> None:
    """As the server itself would write them."""
    assert render_quantity(value) == text


@pytest.mark.parametrize(("text", "value"), [("1k", 1000), ("2M", 2_000_000), ("3G", 3 * 10**9), ("4T", 4 * 10**12)])
def test_other_units_are_read(text: str, value: int) -> None:
    """The server may choose them."""
    assert parse_quantity(text) == value


@given(st.integers(0, 1 << 60))
def test_every_quantity_comes_back(value: int) -> None:
    assert parse_quantity(render_quantity(value)) == value


VALUES: st.SearchStrategy[Attribute] = st.one_of(st.text(max_size=8), st.booleans(), st.integers(-5, 5))


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), VALUES, max_size=4))
def test_every_attribute_comes_back_as_what_it_was(attributes: dict[str, Attribute]) -> None:
    """A truth is no number, and a number no text."""
    found = stored(render(SliceContent(devices=(SliceDevice(name="d", attributes=attributes),)))).content
    assert found is not None
    read = found.devices[0].attributes
    assert read == attributes
    assert {name: type(value) for name, value in read.items()} == {
        name: type(value) for name, value in attributes.items()
    }
