"""The kubelet's own memory, read leniently."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.edge.kubelet.checkpoint_file import parse_checkpoint, parse_pods_with
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.shim_names import place_request

ENTRY = {
    "PodUID": "uid-1",
    "ContainerName": "main",
    "ResourceName": "nvidia.com/gpu",
    "DeviceIDs": {"0": ["GPU-1", "GPU-2"], "1": ["GPU-2", "GPU-3"]},
    "AllocResp": "CgA=",
}


def render(entries: Any, registered: Any) -> bytes:
    data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
    return json.dumps({"Data": data, "Checksum": 123}).encode()


def test_checkpoint_tells_who_holds_what() -> None:
    """A device under two NUMA nodes is one device; pods are known by uid; the checksum is ignored."""
    found = parse_checkpoint(render([ENTRY], {"nvidia.com/gpu": ["GPU-1"]}))
    (held,) = found.containers
    assert (held.pod.uid, held.container, held.resource) == ("uid-1", "main", "nvidia.com/gpu")
    assert held.devices == ("GPU-1", "GPU-2", "GPU-3")
    assert found.registered == {"nvidia.com/gpu": ("GPU-1",)}


def test_plain_lists_of_old_kubelets_are_read() -> None:
    """Before Kubernetes 1.20 the devices were a plain list."""
    (held,) = parse_checkpoint(render([ENTRY | {"DeviceIDs": ["GPU-7"]}], {})).containers
    assert held.devices == ("GPU-7",)


def test_empty_checkpoint_is_empty() -> None:
    """A kubelet that knows nothing writes null, which is no error."""
    found = parse_checkpoint(render(None, None))
    assert (found.containers, found.registered) == ((), {})


@pytest.mark.parametrize("odd", [None, 7, "x", {}, {"PodUID": 1}, ENTRY | {"ResourceName": None}])
def test_one_odd_entry_does_not_hide_the_others(odd: Any) -> None:
    """An entry that makes no sense is passed over."""
    assert len(parse_checkpoint(render([odd, ENTRY], {})).containers) == 1


@pytest.mark.parametrize("ids", [None, 7, "GPU-1", {"0": None}, {"0": [7, None]}])
def test_odd_device_lists_hold_nothing(ids: Any) -> None:
    """Device lists that make no sense are empty."""
    (held,) = parse_checkpoint(render([ENTRY | {"DeviceIDs": ids}], {})).containers
    assert held.devices == ()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"null", b"{}", b'{"Data": 3}', b"\xff"])
def test_what_is_no_checkpoint_is_an_error(content: bytes) -> None:
    """A file that is cut short or is something else is refused in words."""
    with pytest.raises(ValueError, match="Data"):
        parse_checkpoint(content)


ODD = [None, 7, {}, ENTRY | {"PodUID": 5}, ENTRY | {"PodUID": ["uid-1"]}, ENTRY | {"DeviceIDs": None}]


@pytest.mark.parametrize("odd", [[], ODD])
@pytest.mark.parametrize("name", ["GPU-{}", "\u00e9 {}"])
def test_pods_are_found_by_what_a_container_of_theirs_has(odd: list[Any], name: str) -> None:
    """All entries of those pods and no others, whatever stands between them and however a device is spelled."""
    asked = [DeviceId(name.format(number)) for number in (3, 2, 1)]
    entry = ENTRY | {"DeviceIDs": {"0": asked[:2], "1": asked[1:]}}
    own = ENTRY | {"ResourceName": "memory", "ContainerName": "side", "DeviceIDs": ["m"]}
    other = ENTRY | {"PodUID": "uid-2", "DeviceIDs": [asked[2]]}
    content = render([*odd, entry, other, own], {})
    found = parse_pods_with(content, ResourceName("nvidia.com/gpu"), asked)
    everything = parse_checkpoint(content).containers
    assert found == tuple(each for each in everything if each.pod.uid == "uid-1")
    assert [each.container for each in found][-2:] == ["main", "side"]
    assert parse_pods_with(content, ResourceName("nvidia.com/gpu"), asked[:2]) == ()
    assert parse_pods_with(content, ResourceName("memory"), asked) == ()


@pytest.mark.parametrize("content", [b'{"Data": {"PodDeviceEntries": null}}', b'{"Data": {}}'])
def test_pods_are_not_found_where_there_are_none(content: bytes) -> None:
    """As a kubelet writes it before the first pod."""
    assert parse_pods_with(content, ResourceName("r"), [DeviceId("a")]) == ()


def test_a_number_that_no_parser_takes_is_told() -> None:
    """It is passed over at the first look, and must not fail the second in any other way."""
    entry = json.dumps(ENTRY | {"DeviceIDs": [["GPU-1", "?"]]}).replace('"?"', "1e999")
    content = b'{"Data": {"PodDeviceEntries": [%s]}}' % entry.encode()
    with pytest.raises(ValueError, match="Data"):
        parse_pods_with(content, ResourceName("nvidia.com/gpu"), [DeviceId("GPU-1")])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_any_json_under_data_is_survived(entries: Any, registered: Any) -> None:
    """Whatever stands under Data, parsing ends with a value."""
    parse_checkpoint(render(entries, registered))
    parse_pods_with(render(entries, registered), ResourceName("r"), ())


def test_the_names_that_were_answered_are_those_for_the_runtime_and_those_for_the_shim() -> None:
    """Other mounts name nothing, and an answer that cannot be read none."""
    answer = wire.ContainerAllocateResponse(
        cdi_devices=[wire.CDIDevice(name="a.example/b=c")],
        mounts=[
            wire.Mount(container_path="/etc/ld.so.preload", host_path="/x"),
            wire.Mount(container_path=place_request("a.example/b=d"), host_path="/dev/null"),
        ],
    )
    told = b64encode(answer.SerializeToString()).decode()
    (held,) = parse_checkpoint(render([ENTRY | {"AllocResp": told}], {})).containers
    assert held.cdi_names == ("a.example/b=c", "a.example/b=d")
    (odd,) = parse_checkpoint(render([ENTRY | {"AllocResp": "%"}], {})).containers
    assert odd.cdi_names == ()
