"""`devices`: other devices than NVIDIA's GPUs, given to containers by description alone.

A class describes the device nodes of its devices on the host, and the files and variables for containers. `use` names a
ready-made class, whose values are outranked by values beside `use`.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias, cast

from nodeagent.config.compound import ListOf, MapOf, Nested
from nodeagent.config.kinds import AbsolutePath, Flag, Maybe, Number, OneOf, Text, Whole
from nodeagent.config.knobs import Place, Section, knob, required
from nodeagent.config.sections.devices_ready import READY, plant
from nodeagent.config.sections.fractions import QUALIFIED
from nodeagent.config.tree import Mapping as MappingNode
from nodeagent.config.tree import Node, Scalar, merge
from nodeagent.model.cluster import DEVICE_PREFIX
from nodeagent.model.ids import ResourceName

Grouping: TypeAlias = Literal["node", "number", "device", "all"]

_VARIABLE = Text("the name of an environment variable", r"[A-Za-z_][A-Za-z0-9_]*", 256)
NODE_PATTERN = Text(
    "an absolute path such as /dev/video*, with wildcards below its first directory only",
    r"/(?!\.\.?/)[^/*?\[\]]+(/(?!\.\.?(/|$))[^/]+)+",
    256,
)
_HEX_WORD = Text("four hexadecimal digits such as 0x8086", r"0x[0-9a-fA-F]{4}", 6)
_PCI_ADDRESSES = Text("a PCI address such as 0000:3b:00.0, with wildcards", r"[0-9a-fA-F:.*?\[\]-]+", 64)
_LABEL_WORD = Text("a word such as cameras", r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", 63)


class DeviceMount(Section):
    """A file or directory of the host, mounted into a container together with a device."""

    host: Path = required(AbsolutePath(), "where the host has it")
    container: Path | None = knob(Maybe(AbsolutePath()), None, "where the container sees it", "where the host has it")
    read_only: bool = knob(Flag(), default=True, what="whether the container may only read it", why="most need no more")


class SysfsCheck(Section):
    """A file of the device in sysfs, and the required content."""

    file: str = required(
        Text("a path such as state or device/temp1_input", r"(?!.*\.\.)[^/].*|/sys/(?!.*\.\.).+", 256),
        "which file: below the device's own directory in sysfs, or all of its path",
    )
    equals: str | None = knob(
        Maybe(Text("one line of text", r".+", 256)), None, "what it must say", "it may say anything"
    )
    below: float | None = knob(
        Maybe(Number(-1e15, 1e15)), None, "the number that it must be below", "it may be any number"
    )


class DeviceHealth(Section):
    """Checks of a device beyond the presence of its device nodes."""

    sysfs: tuple[SysfsCheck, ...] = knob(ListOf(Nested(SysfsCheck)), (), "files of sysfs that are looked at", "none")
    command: tuple[str, ...] = knob(
        ListOf(Text("a word of a command", r".+", 1024), distinct=False),
        (),
        "a command that ends with 0 for a device that works; {node} in it is the device's first node",
        "most devices have none",
    )
    sensors: bool = knob(
        Flag(),
        default=True,
        what="whether a temperature at its critical limit, and sensors that cannot be read, speak against a device",
        why="the kernel's own limits; most devices have no sensors",
    )
    timeout_seconds: float = knob(
        Number(0.1, 60), 5.0, "how long the command may take before it counts as failed", "longer than any that works"
    )
    period_seconds: float = knob(
        Number(1, 86400), 5.0, "pause between looks", "faults are found within seconds at little cost"
    )


class DeviceClass(Section):
    """One kind of device: the device nodes, and the files and variables for containers."""

    use: str | None = knob(
        Maybe(OneOf(tuple(READY))),
        None,
        "a ready-made class to begin with; what is written beside it outranks it",
        "the class is written out",
    )
    resource: str | None = knob(
        Maybe(QUALIFIED), None, "pods ask for this resource", "must be given unless `use` gives it"
    )
    nodes: tuple[str, ...] = knob(
        ListOf(NODE_PATTERN), (), "which nodes are devices of this class, by path", "by what else is said of them"
    )
    sysfs_class: str | None = knob(
        Maybe(Text("the name of a class such as video4linux", r"[A-Za-z0-9_.-]+", 64)),
        None,
        "only nodes of this class in /sys/class",
        "of any",
    )
    pci_vendor: str | None = knob(
        Maybe(_HEX_WORD),
        None,
        "only nodes of PCI functions of this vendor",
        "of any, and such as are not on the PCI bus",
    )
    pci_class: str | None = knob(
        Maybe(Text("two, four or six hexadecimal digits such as 0x0300", r"0x([0-9a-fA-F]{2}){1,3}", 8)),
        None,
        "only nodes of PCI functions whose class begins so",
        "of any, and such as are not on the PCI bus",
    )
    pci_devices: tuple[str, ...] = knob(
        ListOf(_HEX_WORD), (), "only nodes of PCI functions with one of these device ids of `pci_vendor`", "of any"
    )
    pci_drivers: tuple[str, ...] = knob(
        ListOf(Text("the name of a kernel driver such as xe", r"[A-Za-z0-9_.-]+", 64)),
        (),
        "only nodes of PCI functions bound to one of these kernel drivers",
        "to any; with `vfio`, to any driver of VFIO",
    )
    pci_addresses: tuple[str, ...] = knob(
        ListOf(_PCI_ADDRESSES), (), "only nodes of PCI functions at one of these addresses", "at any"
    )
    pci_parents: tuple[str, ...] = knob(
        ListOf(_PCI_ADDRESSES),
        (),
        'only nodes of SR-IOV virtual functions of one of these physical functions; "*" means any',
        "of any function, physical or virtual",
    )
    amd_partitions: tuple[str, ...] = knob(
        ListOf(Text("a compute and a memory partitioning such as cpx_nps4", r"[A-Za-z]+_[A-Za-z0-9]+", 32)),
        (),
        "only nodes of AMD's GPUs that are partitioned in one of these ways; each partition has nodes of its own",
        "partitioned or not",
    )
    usb_vendor: str | None = knob(
        Maybe(_HEX_WORD), None, "only nodes of USB devices of this vendor", "of any, and such as are not on a USB bus"
    )
    usb_product: str | None = knob(
        Maybe(_HEX_WORD), None, "only nodes of USB devices that are this product of `usb_vendor`", "of any"
    )
    usb_serials: tuple[str, ...] = knob(
        ListOf(Text("a serial number", r"\S(.*\S)?", 126)),
        (),
        "only nodes of USB devices with one of these serial numbers; a device is then known by its number, not by its"
        " port",
        "of any, and a device is known by the port that it is plugged into",
    )
    vfio: bool = knob(
        Flag(),
        default=False,
        what="give PCI functions that are bound to VFIO, for a virtual machine or a program with a driver of its own:"
        " a device is an IOMMU group, its node /dev/vfio/<group>, and /dev/vfio/vfio comes with it",
        why="most programs work through the kernel's driver",
    )
    group: Grouping = knob(
        OneOf[Grouping](("node", "number", "device", "all")),
        "node",
        "which nodes are one device: each node, those whose names end in the same number, those of the same piece of"
        " hardware in sysfs, or all of them",
        "most devices have one node",
    )
    extra_nodes: tuple[str, ...] = knob(
        ListOf(NODE_PATTERN),
        (),
        "further nodes that a container gets with any device; one without wildcards must be there",
        "none",
    )
    companion_nodes: tuple[str, ...] = knob(
        ListOf(NODE_PATTERN),
        (),
        "further nodes of a device's own PCI function or USB device that a container gets with it",
        "none",
    )
    links: tuple[str, ...] = knob(
        ListOf(NODE_PATTERN),
        (),
        "links of the host such as /dev/dri/by-path/*: a container gets those to its nodes, as nodes of that name",
        "none",
    )
    container_paths: Mapping[str, str] = knob(
        MapOf(
            NODE_PATTERN,
            Text("an absolute path such as /dev/modem{number}", r"/(?!\.\.?(/|$))[^*?\[\]]+", 256),
        ),
        MappingProxyType({}),
        "other paths in the container for the nodes that a pattern means, the first that does; {number} stands for the"
        " number at the end of the node's name, or with `renumber` for its count",
        "where the host has them",
    )
    mounts: tuple[DeviceMount, ...] = knob(
        ListOf(Nested(DeviceMount)), (), "files and directories that a container gets with any device", "none"
    )
    environment: Mapping[str, str] = knob(
        MapOf(_VARIABLE, Text("the variable's value", r".*", 4096)),
        MappingProxyType({}),
        "variables that a container gets; {nodes} stands for the nodes as it sees them, {devices} for the devices'"
        " names, {indexes} for the numbers at the end of their nodes' names on the host, {pci_addresses} for their PCI"
        " functions, {count} for how many",
        "none",
    )
    renumber: bool = knob(
        Flag(),
        default=False,
        what="count the nodes from 0 in each container: host node 3 appears as 0",
        why="what a program finds is what the host's own tools show",
    )
    permissions: str = knob(
        Text("some of the letters r, w and m, each once", r"(?=.)r?w?m?", 3), "rw", "how it may be used", "as usual"
    )
    replicas: int = knob(Whole(1, 1024), 1, "how many containers may have a device at the same time", "one at a time")
    divisible: bool = knob(
        Flag(),
        default=False,
        what="give the devices in parts alone, by the resources <resource>-core for hundredths of a device and"
        " <resource>-memory for blocks of its memory; parts are counted and told to containers, not enforced",
        why="a device is given whole unless somebody asks for another way",
    )
    memory_mib: int | None = knob(
        Maybe(Whole(1, 1 << 24)),
        None,
        "MiB of memory of each device that is divisible",
        "read from the kernel's file mem_info_vram_total of the device; nothing is given of a device without it",
    )
    expected: int | None = knob(
        Maybe(Whole(0, 4096)), None, "how many devices there should be; fewer is a condition", "as many as there are"
    )
    label: str | None = knob(
        Maybe(_LABEL_WORD),
        None,
        f"the last word of a label of the node, {DEVICE_PREFIX}<word>, that says how many devices work",
        "pods are placed by the resource",
    )
    condition: str | None = knob(
        Maybe(_LABEL_WORD),
        None,
        f"the last word of a condition of the node, {DEVICE_PREFIX}<word>, that says whether devices work",
        "the agent's own conditions say it",
    )
    health: DeviceHealth = knob(
        Nested(DeviceHealth), DeviceHealth(), "what makes a device good for work, besides its nodes being there"
    )

    @property
    def has_pci_words(self) -> bool:
        """Whether only PCI functions can be of the class."""
        ids = (self.pci_vendor, self.pci_class, self.pci_devices)
        places = (self.pci_addresses, self.pci_parents)
        return self.vfio or any((*ids, *places, self.pci_drivers, self.amd_partitions))

    @property
    def has_usb_words(self) -> bool:
        """Whether only USB devices can be of the class."""
        return any((self.usb_vendor, self.usb_product, self.usb_serials))


class ClassKind(Nested[DeviceClass], frozen=True):
    """A class, laid over the ready-made class named by `use`; judged apart from other classes."""

    def read(self, node: Node, place: Place) -> DeviceClass:
        """The class, completed from the ready-made class."""
        known = len(place.findings.problems)
        found = super().read(merge(_find_base(node), node), place)
        if len(place.findings.problems) == known:
            _judge(found, node, place)
        return found


def _find_base(node: Node) -> Node:
    """The tree of the ready-made class; empty for an unknown name, which is refused later."""
    use = node.entries.get("use") if isinstance(node, MappingNode) else None
    said = READY.get(use.text) if isinstance(use, Scalar) else None
    return plant(said if said is not None else {}, node.origin)


def _judge(found: DeviceClass, node: Node, place: Place) -> None:
    if not found.resource:
        raise place.key("resource").refuse(node.origin, "the key is missing; give it, or a ready-made class by `use`")
    if not (found.nodes or found.sysfs_class or found.has_pci_words or found.has_usb_words):
        message = "nothing says which nodes these devices are; give nodes, sysfs_class, pci_vendor or usb_vendor"
        raise place.key("nodes").refuse(node.origin, message)
    if found.pci_devices and not found.pci_vendor:
        message = "a device id means a device only together with its vendor; give pci_vendor"
        raise place.key("pci_devices").refuse(node.origin, message)
    if found.usb_product and not found.usb_vendor:
        message = "a product means a device only together with its vendor; give usb_vendor"
        raise place.key("usb_product").refuse(node.origin, message)
    is_named_otherwise = found.renumber or found.container_paths
    if found.vfio and (found.nodes or found.sysfs_class or found.has_usb_words or is_named_otherwise):
        message = "nodes of VFIO are those of IOMMU groups, under their own names; leave nodes, sysfs_class, usb_…,"
        message += " renumber and container_paths out"
        raise place.key("vfio").refuse(node.origin, message)
    if found.divisible and found.replicas > 1:
        message = "the devices are given in parts, or whole to several containers; leave replicas or divisible out"
        raise place.key("replicas").refuse(node.origin, message)
    if found.memory_mib is not None and not found.divisible:
        message = "only of devices in parts the memory is counted; set divisible: true, or leave memory_mib out"
        raise place.key("memory_mib").refuse(node.origin, message)
    for index, check in enumerate(found.health.sysfs):
        if (check.equals is None) == (check.below is None):
            here = place.key("health").key("sysfs").item(index)
            raise here.refuse(node.origin, "nothing can be judged by it; give either equals or below")


def name_class_resources(resource: str) -> tuple[ResourceName, ResourceName]:
    """The resources that count cores and blocks of memory of a divisible class."""
    return ResourceName(f"{resource}-core"), ResourceName(f"{resource}-memory")


def count_parts(classes: tuple[DeviceClass, ...]) -> int:
    """How many components of the agent the classes need: one for devices, one for parts of devices."""
    return bool(classes) + any(each.divisible for each in classes)


class DevicesSettings(Section):
    """Other devices than NVIDIA's GPUs, by description alone; loaded only with a class configured."""

    classes: tuple[DeviceClass, ...] = knob(
        ListOf(cast("Nested[DeviceClass]", ClassKind(DeviceClass))),
        (),
        "the kinds of devices that are given to containers",
        "the agent is for GPUs unless somebody asks for more; the first class of all waits for a restart",
        reload=True,
        makes_part=count_parts,
    )

    @property
    def divisible(self) -> tuple[DeviceClass, ...]:
        """The classes whose devices are given in parts."""
        return tuple(each for each in self.classes if each.divisible)
