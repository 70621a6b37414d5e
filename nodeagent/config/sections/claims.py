"""`claims`: devices by dynamic resource allocation, and what schedulers see of the devices."""

from pathlib import Path
from typing import Literal, TypeAlias

from nodeagent.config.compound import ListOf, Nested
from nodeagent.config.kinds import AbsolutePath, Flag, OneOf, Text
from nodeagent.config.knobs import Section, knob, required

EffectWord: TypeAlias = Literal["None", "NoSchedule", "NoExecute"]

FINDING = Text("a finding such as xid-79, a pattern such as xid-*, or a verdict", r"[a-z0-9*?\[\]!-]+", 63)


class TaintRule(Section):
    """The effect of a health finding on pods with the device, and on later pods."""

    finding: str = required(
        FINDING,
        "the finding: by name or pattern (`xid-79`, `xid-*`, `remap-failed`), or by its verdict (`unhealthy`,"
        " `suspect`, `unknown`)",
    )
    effect: EffectWord = required(
        OneOf[EffectWord](("None", "NoSchedule", "NoExecute")),
        "None only tells, NoSchedule gives the device to nobody new, NoExecute also ends the pods that have it",
    )


class SlicesSettings(Section):
    """The devices for claims as published to schedulers."""

    taints: tuple[TaintRule, ...] = knob(
        ListOf(Nested(TaintRule)),
        (),
        "the effect of health findings, rule by rule; the first rule that fits a finding counts;"
        " without a rule a suspect device is only reported, and any other finding keeps new pods"
        " away",
        "pods on a failing device may come to their end, and new pods should begin elsewhere",
        reload=True,
    )


_PART = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
DRIVER_NAME = Text("a DNS sub-domain such as gpu.nvidia.com", rf"{_PART}(\.{_PART})*", 63)
INSTANCE = Text("letters, digits and dashes, such as a pod's uid, or nothing", r"([A-Za-z0-9-]*)", 36)


BY_MEMORY = "memory"
SHARE_BY = Text("memory, unlimited, or a whole number from 1 to 9999", r"memory|unlimited|[1-9][0-9]{0,3}", 9)


class ClaimsSettings(Section):
    """GPUs by claims of dynamic resource allocation: the driver's name, and its sockets for the kubelet."""

    enabled: bool = knob(
        Flag(),
        default=False,
        what="give GPUs behind the door `claims` by claims; `doors.rules` says which those are; needs the API server",
        why="a GPU is given whole unless somebody asks for another way",
    )
    driver: str = knob(
        DRIVER_NAME,
        "gpu.nvidia.com",
        "the driver's name, by which classes and claims ask for it",
        "classes, selectors and configurations that exist go on working",
    )
    plugins_dir: Path = knob(
        AbsolutePath(),
        Path("/var/lib/kubelet/plugins"),
        "where the socket goes that the kubelet calls, in a folder of the driver's name",
        "the kubelet's convention",
    )
    registry_dir: Path = knob(
        AbsolutePath(),
        Path("/var/lib/kubelet/plugins_registry"),
        "where the kubelet looks for plugins that want to be registered",
        "fixed below the kubelet's --root-dir",
    )
    instance: str = knob(
        INSTANCE,
        "",
        "a name, such as the pod's uid, that keeps the sockets of two agents apart while one takes over from the other",
        "with fixed names the new agent's sockets take the place of the old one's",
    )
    mig_on_demand: bool = knob(
        Flag(),
        default=False,
        what="offer every MIG device that a GPU could be cut into, and make the one that a claim gets;"
        " needs `mig.manage`",
        why="only MIG devices that exist are offered",
    )
    shares: bool = knob(
        Flag(),
        default=False,
        what="let several claims share a GPU, each with the memory and the cores that it asks for",
        why="a claim that asks for a GPU gets all of it",
    )
    share_by: str = knob(
        SHARE_BY,
        BY_MEMORY,
        "what a claim takes of a shared GPU without asking, in the words of NVIDIA's DRA driver: memory: all memory;"
        " unlimited: nothing; a number such as 4: one of so many shares",
        "a claim that was written without a thought of sharing has the GPU alone",
    )
    time_slices: bool = knob(
        Flag(),
        default=False,
        what="set the time slice of a GPU as the configuration of its claim asks for it, by the driver's `nvidia-smi`",
        why="a claim that asks for another one than the driver's own is refused, by name",
    )
    metadata_files: Literal["auto", "true", "false"] = knob(
        OneOf(("auto", "true", "false")),
        "auto",
        "put a file about the devices of each request of a claim into its containers (KEP-5304); auto does where the"
        " kubelet is 1.37 or newer",
        "programs that read the files, such as KubeVirt's, come with Kubernetes 1.37",
    )
    slices: SlicesSettings = knob(Nested(SlicesSettings), SlicesSettings(), (SlicesSettings.__doc__ or "").strip())


def locate_service(claims: ClaimsSettings) -> Path:
    """The socket for the kubelet's calls."""
    return claims.plugins_dir / claims.driver / f"dra{_list_distinct(claims)}.sock"


def locate_registration(claims: ClaimsSettings) -> Path:
    """The socket by which the kubelet finds the service socket."""
    return claims.registry_dir / f"{claims.driver}{_list_distinct(claims)}-reg.sock"


def _list_distinct(claims: ClaimsSettings) -> str:
    return f"-{claims.instance}" if claims.instance else ""
