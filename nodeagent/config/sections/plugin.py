"""Settings about the kubelet: sockets, the device plugin, the allocation journal."""

from pathlib import Path
from typing import Literal, TypeAlias

from nodeagent.config.compound import ListOf
from nodeagent.config.kinds import AbsolutePath, Flag, Maybe, Number, OneOf, Text, Whole
from nodeagent.config.knobs import Section, knob

DOMAIN = Text("a DNS name", r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", 63)
FILE_NAME = Text("a file name", r"(?!\.\.)[^/]+", 255)

DeviceListStrategy: TypeAlias = Literal["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]


class KubeletSettings(Section):
    """Directories and sockets of the kubelet, and the pace of calls."""

    root_dir: Path = knob(
        AbsolutePath(),
        Path("/var/lib/kubelet"),
        "the kubelet's --root-dir; the pod resources socket follows it, the device plugin directory does not",
        "the kubelet's default",
    )
    device_plugins_dir: Path = knob(
        AbsolutePath(),
        Path("/var/lib/kubelet/device-plugins"),
        "where kubelet.sock is and where our sockets go",
        "fixed in the kubelet whatever its root is",
    )
    pod_resources_socket: Path = knob(
        AbsolutePath(),
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        "the kubelet's socket for the devices of each pod; follows root_dir unless set",
        "the kubelet's default",
    )
    pods_api_socket: Path = knob(
        AbsolutePath(),
        Path("/var/lib/kubelet/pods-api/pods-api.sock"),
        "the kubelet's socket for changes of pods, from Kubernetes 1.37 on; follows root_dir unless set",
        "the kubelet's default; without the socket the pause below is the only rhythm",
    )
    plugins_registry_dir: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "register by a socket in this directory as well; empty means through kubelet.sock only",
        "registration through kubelet.sock works with every kubelet",
    )
    pod_resources_poll_seconds: float = knob(
        Number(0.5, 3600),
        10.0,
        "pause between looks for devices that pods have given back",
        "the kubelet sends no event when a pod's devices change",
        reload=True,
    )
    call_timeout_seconds: float = knob(
        Number(0.1, 300),
        5.0,
        "time one call to the kubelet may take",
        "the kubelet answers in milliseconds, unless the kubelet is restarting",
        reload=True,
    )


class DevicePluginSettings(Section):
    """The offer of GPUs to pods, and their delivery to containers."""

    enabled: bool = knob(
        Flag(),
        default=True,
        what="offer GPUs to the kubelet",
        why="pods wait for it; off where another device plugin stays in charge",
    )
    resource_prefix: str = knob(
        DOMAIN, "nvidia.com", "domain of the resource names", "pods ask for resources of this prefix already"
    )
    mig_strategy: Literal["none", "single", "mixed"] = knob(
        OneOf(("none", "single", "mixed")),
        "none",
        "ignore MIG, offer equal MIG devices as gpu, or offer each profile as a resource of its own",
        "as in NVIDIA's device plugin",
        reload=True,
    )
    device_list_strategy: tuple[DeviceListStrategy, ...] = knob(
        ListOf(OneOf[DeviceListStrategy](("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")), shortest=1),
        ("cdi-cri",),
        "how a container is told its devices; several add up",
        "it needs no NVIDIA runtime: the agent writes the CDI specification that the container runtime reads",
        reload=True,
    )
    device_id_strategy: Literal["uuid", "index"] = knob(
        OneOf(("uuid", "index")),
        "uuid",
        "name devices by UUID or by index",
        "an index changes when a GPU is lost, a UUID does not",
        reload=True,
    )
    pass_device_specs: bool = knob(
        Flag(),
        default=False,
        what="name the device nodes to the kubelet as well",
        why="only the CPU manager on old runtimes needs it",
        reload=True,
    )
    cdi_annotation_prefix: str = knob(
        Text("a prefix that ends in a slash", r"[A-Za-z0-9.-]+/", 253),
        "cdi.k8s.io/",
        "prefix of the annotation key with cdi-annotations",
        "container runtimes look for this prefix",
        reload=True,
    )
    shared_allocation_policy: Literal["distributed", "packed"] = knob(
        OneOf(("distributed", "packed")),
        "distributed",
        "spread shared and MIG devices over the GPUs, or fill one GPU after the other",
        "as in NVIDIA's device plugin",
        reload=True,
    )
    gdrcopy: bool = knob(
        Flag(),
        default=False,
        what="hand out GDRCopy devices",
        why="the devices need a kernel module of their own",
        reload=True,
    )
    gds: bool = knob(
        Flag(),
        default=False,
        what="hand out GPUDirect Storage devices",
        why="the devices need a kernel module of their own",
        reload=True,
    )
    mofed: bool = knob(
        Flag(),
        default=False,
        what="hand out InfiniBand devices",
        why="InfiniBand devices need a driver of their own",
        reload=True,
    )
    imex_channel_ids: tuple[int, ...] = knob(
        ListOf(Whole(0, 2047)),
        (),
        "IMEX channels that every GPU container gets",
        "only multi-node NVLink domains have IMEX channels",
        reload=True,
    )
    imex_required: bool = knob(
        Flag(),
        default=False,
        what="treat a missing IMEX channel as a fault rather than leaving it out",
        why="one configuration can then serve nodes with and without",
        reload=True,
    )
    mps_root: Path = knob(
        AbsolutePath(),
        Path("/run/nvidia/mps"),
        "where pipes and shared memory of MPS are",
        "Helm charts for GPUs use this directory",
    )
    health_coalesce_seconds: float = knob(
        Number(0, 5),
        0.05,
        "changes of health within this time go to the kubelet as one list",
        "one fault often hits several devices within milliseconds",
        reload=True,
    )
    refuse_held_devices: bool = knob(
        Flag(),
        default=True,
        what="refuse an Allocate for a device that a living pod surely holds",
        why="a kubelet that lost its checkpoint hands out held GPUs again",
        reload=True,
    )
    config_dir: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "directory of named configurations, one file each, chosen by the node label nvidia.com/device-plugin.config",
        "a single configuration serves every node",
    )
    default_config: str | None = knob(
        Maybe(FILE_NAME),
        None,
        "the named configuration of a node without that label",
        "the only configuration of the directory, or the configuration named default",
        reload=True,
    )


class JournalSettings(Section):
    """The journal of devices held by containers, written before the kubelet gets an answer."""

    on_failure: Literal["refuse", "degrade"] = knob(
        OneOf(("refuse", "degrade")),
        "refuse",
        "when the journal cannot be written: refuse pods, or admit them without a durable record",
        "a record that may lie is worse than a pod that waits",
        reload=True,
    )
    rotate_bytes: int = knob(
        Whole(4096, 1024 * 1024 * 1024),
        1024 * 1024,
        "size at which a snapshot is taken and a new journal begun",
        "some thousand entries, replayed in milliseconds",
        reload=True,
    )
    free_after_seconds: float = knob(
        Number(1, 3600),
        30.0,
        "how long no pod must hold a device before its entry is taken for given back",
        "a device just handed out is not yet in the kubelet's list",
        reload=True,
    )
    history_entries: int = knob(
        Whole(0, 100000),
        1000,
        "ended allocations that are kept for the history",
        "days of a busy node",
        reload=True,
    )
