"""Named MIG layouts, and files of them in the format v1 shared by MIG managers of this field.

Owns the format: `version`, `mig-configs`, and of each entry `devices`, `device-filter`, `mig-enabled`, `mig-devices`.
Refuses mistakes passed over in silence by such managers: a filter without any possible match, an impossible profile.
"""

import re
from collections.abc import Iterator
from collections.abc import Mapping as MappingOf
from typing import Final

from msgspec import field

from nodeagent.config.errors import Problem
from nodeagent.config.tree import Mapping, Node, Origin, Scalar, Sequence, shorten
from nodeagent.config.yaml_tree import parse_yaml
from nodeagent.model.gpu import Gpu
from nodeagent.model.values import Value
from nodeagent.model.wording import suggest
from nodeagent.rules.mig.profiles import FORM, ProfileUnreadable, parse_profile
from nodeagent.rules.selectors import selects_gpu

VERSION: Final = "v1"
_ENTRY_KEYS: Final = ("devices", "device-filter", "mig-enabled", "mig-devices")
_FILE_KEYS: Final = ("version", "mig-configs")
_FILTER: Final = re.compile(r"0x([0-9a-f]{4})([0-9a-f]{4})(?::0x([0-9a-f]{4})([0-9a-f]{4}))?", re.IGNORECASE)
_COUNT: Final = re.compile(r"[0-9]{1,3}")
_TRUTHS: Final = {"true": True, "false": False}


class DeviceFilter(Value, frozen=True):
    """A model of GPU by the numbers on the PCI bus: device in the upper half, vendor in the lower, as NVML has them."""

    device_id: int
    subsystem_id: int | None = None

    def fits(self, gpu: Gpu) -> bool:
        """Whether the filter means the GPU."""
        return gpu.pci.device_id == self.device_id and self.subsystem_id in (None, gpu.pci.subsystem_id)


class LayoutRule(Value, frozen=True):
    """The partitions of some GPUs of a node."""

    enabled: bool
    indexes: tuple[int, ...] | None = None
    """As the driver counts GPUs, in the order of their PCI addresses; `None` means every GPU."""
    filters: tuple[DeviceFilter, ...] = ()
    """Any of these; none means every model."""
    selectors: tuple[str, ...] = ()
    """As elsewhere in the configuration: any of these; none means every GPU."""
    profiles: MappingOf[str, int] = field(default_factory=dict)
    """The number of MIG devices of each profile, by the driver's name for the profile."""

    def covers(self, gpu: Gpu) -> bool:
        """Whether the entry is about the GPU; a GPU out of sight moves no other to a new index."""
        return (
            (self.indexes is None or gpu.index in self.indexes)
            and (not self.filters or any(one.fits(gpu) for one in self.filters))
            and (not self.selectors or any(selects_gpu(one, gpu) for one in self.selectors))
        )


Layout = tuple[LayoutRule, ...]
"""The entries of a layout in order: of several for one GPU the last counts."""


class LayoutsRead(Value, frozen=True):
    """The layouts of a file by name, and the file's faults."""

    layouts: MappingOf[str, Layout] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def read_layouts(text: str, path: str) -> LayoutsRead:
    """The layouts in a text; a faulty layout is left out, and every fault reported with file, line, key and remedy."""
    parsed = parse_yaml(text, lambda line: Origin("file", path, line))
    reader = _Reader(list(parsed.problems))
    layouts = reader.read_file(parsed.node or Scalar("", Origin("file", path, 1)))
    return LayoutsRead(layouts=layouts, problems=tuple(reader.problems))


class _Reader:
    """Reader of one file, with notes of the faults."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems

    def read_file(self, node: Node) -> MappingOf[str, Layout]:
        if not isinstance(node, Mapping):
            if not self.problems:
                self._note(
                    node, "", f"{shorten(node)} is no file of layouts; write `version: {VERSION}` and mig-configs"
                )
            return {}
        self._refuse_others(node, "", _FILE_KEYS)
        version = node.entries.get("version")
        if not isinstance(version, Scalar) or version.text != VERSION:
            self._note(
                version or node, "version", f"it is not {VERSION}, the one format there is; write `version: {VERSION}`"
            )
        configs = node.entries.get("mig-configs")
        if not isinstance(configs, Mapping):
            self._note(configs or node, "mig-configs", "it is no mapping from names to layouts; add one")
            return {}
        found = {name: self._read_layout(item, f"mig-configs.{name}") for name, item in configs.entries.items()}
        return {name: layout for name, layout in found.items() if layout is not None}

    def _read_layout(self, node: Node, path: str) -> Layout | None:
        known = len(self.problems)
        if not isinstance(node, Sequence):
            self._note(node, path, f"{shorten(node)} is no list of entries; begin each with a dash")
            return None
        parts = tuple(self._read_part(item, f"{path}[{place}]") for place, item in enumerate(node.items))
        whole = tuple(part for part in parts if part is not None)
        return whole if len(self.problems) == known else None

    def _read_part(self, node: Node, path: str) -> LayoutRule | None:
        if not isinstance(node, Mapping):
            self._note(node, path, f"{shorten(node)} is no entry; write {', '.join(_ENTRY_KEYS)}")
            return None
        self._refuse_others(node, path, _ENTRY_KEYS)
        enabled = self._read_enabled(node, path)
        profiles = self._read_profiles(node.entries.get("mig-devices"), f"{path}.mig-devices")
        if profiles and enabled is False:
            place = node.entries["mig-devices"]
            self._note(place, f"{path}.mig-devices", "there are none with mig-enabled: false; take them out")
        return LayoutRule(
            enabled=bool(enabled),
            indexes=self._read_devices(node, path),
            filters=tuple(self._read_filters(node.entries.get("device-filter"), f"{path}.device-filter")),
            profiles=profiles,
        )

    def _read_enabled(self, node: Mapping, path: str) -> bool | None:
        value = node.entries.get("mig-enabled")
        text = value.text.lower() if isinstance(value, Scalar) and not value.quoted else ""
        if text not in _TRUTHS:
            shown = "is missing" if value is None else f"is {shorten(value)}"
            self._note(value or node, f"{path}.mig-enabled", f"it {shown}; write true or false")
        return _TRUTHS.get(text)

    def _read_devices(self, node: Mapping, path: str) -> tuple[int, ...] | None:
        value = node.entries.get("devices")
        if isinstance(value, Scalar) and value.text == "all":
            return None
        items = value.items if isinstance(value, Sequence) else ()
        texts = [item.text for item in items if isinstance(item, Scalar) and _COUNT.fullmatch(item.text)]
        if not isinstance(value, Sequence) or len(texts) != len(items):
            shown = "is missing" if value is None else f"is {shorten(value)}"
            self._note(value or node, f"{path}.devices", f"it {shown}; write all, or indexes such as [0, 1]")
        return tuple(int(text) for text in texts)

    def _read_filters(self, node: Node | None, path: str) -> Iterator[DeviceFilter]:
        items = node.items if isinstance(node, Sequence) else () if node is None else (node,)
        for item in items:
            found = _FILTER.fullmatch(item.text) if isinstance(item, Scalar) else None
            if found is None:
                self._note(item, path, f"{shorten(item)} fits no GPU; write device and vendor such as 0x233010DE")
                continue
            device, vendor, subsystem, maker = found.groups()
            yield DeviceFilter(
                device_id=int(device + vendor, 16), subsystem_id=int(subsystem + maker, 16) if subsystem else None
            )

    def _read_profiles(self, node: Node | None, path: str) -> MappingOf[str, int]:
        if node is None or (isinstance(node, Scalar) and node.is_null):
            return {}
        if not isinstance(node, Mapping):
            self._note(node, path, f"{shorten(node)} is no mapping; write a count for each profile, such as 1g.10gb: 7")
            return {}
        counts: dict[str, int] = {}
        for text, value in node.entries.items():
            here = f"{path}.{text}"
            count = value.text if isinstance(value, Scalar) else ""
            if not _COUNT.fullmatch(count):
                self._note(value, here, f"{shorten(value)} is no count; write a whole number from 0 to 999")
                continue
            try:
                name = parse_profile(text).name
            except ProfileUnreadable:
                self._note(value, here, f"{text!r} is no MIG profile; write {FORM}")
                continue
            counts[name] = counts.get(name, 0) + int(count)
        if counts and not any(counts.values()):
            self._note(node, path, "every count is 0; leave mig-devices empty for no MIG devices")
        return {name: count for name, count in counts.items() if count}

    def _refuse_others(self, node: Mapping, path: str, known: tuple[str, ...]) -> None:
        for key in node.entries:
            if key not in known:
                message = f"nobody knows this key; take it out, known are {', '.join(known)}{suggest(key, known)}"
                here = f"{path}.{key}" if path else key
                self.problems.append(Problem(node.key_origins[key], here, message))

    def _note(self, node: Node, path: str, message: str) -> None:
        self.problems.append(Problem(node.origin, path, message))
