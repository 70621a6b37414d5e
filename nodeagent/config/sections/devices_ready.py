"""Ready-made classes of devices: a few lines each, as in a configuration.

Owns the list of classes, and the conversion of a class into a tree.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from nodeagent.config import tree

Plain: TypeAlias = "str | int | bool | list[str] | Mapping[str, Plain]"

READY: Final[Mapping[str, Mapping[str, Plain]]] = {
    "kvm": {"resource": "devices.nodeagent.io/kvm", "nodes": ["/dev/kvm"], "replicas": 256},
    "fuse": {"resource": "devices.nodeagent.io/fuse", "nodes": ["/dev/fuse"], "replicas": 256},
    "tun": {"resource": "devices.nodeagent.io/tun", "nodes": ["/dev/net/tun"], "replicas": 256},
    "v4l": {
        "resource": "devices.nodeagent.io/camera",
        "nodes": ["/dev/video*"],
        "sysfs_class": "video4linux",
        "group": "device",
    },
    "rdma": {
        "resource": "devices.nodeagent.io/rdma",
        "nodes": ["/dev/infiniband/uverbs*", "/dev/infiniband/umad*", "/dev/infiniband/issm*"],
        "group": "device",
        # The node is missing without the module rdma_ucm, and verbs work all the same.
        "extra_nodes": ["/dev/infiniband/rdma_c[m]"],
    },
    "intel-gpu": {
        "resource": "gpu.intel.com/i915",
        "nodes": ["/dev/dri/renderD*", "/dev/dri/card*"],
        "pci_vendor": "0x8086",
        "pci_class": "0x03",
        "pci_drivers": ["i915"],
        "group": "device",
        "links": ["/dev/dri/by-path/*"],
    },
    "intel-gpu-xe": {
        "resource": "gpu.intel.com/xe",
        "nodes": ["/dev/dri/renderD*", "/dev/dri/card*"],
        "pci_vendor": "0x8086",
        "pci_class": "0x03",
        "pci_drivers": ["xe"],
        "group": "device",
        "links": ["/dev/dri/by-path/*"],
    },
    "intel-npu": {
        "resource": "npu.intel.com/accel",
        "nodes": ["/dev/accel/accel*"],
        "pci_vendor": "0x8086",
        "pci_drivers": ["intel_vpu"],
    },
    "amd-gpu": {
        "resource": "amd.com/gpu",
        "nodes": ["/dev/dri/renderD*", "/dev/dri/card*"],
        "pci_vendor": "0x1002",
        "group": "device",
        "extra_nodes": ["/dev/kfd"],
    },
    # The resource is that of one chip; for another one it is written beside `use`.
    "ascend": {
        "resource": "huawei.com/Ascend910",
        "nodes": ["/dev/davinci[0-9]*"],
        "extra_nodes": ["/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"],
        "environment": {"ASCEND_VISIBLE_DEVICES": "{indexes}"},
    },
    "iluvatar": {"resource": "iluvatar.com/gpu", "nodes": ["/dev/iluvatar[0-9]*"], "renumber": True},
}
"""The values of each class; all other settings have the defaults of any class."""


def plant(value: Plain, origin: tree.Origin) -> tree.Node:
    """The value as a tree, as if written at `origin`."""
    if isinstance(value, Mapping):
        entries = {key: plant(each, origin) for key, each in value.items()}
        return tree.Mapping(entries, origin, dict.fromkeys(entries, origin))
    if isinstance(value, list):
        return tree.Sequence(tuple(plant(each, origin) for each in value), origin)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return tree.Scalar(text, origin)
