"""The law of labels and offers: whatever the configuration, the labels say what the device plugin offers."""

from collections import Counter
from typing import Any

import hypothesis.strategies as st
from hypothesis import given
from msgspec.structs import replace

from nodeagent.components.labeler.resources import label_resources
from nodeagent.components.labeler.values import is_legal
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import GpusSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.config.sections.sharing import (
    ResourcePattern,
    ResourcesSettings,
    SharedResource,
    SharingSettings,
    TimeSlicing,
)
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.rules.offer.devices import PluginDevice
from nodeagent.rules.offer.resources import plan_resources
from nodeagent.rules.selectors import select_gpus
from tests.support.gpus import gpu_uuid, make_gpu

P = "nvidia.com/"
MODELS = (*["NVIDIA H100 80GB HBM3"] * 4, "NVIDIA A100-SXM4-40GB", "")
LAYOUTS: tuple[list[str] | None, ...] = (
    None,
    None,
    None,
    [],
    ["1g.10gb"],
    ["1g.10gb", "1g.10gb"],
    ["1g.10gb+me", "2g.20gb"],
    ["1c.2g.20gb"],
)
NAMES = (*["gpu"] * 6, "nvidia.com/gpu", "mig-1g.10gb", "mig-1g.10gb.me", "mig-2g.20gb", "h100", "small", "x" * 52)
DEVICES = ("all", 1, 2, ("0",), ("0", "2"), ("1:0",), (gpu_uuid(1),))


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Gpu, ...]:
    """Up to six GPUs of several models, some partitioned; two may say that they are the same one."""
    gpus = [
        make_gpu(index, name=draw(st.sampled_from(MODELS)), mig=draw(st.sampled_from(LAYOUTS)))
        for index in range(draw(st.integers(1, 6)))
    ]
    if len(gpus) > 1 and draw(st.integers(0, 9)) == 0:
        gpus[-1] = replace(gpus[-1], uuid=gpus[0].uuid)
    return tuple(gpus)


entries = st.builds(
    SharedResource,
    name=st.sampled_from(NAMES),
    replicas=st.integers(2, 4),
    rename=st.sampled_from((None, None, "quarter", "gpu", "y" * 60)),
    devices=st.sampled_from(DEVICES),
    models=st.sampled_from(((), (), ("*H100*",), ("*A100*",))),
)
patterns: Any = st.lists(
    st.builds(
        ResourcePattern,
        pattern=st.sampled_from(("*", "*H100*", "1g.*", "*A100*")),
        name=st.sampled_from(("h100", "small", "gpu", "x" * 52)),
    ),
    max_size=2,
).map(tuple)
configurations = st.builds(
    Settings,
    gpus=st.builds(GpusSettings, exclude=st.sampled_from(((), (), ("0",), ("*A100*",)))),
    device_plugin=st.builds(
        DevicePluginSettings,
        mig_strategy=st.sampled_from(("none", "single", "mixed")),
        resource_prefix=st.sampled_from(("nvidia.com", "nvidia.com", "example.org")),
    ),
    resources=st.builds(ResourcesSettings, gpus=patterns, mig=patterns),
    sharing=st.builds(
        SharingSettings,
        timeSlicing=st.none()
        | st.builds(TimeSlicing, renameByDefault=st.booleans(), resources=st.lists(entries, min_size=1).map(tuple)),
    ),
)


def label(gpus: tuple[Gpu, ...], settings: Settings, closed: frozenset[str] = frozenset()) -> dict[str, str]:
    chosen = select_gpus(gpus, settings.gpus.include, settings.gpus.exclude)
    return dict(label_resources(chosen, settings, closed)) if chosen else {}


def offer(
    gpus: tuple[Gpu, ...], settings: Settings, closed: frozenset[str] = frozenset()
) -> dict[str, list[PluginDevice]]:
    """What pods can really be given."""
    plan = plan_resources(Inventory(generation=1, gpus=gpus), settings, closed)
    found = {each.name: [one for one in each.devices if not one.withheld] for each in plan.resources}
    return {str(name): devices for name, devices in found.items() if devices}


def spell(name: str) -> str:
    domain, _, base = name.rpartition("/")
    return base if domain == "nvidia.com" else f"{domain}_{base}"


def read(labels: dict[str, str]) -> dict[str, int]:
    """The devices of each resource as docs/labels.md says that labels are read."""
    counts: Counter[str] = Counter()
    for key, value in labels.items():
        stem, dot, last = key.removeprefix(P).rpartition(".")
        if dot and last == "replicas":
            number = int(value)
            shared = labels.get(f"{P}{stem}.product", "").endswith("-SHARED")
            counts[stem if number <= 1 or shared else f"{stem}.shared"] += number * int(labels[f"{P}{stem}.count"])
    for key, value in labels.items():
        if key.startswith(f"{P}resource.") and key.endswith(".count"):
            counts[key.removeprefix(f"{P}resource.").removesuffix(".count")] = int(value)
    return {name: count for name, count in counts.items() if count}


@given(nodes(), configurations, st.sets(st.integers(0, 3)))
def test_labels_say_what_the_device_plugin_offers(
    gpus: tuple[Gpu, ...], settings: Settings, behind_other_doors: set[int]
) -> None:
    """Resource by resource, as many devices as the kubelet gets; of those told exactly, also what they are made of."""
    closed = frozenset(gpu.uuid for gpu in gpus if gpu.index in behind_other_doors)
    labels, offered = label(gpus, settings, closed), offer(gpus, settings, closed)
    assert not closed & {device.gpu for devices in offered.values() for device in devices}
    assert read(labels) == {spell(name): len(devices) for name, devices in offered.items()}
    for name, devices in offered.items():
        stem = f"{P}resource.{spell(name)}"
        if f"{stem}.count" in labels:
            shared = {device.uuid for device in devices if device.replica is not None}
            assert labels[f"{stem}.devices"] == str(len({device.uuid for device in devices}))
            assert labels[f"{stem}.shared"] == str(len(shared))


@given(nodes(), configurations)
def test_no_label_promises_more_than_each_device_keeps(gpus: tuple[Gpu, ...], settings: Settings) -> None:
    """Each GPU of the model has at least `replicas` shares, and where none is shared the labels say `none`."""
    labels, offered = label(gpus, settings), offer(gpus, settings)
    product = labels.get(f"{P}gpu.product", "").removesuffix("-SHARED")
    whole = [
        device
        for devices in offered.values()
        for device in devices
        if device.gpu_instance_id is None and product == "-".join(find_name(gpus, device).split())
    ]
    times = Counter(device.uuid for device in whole)
    if labels.get(f"{P}gpu.replicas", "0") != "0" and product and "-MIG-" not in product:
        assert int(labels[f"{P}gpu.replicas"]) == min(times.values())
        strategy = "time-slicing" if max(times.values()) > 1 else "none"
        assert labels[f"{P}gpu.sharing-strategy"] == strategy
        slicing = settings.sharing.timeSlicing
        if slicing is None or not (slicing.renameByDefault or any(entry.rename for entry in slicing.resources)):
            assert labels[f"{P}gpu.product"].endswith("-SHARED") is (strategy != "none")


def find_name(gpus: tuple[Gpu, ...], device: PluginDevice) -> str:
    return next(gpu.name for gpu in gpus if gpu.uuid == device.gpu)


@given(nodes(), configurations)
def test_only_labels_of_names_that_are_too_long_are_refused(gpus: tuple[Gpu, ...], settings: Settings) -> None:
    """A label's name has room for 63 characters, of which ours take 17; the rest of the set does not suffer."""
    refused = {key for key, value in label(gpus, settings).items() if not is_legal(key, value)}
    assert all(key.startswith(f"{P}resource.") and len(key) > len(P) + 63 for key in refused)
