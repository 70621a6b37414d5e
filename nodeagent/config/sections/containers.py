"""Settings about containers: what they find besides their GPUs, CDI specifications, and the container runtime."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias, cast

from nodeagent.config.compound import ListOf, MapOf, Nested
from nodeagent.config.kinds import AbsolutePath, Flag, Maybe, Number, OneOf, Text, Whole
from nodeagent.config.knobs import Place, Section, knob, required
from nodeagent.config.sections.hardware import VARIABLE
from nodeagent.config.tree import Node, Scalar

FileLayout: TypeAlias = Literal["standard", "usr_local_nvidia"]


class ExtraDevice(Section):
    """A device node of the host for every container with a GPU; a path alone is a node without the other keys."""

    host: Path = required(AbsolutePath(), "where the host has it")
    container: Path | None = knob(Maybe(AbsolutePath()), None, "where the container sees it", "where the host has it")
    permissions: str = knob(
        Text("some of the letters r, w and m, each once", r"(?=.)r?w?m?", 3), "rw", "how it may be used", "as usual"
    )

    @property
    def place(self) -> str:
        """The path in containers."""
        return str(self.container or self.host)


class ExtraDeviceKind(Nested[ExtraDevice], frozen=True):
    """A device node, also written as its path alone."""

    @property
    def label(self) -> str:
        """The name of the kind in problems and on the reference page."""
        return f"an absolute path, or {super().label}"

    def read(self, node: Node, place: Place) -> ExtraDevice:
        """The device node of a path or of a mapping."""
        if isinstance(node, Scalar):
            return ExtraDevice(host=AbsolutePath().read(node, place))
        return super().read(node, place)

    def json_schema(self) -> dict[str, object]:
        """A path, or an object with known keys."""
        return {"anyOf": [AbsolutePath().json_schema(), super().json_schema()]}


class ContainersSettings(Section):
    """Further devices, variables and the layout of the driver's files in every container with a GPU or a fraction."""

    layout: FileLayout = knob(
        OneOf[FileLayout](("standard", "usr_local_nvidia")),
        "standard",
        "usr_local_nvidia: the driver's libraries and programs are also seen in /usr/local/nvidia/lib64 and"
        " /usr/local/nvidia/bin",
        "the dynamic linkers of most images find the libraries without; images made for GPUs on GKE look there",
        reload=True,
    )
    extra_devices: tuple[ExtraDevice, ...] = knob(
        ListOf(cast("Nested[ExtraDevice]", ExtraDeviceKind(ExtraDevice))),
        (),
        "further device nodes of the host; one that is missing is a condition, and containers start without it",
        "pods ask for other devices by classes",
        reload=True,
    )
    extra_environment: Mapping[str, str] = knob(
        MapOf(VARIABLE, Text("the variable's value", r".*", 4096)),
        MappingProxyType({}),
        "further environment variables, in place of those of image and pod",
        "images and pods bring their own",
        reload=True,
    )


class CdiSettings(Section):
    """The specification that tells container runtimes the device nodes, files and hooks of a GPU."""

    enabled: bool = knob(
        Flag(), default=True, what="write CDI specifications", why="containers get their GPUs through these files"
    )
    dir: Path = knob(
        AbsolutePath(),
        Path("/var/run/cdi"),
        "where specifications are written",
        "container runtimes read this directory, and a reboot empties it, as driver files may have changed",
    )
    hooks: Literal["auto", "none", "ldcache"] = knob(
        OneOf(("auto", "none", "ldcache")),
        "auto",
        "run a small program that makes a container's linker cache when it is created, or nothing;"
        " auto: where that program is put in place and has been seen to run on the host",
        "programs that look for libraries by `ldconfig -p` need the cache; other programs find"
        " the mounted libraries without it",
        reload=True,
    )
    device_groups: Literal["auto", "always", "never"] = knob(
        OneOf(("auto", "always", "never")),
        "auto",
        "make a container's process a member of the groups that may open its devices, such as those of /dev/dri;"
        " auto: for pods, where the container runtime is known to read version 0.7.0 of the format",
        "a reader that is too old would ignore the whole file",
        reload=True,
    )
    hook_dir: Path = knob(
        AbsolutePath(),
        Path("/var/lib/nodeagent"),
        "where the hook program is installed on the host",
        "it must be seen by the container runtime under the same path; this is where the agent may write everywhere",
    )
    nvidia_name_dir: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "a directory of the host in which the hook program is found as nvidia-cdi-hook, which Docker 29 looks for on"
        " PATH before `--gpus` gives CDI devices, and an agent outside of pods as nvidia-container-cli; empty for none",
        "most programs ask for CDI names, and no program of NVIDIA is to be in the way",
        reload=True,
    )
    public_kind: bool = knob(
        Flag(),
        default=True,
        what="define nvidia.com/gpu for people and other tools as well, while no other file does",
        why="podman run --device nvidia.com/gpu=0 then works",
        reload=True,
    )

    @property
    def further_names_dir(self) -> Path | None:
        """The directory of the programs' further names; `None` for no names."""
        return self.nvidia_name_dir


class RuntimeSettings(Section):
    """The container runtime, and the changes allowed to the agent in the runtime's configuration."""

    manage: bool = knob(
        Flag(),
        default=False,
        what="switch CDI on in the runtime's configuration where it is off",
        why="another program's configuration is changed when asked for; where CDI is on nothing needs changing",
    )
    kind: Literal["auto", "containerd", "crio", "docker", "podman"] = knob(
        OneOf(("auto", "containerd", "crio", "docker", "podman")),
        "auto",
        "the container runtime of the kubelet, or, on a machine without a kubelet, of the machine's users",
        "it is found from the kubelet's endpoint, sockets and processes",
    )
    socket: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "the runtime's CRI socket; empty means the socket of the runtime found on this node",
        "the agent finds the runtime's own",
    )
    config_file: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "the runtime's main configuration file; empty means that it is found",
        "the agent finds the runtime's own",
    )
    legacy_class: bool = knob(
        Flag(),
        default=False,
        what="add the runtime class entry named nvidia, for NVIDIA's program; with runtime.shim it is the agent's own",
        why="only pods with the runtime class nvidia need the class",
    )
    shim: bool = knob(
        Flag(),
        default=False,
        what="install a program before runc that gives GPUs to containers which ask by NVIDIA_VISIBLE_DEVICES, as the"
        " runtime class named nvidia; the section shim says how",
        why="the device plugin needs no such program; images and scripts that ask by environment do",
    )
    restart: Literal["never", "when_idle", "now"] = knob(
        OneOf(("never", "when_idle", "now")),
        "never",
        "whether the runtime may be restarted for a change to take effect",
        "a person decides; the condition names the command",
        reload=True,
    )
    restart_command: tuple[str, ...] = knob(
        ListOf(Text("a word of a command", r".+", 1024), distinct=False),
        (),
        "the command that restarts the runtime, word by word; empty means the agent's own choice",
        "it is that of the distribution, or restarts the unit of the process behind the socket",
        reload=True,
    )
    restart_timeout_seconds: float = knob(
        Number(1, 600),
        30.0,
        "how long a restarted runtime, its service manager included, may take without getting on before the change is"
        " rolled back; twice its last start where that is longer, and at most ten times as long while it gets on",
        "a runtime answers within seconds even with many containers",
        reload=True,
    )
    repairs_per_hour: int = knob(
        Whole(0, 60),
        3,
        "how often a setting that another program undoes is put back",
        "a file overwritten more often is a conflict for a person to settle",
        reload=True,
    )
