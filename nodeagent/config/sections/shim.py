"""Settings of the runtime shim: the directory, and the requests allowed to containers."""

from pathlib import Path
from typing import Literal

from nodeagent.config.compound import ListOf
from nodeagent.config.kinds import NAMESPACE, AbsolutePath, Flag, Maybe, OneOf, Text
from nodeagent.config.knobs import Section, knob
from nodeagent.config.sections.hardware import VARIABLE
from nodeagent.model.shim_names import RUNTIME_NAMES, SHIM_PLACE, SHIM_PROGRAM

DriverCapability = Literal["compat32", "compute", "display", "graphics", "ngx", "utility", "video"]
CAPABILITIES: tuple[DriverCapability, ...] = (
    "compat32",
    "compute",
    "display",
    "graphics",
    "ngx",
    "utility",
    "video",
)
CDI_KIND = Text("a CDI kind, vendor/class", r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_-]*", 256)
PREFIX = Text("the beginning of an annotation's key", r"[A-Za-z0-9][A-Za-z0-9./_-]*", 253)
PROGRAM = Text("the name of a program, or its absolute path", r"/.+|[A-Za-z0-9._-]+", 4096)


class ShimSettings(Section):
    """Devices for containers that ask by environment; `runtime.shim` switches the shim on."""

    dir: Path = knob(
        AbsolutePath(),
        Path("/var/lib/nodeagent"),
        "the host's directory for the shim's program, with the shim's table in a directory `shim` beside the program",
        "it must be seen by the container runtime under the same path; this is where the agent may write everywhere",
    )
    nvidia_name_dir: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "a directory of the host in which the program is found as nvidia-container-runtime too, also with .cdi and"
        " .legacy behind; empty for none",
        "only programs such as k3s look for the name nvidia-container-runtime on PATH",
    )
    default_runtime: bool = knob(
        Flag(),
        default=False,
        what="make it the runtime of every container that asks for none, where runtime.manage is on",
        why="a container then asks for GPUs by its environment alone, and every image may",
    )
    on_missing: Literal["refuse", "pass"] = knob(
        OneOf(("refuse", "pass")),
        "refuse",
        "what becomes of a container that asks for GPUs while what is looked up is missing, damaged or out of date:"
        " it is refused, or started without",
        "a program that finds no GPU says less than a container that says why it did not start",
        reload=True,
    )
    mode: Literal["auto", "cdi", "legacy"] = knob(
        OneOf(("auto", "cdi", "legacy")),
        "auto",
        "how names of devices are understood: as CDI names where all are qualified, always, or never",
        "images and scripts expect this mode",
        reload=True,
    )
    accept_environment: bool = knob(
        Flag(),
        default=True,
        what="let containers without CAP_SYS_ADMIN ask by NVIDIA_VISIBLE_DEVICES",
        why="most images do; whoever may not be trusted with it has to ask by mounts or CDI names",
        reload=True,
    )
    accept_mounts: bool = knob(
        Flag(),
        default=False,
        what="let containers ask by mounts of /dev/null below /var/run/nvidia-container-devices",
        why="only a device plugin with that strategy makes such mounts",
        reload=True,
    )
    disable_require: bool = knob(
        Flag(),
        default=False,
        what="start containers even where the driver does not meet their NVIDIA_REQUIRE_ variables",
        why="they would fail later, with less of a reason",
        reload=True,
    )
    ignore_imex: bool = knob(
        Flag(),
        default=False,
        what="pass over NVIDIA_IMEX_CHANNELS",
        why="a container that asks for a channel needs the channel",
        reload=True,
    )
    default_kind: str = knob(
        CDI_KIND,
        "nvidia.com/gpu",
        "the CDI kind of a name without one, in mode cdi",
        "device names of this kind are in common use",
        reload=True,
    )
    capabilities: tuple[DriverCapability, ...] = knob(
        ListOf(OneOf(CAPABILITIES)),
        CAPABILITIES,
        "the capabilities of the driver that containers may ask for by NVIDIA_DRIVER_CAPABILITIES",
        "containers may use every capability of the driver",
        reload=True,
    )
    debug: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "a file of the host for the shim's messages besides the low-level runtime's own log; empty for none",
        "the container runtime shows the shim's messages",
        reload=True,
    )
    runtimes: tuple[str, ...] = knob(
        ListOf(PROGRAM, 1),
        ("runc", "crun"),
        "the low-level runtimes behind the shim, by path or on PATH; the first that exists is used",
        "every node has one of these runtimes",
        reload=True,
    )
    swarm_resources: tuple[str, ...] = knob(
        ListOf(VARIABLE),
        (),
        "variables in which a scheduler of Swarm's kind names GPUs, in place of NVIDIA_VISIBLE_DEVICES",
        "only a scheduler of Swarm's kind sets the variables",
        reload=True,
    )
    annotation_prefixes: tuple[str, ...] = knob(
        ListOf(PREFIX),
        ("cdi.k8s.io/",),
        "prefixes of the annotations that name CDI devices",
        "container runtimes use this prefix",
        reload=True,
    )
    management_namespaces: tuple[str, ...] = knob(
        ListOf(NAMESPACE),
        (),
        "namespaces of Kubernetes whose containers may ask for management.nvidia.com/gpu without CAP_SYS_ADMIN, where"
        " the container runtime says the namespace and a pod cannot",
        "the device has every node of the driver, and is for programs that look after the node",
        reload=True,
    )

    @property
    def program(self) -> Path:
        """The path of the program on the host."""
        return self.dir / SHIM_PROGRAM

    @property
    def table_dir(self) -> Path:
        """The directory of the shim's table."""
        return self.dir / SHIM_PLACE

    @property
    def further_names(self) -> tuple[Path, ...]:
        """Further names of the program, where configured."""
        return tuple(self.nvidia_name_dir / name for name in RUNTIME_NAMES) if self.nvidia_name_dir is not None else ()
