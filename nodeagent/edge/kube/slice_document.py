"""A resource slice in the API server's form, both ways.

Owns the JSON form of `resource.k8s.io/v1`. A read slice is held to exactly the form written here: a slice with any
other field was changed by another writer, and is to be written again.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from nodeagent.edge.kube.client import Json
from nodeagent.model.proof import BINDING_CONDITION, BINDING_FAILURE
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

API_VERSION: Final = "resource.k8s.io/v1"
_BINARY: Final = {"Ti": 1 << 40, "Gi": 1 << 30, "Mi": 1 << 20, "Ki": 1 << 10}
_DECIMAL: Final = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_PROVEN_FIRST: Final[dict[str, Any]] = {
    "binds_to_node": True,
    "binding_conditions": [BINDING_CONDITION],
    "binding_failure_conditions": [BINDING_FAILURE],
}
_Effect: TypeAlias = Literal["None", "NoSchedule", "NoExecute"]


class _Wire(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The common base of all structures."""


class _Value(_Wire):
    value: str


class _Range(_Wire):
    min: str
    max: str | UnsetType = UNSET
    step: str | UnsetType = UNSET


class _Policy(_Wire):
    default: str
    valid_range: _Range


class _Capacity(_Wire):
    value: str
    request_policy: _Policy | UnsetType = UNSET


class _Attribute(_Wire):
    string: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    whole: int | UnsetType = field(default=UNSET, name="int")
    flag: bool | UnsetType = field(default=UNSET, name="bool")


class _CounterSet(_Wire):
    name: str
    counters: dict[str, _Value]


class _Consumption(_Wire):
    counter_set: str
    counters: dict[str, _Value]


class _Taint(_Wire):
    key: str
    effect: _Effect
    value: str = ""
    time_added: str | UnsetType = UNSET


class _Device(_Wire):
    name: str
    attributes: dict[str, _Attribute] = {}
    capacity: dict[str, _Capacity] = {}
    consumes_counters: list[_Consumption] = []
    taints: list[_Taint] = []
    allow_multiple_allocations: bool = False
    binds_to_node: bool = False
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []


class _Pool(_Wire, omit_defaults=False):
    name: str
    generation: int
    resource_slice_count: int


class _Spec(_Wire):
    driver: str
    pool: _Pool
    node_name: str
    devices: list[_Device] | UnsetType = UNSET
    shared_counters: list[_CounterSet] | UnsetType = UNSET


def render_slice(
    pool: SlicePool,
    name: str,
    content: SliceContent,
    numbers: tuple[int, int],
    node_uid: str,
    stored: StoredSlice | None = None,
) -> Json:
    """The object; for an update, with the stored version and the times of staying taints."""
    times = stored.taint_times if stored is not None else {}
    spec = _Spec(
        driver=pool.driver,
        pool=_Pool(name=pool.node, generation=numbers[0], resource_slice_count=numbers[1]),
        node_name=pool.node,
    )
    if content.counter_sets:
        spec.shared_counters = [_CounterSet(name=one.name, counters=_count(one)) for one in content.counter_sets]
    else:
        spec.devices = [_render_device(one, times) for one in content.devices]
    owner = {"apiVersion": "v1", "kind": "Node", "name": pool.node, "uid": node_uid, "controller": True}
    metadata: Json = {"name": name, "ownerReferences": [owner]}
    if stored is not None:
        metadata |= {"uid": stored.uid, "resourceVersion": stored.version}
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": msgspec.to_builtins(spec),
    }


def _count(counters: CounterSet) -> dict[str, _Value]:
    return {name: _Value(value=render_quantity(value)) for name, value in counters.counters.items()}


def _render_device(device: SliceDevice, times: Mapping[str, str]) -> _Device:
    consumes = device.consumes
    return _Device(
        name=device.name,
        attributes={name: _render_attribute(value) for name, value in device.attributes.items()},
        capacity={name: _render_capacity(value) for name, value in device.capacity.items()},
        consumes_counters=[]
        if consumes is None
        else [_Consumption(counter_set=consumes.name, counters=_count(consumes))],
        taints=[
            _Taint(key=one.key, effect=one.effect, value=one.value, time_added=times.get(_name(device, one), UNSET))
            for one in device.taints
        ],
        allow_multiple_allocations=device.is_shared,
        **(_PROVEN_FIRST if device.is_proven_first else {}),
    )


def _name(device: SliceDevice, taint: DeviceTaint) -> str:
    return f"{device.name} {taint.key} {taint.value} {taint.effect}"


def _render_attribute(value: Attribute) -> _Attribute:
    if isinstance(value, Version):
        return _Attribute(version=value.text)
    if isinstance(value, bool):
        return _Attribute(flag=value)
    return _Attribute(whole=value) if isinstance(value, int) else _Attribute(string=value)


def _render_capacity(capacity: Capacity) -> _Capacity:
    rendered = _Capacity(value=render_quantity(capacity.value))
    share = capacity.share
    if share is not None:
        least, most, step = map(render_quantity, (share.least, share.most, share.step))
        rendered.request_policy = _Policy(
            default=render_quantity(share.default), valid_range=_Range(min=least, max=most, step=step)
        )
    return rendered


def render_quantity(value: int) -> str:
    """The shortest form in whole binary units."""
    unit = next((unit for unit, size in _BINARY.items() if value and value % size == 0), "")
    return f"{value // _BINARY[unit]}{unit}" if unit else str(value)


def parse_quantity(text: str) -> int:
    """A whole number with a unit, or without.

    Raises:
        ValueError: the text is no such number.
    """
    for unit, size in (*_BINARY.items(), *_DECIMAL.items()):
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * size
    return int(text)


def parse_slice(pool: SlicePool, document: Any) -> StoredSlice:
    """A stored slice; the content is `None` for a slice with fields that we would not write.

    Raises:
        KeyError, TypeError, ValueError: the document is no slice at all.
    """
    metadata, numbers = document["metadata"], document["spec"]["pool"]
    content, times = parse_content(pool, document["spec"])
    owners = metadata.get("ownerReferences") or ()
    return StoredSlice(
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        version=str(metadata["resourceVersion"]),
        generation=int(numbers.get("generation", 0)),
        slice_count=int(numbers["resourceSliceCount"]),
        content=content,
        is_owned=any((one["kind"], one["name"]) == ("Node", pool.node) for one in owners),
        taint_times=times,
    )


def parse_content(pool: SlicePool, document: Any) -> tuple[SliceContent | None, dict[str, str]]:
    """The content of a slice's `spec`, and since when each taint has been there."""
    try:
        spec = msgspec.convert(document, _Spec)
        if (spec.driver, spec.pool.name, spec.node_name) != (pool.driver, pool.node, pool.node):
            return None, {}
        times: dict[str, str] = {}
        devices = () if spec.devices is UNSET else tuple(_parse_device(one, times) for one in spec.devices or ())
        sets = () if spec.shared_counters is UNSET else spec.shared_counters
        counter_sets = tuple(CounterSet(name=one.name, counters=_parse_counters(one.counters)) for one in sets)
        return SliceContent(devices=devices, counter_sets=counter_sets), times
    except ValueError:  # which covers msgspec's errors
        return None, {}


def _parse_counters(counters: Mapping[str, _Value]) -> dict[str, int]:
    return {name: parse_quantity(one.value) for name, one in counters.items()}


def _parse_device(wire: _Device, times: dict[str, str]) -> SliceDevice:
    if len(wire.consumes_counters) > 1:
        raise ValueError(f"{wire.name} takes from several sets")
    consumes = [
        CounterSet(name=one.counter_set, counters=_parse_counters(one.counters)) for one in wire.consumes_counters
    ]
    binding = {
        "binding_conditions": wire.binding_conditions,
        "binding_failure_conditions": wire.binding_failure_conditions,
    }
    if (wire.binds_to_node or any(binding.values())) and {
        "binds_to_node": wire.binds_to_node,
        **binding,
    } != _PROVEN_FIRST:
        raise ValueError(f"{wire.name} has binding conditions of others")
    device = SliceDevice(
        name=wire.name,
        attributes={name: _parse_attribute(one) for name, one in wire.attributes.items()},
        capacity={name: _parse_capacity(one) for name, one in wire.capacity.items()},
        consumes=consumes[0] if consumes else None,
        taints=tuple(DeviceTaint(key=one.key, value=one.value, effect=one.effect) for one in wire.taints),
        is_shared=wire.allow_multiple_allocations,
        is_proven_first=wire.binds_to_node,
    )
    for taint, written in zip(device.taints, wire.taints, strict=True):
        if written.time_added is not UNSET:
            times[_name(device, taint)] = written.time_added
    return device


def _parse_attribute(wire: _Attribute) -> Attribute:
    values = [one for one in (wire.string, wire.whole, wire.flag) if one is not UNSET]
    versions = [Version(text=wire.version)] if wire.version is not UNSET else []
    found: list[Attribute] = [*values, *versions]
    if len(found) != 1:
        raise ValueError(f"an attribute with {len(found)} values")
    return found[0]


def _parse_capacity(wire: _Capacity) -> Capacity:
    policy = wire.request_policy
    if policy is UNSET:
        return Capacity(value=parse_quantity(wire.value))
    known = policy.valid_range
    if known.max is UNSET or known.step is UNSET:
        raise ValueError("a range without end or step")
    return Capacity(
        value=parse_quantity(wire.value),
        share=CapacityPolicy(
            default=parse_quantity(policy.default),
            least=parse_quantity(known.min),
            step=parse_quantity(known.step),
            most=parse_quantity(known.max),
        ),
    )
