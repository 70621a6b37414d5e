"""Settings about hardware: GPUs, driver, health, inventory."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from nodeagent.config.compound import ListOf, MapOf, Nested
from nodeagent.config.kinds import AbsolutePath, Flag, Maybe, Number, OneOf, Text, Whole
from nodeagent.config.knobs import Section, knob
from nodeagent.config.sections.driver_upgrades import DriverUpgradeSettings
from nodeagent.config.sections.health_limits import HealthLimits
from nodeagent.config.sections.repairers import DrainSettings, RebootAnnotation, RebootWebhook, SlotsSettings
from nodeagent.model.orders import RELEASE_SECONDS

SIMULATED = "simulated:"
GPU_SOURCE = Text("nvml or simulated:PROFILE", rf"nvml|{SIMULATED}[A-Za-z0-9/._-]+")
GPU_SELECTOR = Text("an index, a UUID, a PCI address or a model pattern such as NVIDIA A100*", r".+", 256)
XID = Text("an XID number, or all", r"[0-9]{1,5}|all|xids")
XID_CLASS = Text("an XID number or a class of the catalogue", r"[0-9]{1,5}|[a-z][a-z-]*")

VARIABLE = Text("the name of an environment variable", r"[A-Za-z_][A-Za-z0-9_]*", 256)

IdleStage: TypeAlias = Literal["off", "quick", "proof"]
UpTo: TypeAlias = Literal["drain", "reset", "bus_reset", "reload_driver", "reboot"]
RebootBy: TypeAlias = Literal["none", "command", "reboot_required_file", "node_annotation", "webhook"]
XidVerdict: TypeAlias = Literal["ignore", "suspect", "unhealthy"]


class GpusSettings(Section):
    """The GPUs managed by the agent."""

    source: str = knob(
        GPU_SOURCE,
        "nvml",
        "nvml for the hardware, simulated:PROFILE for made-up GPUs beside real neighbours",
        "a node has real GPUs",
    )
    include: tuple[str, ...] = knob(
        ListOf(GPU_SELECTOR),
        (),
        "only GPUs that match one of these, by index, UUID, PCI address or model pattern; empty means all",
        "every GPU of the node is wanted",
        reload=True,
    )
    exclude: tuple[str, ...] = knob(
        ListOf(GPU_SELECTOR),
        (),
        "GPUs that the agent leaves alone although `include` names the GPUs",
        "none is",
        reload=True,
    )

    expected: int | None = knob(
        Maybe(Whole(0, 1024)),
        None,
        "the number of GPUs of this node; fewer are an error, and a vanished GPU beyond the number is not missed",
        "the agent remembers all GPUs seen before",
        reload=True,
    )

    @property
    def simulated_profile(self) -> str | None:
        """The profile of simulated GPUs; `None` on real hardware."""
        return self.source.removeprefix(SIMULATED) if self.source.startswith(SIMULATED) else None


class DriverSettings(DriverUpgradeSettings):
    """The location of the NVIDIA driver, and the agent's work for the driver."""

    root: Path = knob(
        AbsolutePath(),
        Path("/"),
        "root of the driver installation; /run/nvidia/driver where a container provides it",
        "most nodes have the driver installed on the host",
    )
    dev_root: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "the host's root under which dev/nvidia* lie; empty means the driver's, or / where that has none",
        "device nodes lie below the driver root except with some driver containers",
    )
    nvml_library: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "the NVML library itself; empty means that it is looked for under the driver's root",
        "the search knows the usual places",
    )
    manage_device_nodes: bool = knob(
        Flag(),
        default=True,
        what="create missing device nodes and repair their links under /dev/char",
        why="without device nodes containers lose their GPUs, and no other program of a bare node makes the nodes",
        reload=True,
    )
    load_modules: bool = knob(
        Flag(),
        default=False,
        what="load the kernel modules nvidia and nvidia-uvm by the host's modprobe where the running kernel has them",
        why="a distribution loads them at boot, and an agent that may load modules has more rights than others need",
        reload=True,
    )
    imex_channels: tuple[int, ...] = knob(
        ListOf(Whole(0, 2047)),
        (),
        "IMEX channels whose device nodes are made as those of GPUs are",
        "only multi-node NVLink domains have IMEX channels, and the driver may make channel 0 itself",
        reload=True,
    )
    validation_markers: bool = knob(
        Flag(),
        default=False,
        what="keep the marker files that operands of NVIDIA's operator wait for",
        why="only operands of the GPU Operator read the markers, and on such a node another validator"
        " may write the markers",
        reload=True,
    )
    validation_dir: Path = knob(
        AbsolutePath(),
        Path("/run/nvidia/validations"),
        "where the marker files are kept",
        "operands of the GPU Operator look in this directory",
    )
    workload_validation: bool = knob(
        Flag(),
        default=False,
        what="make a pod with a GPU on this node, of the agent's own image, when the driver or the offer changes",
        why="the pod needs a free GPU and rights to make pods; the agent judges driver and GPUs without such a pod",
    )
    workload_validation_seconds: float = knob(
        Number(10, 3600),
        300.0,
        "time from the making of that pod to its end",
        "the image is on the node already, and the GPU Operator waits for its pods as long",
        reload=True,
    )
    call_timeout_seconds: float = knob(
        Number(0.1, 300),
        5.0,
        "time an NVML call may take before the worker process is replaced",
        "the slowest healthy call, the first after a cold start, takes about two",
        reload=True,
    )
    revalidate_seconds: float = knob(
        Number(1, 3600),
        30.0,
        "pause between full checks of module, device nodes and library",
        "events report most changes at once; the regular check finds changes without events",
        reload=True,
    )
    cuda_smoke_test: bool = knob(
        Flag(),
        default=False,
        what="prove the driver by a small CUDA computation in a short-lived process",
        why="it takes GPU memory and seconds, and fails on a GPU that is in exclusive use",
        reload=True,
    )
    cuda_smoke_test_timeout_seconds: float = knob(
        Number(1, 600),
        30.0,
        "time the CUDA computation may take",
        "creating a context takes seconds on a node with many GPUs",
        reload=True,
    )
    worker_environment: Mapping[str, str] = knob(
        MapOf(VARIABLE, Text("the variable's value", r".*", 4096)),
        MappingProxyType({}),
        "environment variables for the process that calls NVML, which otherwise has none",
        "the driver needs none; emulators of NVML and unusual installations do",
    )
    release_seconds: float = knob(
        Number(*RELEASE_SECONDS),
        600.0,
        "how long released handles stay released unless the command says otherwise",
        "a driver upgrade takes minutes; a forgotten release must end",
        reload=True,
    )


class HealthSettings(HealthLimits):
    """The rules for unhealthy GPUs, and for their return to healthy."""

    profile: Literal["catalogue", "plugin"] = knob(
        OneOf(("catalogue", "plugin")),
        "catalogue",
        "judge by our catalogue of XIDs, or as NVIDIA's device plugin does",
        "the catalogue tells application faults from hardware faults",
        reload=True,
    )
    xid_policy: Mapping[str, XidVerdict] = knob(
        MapOf(XID_CLASS, OneOf[XidVerdict](("ignore", "suspect", "unhealthy"))),
        MappingProxyType({}),
        "verdict by XID number or class, over what the profile says",
        "the profile's verdicts are right for most nodes",
        reload=True,
    )
    disable_xids: tuple[str, ...] = knob(
        ListOf(XID, distinct=False),
        (),
        "XIDs that never make a GPU unhealthy, in addition to the profile's; all for none at all",
        "NVIDIA's device plugin reads the same variable",
        reload=True,
        also_env="DP_DISABLE_HEALTHCHECKS",
    )
    enable_xids: tuple[str, ...] = knob(
        ListOf(XID, distinct=False),
        (),
        "XIDs that do make a GPU unhealthy although they are disabled",
        "NVIDIA's device plugin reads the same variable",
        reload=True,
        also_env="DP_ENABLE_HEALTHCHECKS",
    )
    watch_kernel_log: bool = knob(
        Flag(),
        default=True,
        what="read XIDs from the kernel log as well",
        why="the log has them when NVML hangs, and from before the agent started",
    )
    kernel_log: Path = knob(
        AbsolutePath(),
        Path("/dev/kmsg"),
        "where the kernel log is read",
        "the kernel's own device; reading it needs CAP_SYSLOG on most distributions",
    )
    poll_seconds: float = knob(
        Number(0.5, 3600),
        5.0,
        "pause between looks at memory errors, links, heat and recovery action",
        "faults without an event are found within seconds at little cost",
        reload=True,
    )
    clean_polls: int = knob(
        Whole(1, 100),
        2,
        "looks in a row that must be clean before a GPU returns to healthy",
        "a single clean reading may be luck",
        reload=True,
    )
    unknown_after_missed_polls: int = knob(
        Whole(1, 100),
        3,
        "looks in a row without an answer before a GPU is no longer taken for healthy",
        "one slow call is no fault; no answer for long is no health",
        reload=True,
    )
    flap_limit: int = knob(
        Whole(1, 1000),
        3,
        "returns to healthy within the window after which only a person can clear a GPU",
        "a GPU that fails again and again takes work down with it",
        reload=True,
    )
    flap_window_seconds: float = knob(
        Number(60, 2592000),
        86400.0,
        "the window in which returns are counted",
        "a day",
        reload=True,
    )


class RepairsSettings(Section):
    """Repairs of GPUs with a fault that a reset, a reboot or service mends."""

    mode: Literal["off", "observe", "act"] = knob(
        OneOf(("off", "observe", "act")),
        "off",
        "off for no repairs at all, observe to keep fault sessions and say what would be done, without doing it, act"
        " to do it up to the rung of `up_to`",
        "whoever switches repairs on knows the node's pods; the agent does not",
    )
    up_to: UpTo = knob(
        OneOf[UpTo](("drain", "reset", "bus_reset", "reload_driver", "reboot")),
        "reset",
        "the highest rung of the ladder that mode act takes by itself",
        "a reset hits the faulty GPU alone, a reboot every pod of the node",
    )
    reset_seconds: float = knob(
        Number(1, 3600),
        300.0,
        "how long a reset may take before its process is abandoned and the attempt has failed",
        "a reset takes seconds; a driver that hangs may take minutes",
        reload=True,
    )
    reboot_by: RebootBy = knob(
        OneOf[RebootBy](("none", "command", "reboot_required_file", "node_annotation", "webhook")),
        "none",
        "how a reboot of the node is requested: by `reboot_command`, by the file /var/run/reboot-required on the"
        " host, on which Kured acts, by the annotation `reboot_annotation` of the node, or at the URL of"
        " `reboot_webhook`",
        "the agent does not reboot a node by itself",
    )
    reboot_command: tuple[str, ...] = knob(
        ListOf(Text("a word of a command", r".+", 1024), distinct=False),
        (),
        "the command that requests a reboot, for `reboot_by: command`",
        "no command fits every node",
    )
    reboot_annotation: RebootAnnotation = knob(
        Nested(RebootAnnotation), RebootAnnotation(), "the annotation for `reboot_by: node_annotation`"
    )
    reboot_webhook: RebootWebhook = knob(Nested(RebootWebhook), RebootWebhook(), "the server for `reboot_by: webhook`")
    reboot_seconds: float = knob(
        Number(60, 604800),
        3600.0,
        "how long a requested reboot may take to come before the attempt has failed",
        "a node is drained first, and a bare machine takes half an hour to boot",
        reload=True,
    )
    drain: DrainSettings = knob(Nested(DrainSettings), DrainSettings(), "how pods leave a GPU before its repair")
    slots: SlotsSettings = knob(Nested(SlotsSettings), SlotsSettings(), "how many nodes are repaired at once")


class ProofSettings(Section):
    """The proof of GPUs while no pod has them, and before a pod that is chosen for them is bound."""

    idle: IdleStage = knob(
        OneOf[IdleStage](("off", "quick", "proof")),
        "off",
        "the stage by which free GPUs are proven: off for none, quick for 1 to 2 s, proof for about 5 s and all memory",
        "whoever switches proofs on knows that a free GPU draws power now and then",
    )
    every_seconds: float = knob(
        Number(3600, 31536000),
        86400.0,
        "pause between two proofs of a GPU",
        "a GPU that went bad between two pods is found within a day",
        reload=True,
    )
    free_seconds: float = knob(
        Number(1, 86400),
        60.0,
        "how long a GPU must be free before a proof",
        "a GPU between two pods of a job is wanted again within seconds",
        reload=True,
    )
    spread_seconds: float = knob(
        Number(0, 86400),
        3600.0,
        "the time after the agent's start within which the first proof of each GPU falls, by node name and GPU",
        "a rack that starts at once does not draw power at once",
        reload=True,
    )
    before_binding: IdleStage = knob(
        OneOf[IdleStage](("off", "quick", "proof")),
        "off",
        "the stage that a GPU passes before a pod whose claim was allocated the GPU is bound: off for none; needs"
        " claims.enabled, the rights of deploy/rbac-proof.yaml, and Kubernetes 1.36 or newer",
        "each first pod of a GPU starts some seconds later",
    )
    fresh_seconds: float = knob(
        Number(0, 31536000),
        600.0,
        "how long a passed proof counts for the next pod that is to be bound; 0 proves before each pod",
        "short pods of a queue do not each wait for a proof",
        reload=True,
    )
    patience_seconds: float = knob(
        Number(1, 540),
        60.0,
        "how long a pod waits for a GPU that cannot be proven; the pod is then bound without a proof, and its claim"
        " says so",
        "no pod waits for a person; the scheduler itself gives up after 600 s",
        reload=True,
    )

    @property
    def is_on(self) -> bool:
        """Whether the agent proves GPUs by itself."""
        return self.idle != "off" or self.before_binding != "off"


class InventorySettings(Section):
    """The pauses between readings of the hardware."""

    sample_seconds: float = knob(
        Number(0.1, 3600),
        1.0,
        "pause between samples of utilisation, memory, power, temperature and counters",
        "fine enough to see bursts, at about 1 % of a core for eight GPUs",
        reload=True,
    )
    rescan_seconds: float = knob(
        Number(1, 86400),
        30.0,
        "pause between full enumerations",
        "hot-plug and MIG changes are noticed by events; this finds what sends none",
        reload=True,
    )
