"""Whole configuration files of NVIDIA's device plugin, as pasted by people.

`sharing` and `resources` have NVIDIA's spelling in the agent's schema too; the rest is mapped: `version`, `flags`,
`imex`. A flag is read as its counterpart; a known flag without counterpart gets a notice, an unknown flag is an error.
"""

from typing import Final

from msgspec import Struct

from nodeagent.config.errors import Problem
from nodeagent.config.knobs import suggest
from nodeagent.config.tree import Mapping, Node, Scalar, merge, nest

COUNTERPARTS: Final = {
    "flags.migStrategy": "device_plugin.mig_strategy",
    "flags.nvidiaDriverRoot": "driver.root",
    "flags.nvidiaDevRoot": "driver.dev_root",
    "flags.gdrcopyEnabled": "device_plugin.gdrcopy",
    "flags.gdsEnabled": "device_plugin.gds",
    "flags.mofedEnabled": "device_plugin.mofed",
    "flags.mpsRoot": "device_plugin.mps_root",
    "flags.plugin.passDeviceSpecs": "device_plugin.pass_device_specs",
    "flags.plugin.deviceListStrategy": "device_plugin.device_list_strategy",
    "flags.plugin.deviceIDStrategy": "device_plugin.device_id_strategy",
    "flags.plugin.cdiAnnotationPrefix": "device_plugin.cdi_annotation_prefix",
    "flags.plugin.sharedDevicesAllocationPolicy": "device_plugin.shared_allocation_policy",
    "flags.gfd.machineTypeFile": "labels.machine_type_file",
    "imex.channelIDs": "device_plugin.imex_channel_ids",
    "imex.required": "device_plugin.imex_required",
}
NOT_NEEDED: Final = {
    "flags.failOnInitError": "the agent waits for the driver; `nodeagent run --require-driver` does not",
    "flags.useNodeFeatureAPI": "labels.sinks says where labels go",
    "flags.deviceDiscoveryStrategy": "gpus.source says where GPUs come from",
    "flags.plugin.nvidiaCTKPath": "specifications are written without that program",
    "flags.plugin.containerDriverRoot": "driver.root is the only root",
    "flags.gfd.oneshot": "`nodeagent render labels` prints the labels once",
    "flags.gfd.noTimestamp": "labels.timestamp says whether there is one",
    "flags.gfd.sleepInterval": "labels follow changes, not a clock",
    "flags.gfd.outputFile": "labels.nfd_dir says where the file goes",
}
THEIR_SECTIONS: Final = frozenset({"version", "flags", "imex"})


class Translation(Struct, frozen=True):
    """The tree in the agent's settings, with problems and notices of the translation."""

    tree: Mapping
    problems: tuple[Problem, ...] = ()
    notices: tuple[str, ...] = ()


def translate_nvidia(tree: Mapping) -> Translation:
    """Translate the sections of NVIDIA's file into settings; a tree without such sections is returned unchanged."""
    if not THEIR_SECTIONS & tree.entries.keys():
        return Translation(tree)
    ours: Node = Mapping(
        {key: node for key, node in tree.entries.items() if key not in THEIR_SECTIONS}, tree.origin, tree.key_origins
    )
    problems: list[Problem] = []
    notices: list[str] = []
    for path, node in _leaves(tree):
        if path == "version":
            problems += _judge_version(node)
        elif path in COUNTERPARTS:
            keys = tuple(COUNTERPARTS[path].split("."))
            if _holds(ours, keys):
                problems.append(Problem(node.origin, path, f"{COUNTERPARTS[path]} is given too; keep one of the two"))
            elif not _is_empty(node):
                ours = merge(ours, nest(keys, node))
        elif path in NOT_NEEDED:
            notices.append(f"{node.origin}: {path}: not needed and left out; {NOT_NEEDED[path]}")
        elif not _is_empty(node):
            problems.append(Problem(node.origin, path, f"unknown key{suggest(path, COUNTERPARTS | NOT_NEEDED)}"))
    assert isinstance(ours, Mapping)
    return Translation(ours, tuple(problems), tuple(notices))


def _leaves(tree: Mapping) -> list[tuple[str, Node]]:
    """Every key of NVIDIA's sections with its path, three levels at most."""
    found: list[tuple[str, Node]] = []
    waiting = [(key, tree.entries[key]) for key in tree.entries if key in THEIR_SECTIONS]
    while waiting:
        path, node = waiting.pop(0)
        groups = {known.rpartition(".")[0] for known in COUNTERPARTS} | {"flags"}
        if isinstance(node, Mapping) and path in groups:
            waiting += [(f"{path}.{key}", inner) for key, inner in node.entries.items()]
        else:
            found.append((path, node))
    return found


def _judge_version(node: Node) -> list[Problem]:
    if _is_empty(node) or (isinstance(node, Scalar) and node.text == "v1"):
        return []
    return [
        Problem(node.origin, "version", "only version v1 of NVIDIA's configuration is read; remove the key for ours")
    ]


def _is_empty(node: Node) -> bool:
    """Whether a value is null or empty text, in NVIDIA's file the default."""
    return isinstance(node, Scalar) and (node.is_null or not node.text)


def _holds(tree: Node, keys: tuple[str, ...]) -> bool:
    """Whether the tree has a value at the path."""
    for key in keys:
        if not isinstance(tree, Mapping) or key not in tree.entries:
            return False
        tree = tree.entries[key]
    return True
