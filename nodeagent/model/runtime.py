"""The container runtime and the CDI specifications, as this node has them."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

from nodeagent.model.values import Value


class RuntimeKind(StrEnum):
    """Which runtime serves the kubelet."""

    CONTAINERD = "containerd"
    CRIO = "cri-o"
    DOCKER = "docker"
    PODMAN = "podman"
    UNKNOWN = "unknown"


class RuntimeFlavour(StrEnum):
    """Who starts the runtime and writes its configuration."""

    PLAIN = "plain"
    K3S = "k3s"
    RKE2 = "rke2"
    MICROK8S = "microk8s"
    K0S = "k0s"


class RuntimeCandidate(Value, frozen=True):
    """A container runtime that was seen on this node."""

    kind: RuntimeKind
    socket: str
    flavour: RuntimeFlavour = RuntimeFlavour.PLAIN
    answers: bool = False
    """Whether it answered on its socket."""
    problem: str = ""
    """Why it did not."""
    version: str = ""
    pid: int | None = None
    executable: str = ""
    arguments: tuple[str, ...] = ()
    unit: str = ""
    """The service of systemd in which its process runs; empty where it runs in none, or that cannot be told."""
    cdi_in_force: bool | None = None
    """What the running daemon itself says about CDI; `None` when it does not say."""
    handlers: tuple[str, ...] | None = None
    """Runtime classes that it would run; `None` when it does not say."""
    programs: Mapping[str, str] = {}
    """The low-level runtime behind a class, of those for which it says it."""
    default_handler: str = ""
    """The class of a container that asks for none; empty when it does not say."""


class RuntimeEvidence(Value, frozen=True):
    """Everything from which it follows which runtime serves the kubelet."""

    candidates: tuple[RuntimeCandidate, ...] = ()
    kubelet_endpoint: str = ""
    """The socket that the kubelet was told to use; empty when that cannot be seen."""
    wrapper: str = ""
    """Where the program behind the runtime class `nvidia` is; empty when there is none."""


class ConfigFile(Value, frozen=True):
    """One file of a runtime's configuration."""

    path: str
    content: bytes | None = None
    """`None` when there is no such file."""
    problem: str = ""


class ConfigTree(Value, frozen=True):
    """The main file first, then everything it brings in, in the order in which the runtime reads it."""

    files: tuple[ConfigFile, ...]
    problems: tuple[str, ...] = ()


SCRATCH: Final = "/@scratch@"
"""Stands, in files for a daemon that is only tried out, for the directory that it is given."""


class TrialAnswer(Value, frozen=True):
    """What became of a daemon that was started on the side."""

    obstacle: str = ""
    """Why none could be started; then nothing is known."""
    is_ready: bool = False
    """Whether CRI answered that the runtime is ready."""
    said: str = ""
    """Why it is not, in the daemon's own words."""
    handlers: tuple[str, ...] | None = None
    cdi_enabled: bool | None = None


class DaemonProcess(Value, frozen=True):
    """A process of a runtime's program, and what it has done so far."""

    pid: int
    age_seconds: float
    cpu_seconds: float
    moved_bytes: int = 0
    """What it has read from storage and written there; zero where that is hidden."""


OWN_NAME: Final = "zz-nodeagent"
"""Directories are read in the order of the names and the last one wins: NVIDIA's toolkit calls its file `99-nvidia`."""
FORMER_NAME: Final = "99-nodeagent"
"""What earlier releases of the agent called it."""


def is_own_file(path: str) -> bool:
    """Whether a configuration file is the agent's alone, by its name; others only have settings of ours in them."""
    return PurePosixPath(path).stem in (OWN_NAME, FORMER_NAME)


class FileChange(Value, frozen=True):
    """A file as it is and as it should be."""

    path: str
    before: bytes | None
    after: bytes | None
    """`None` takes the file away."""


class EditedFile(Value, frozen=True):
    """A file that we have changed and somebody else after us."""

    path: str
    before: bytes | None
    """What was there before us; `None` when there was no file."""
    ours: bytes
    """What we made of it."""
    now: bytes


class Restored(Value, frozen=True):
    """What became of the files that we had changed."""

    given_back: tuple[str, ...] = ()
    """As they were before us, byte for byte."""
    taken_out: tuple[str, ...] = ()
    """Changed by somebody else since; our keys are gone, theirs are there."""
    kept: tuple[str, ...] = ()
    """Changed by somebody else since, and left as they are: our keys cannot be told from theirs."""


class RuntimeState(Value, frozen=True):
    """State: whether containers on this node can be given GPUs."""

    kind: RuntimeKind
    version: str = ""
    socket: str = ""
    config_file: str = ""
    cdi_enabled: bool | None = None
    problem: str = ""
    """Why it is not known, or what is in the way of the settings; empty when nothing is."""
    restart_needed: str = ""
    """The exact command that would bring the written configuration into force, or why none is known and what to do
    about it; empty when it is in force."""
    through_shim: bool = False
    """Whether it creates every container through the runtime shim, by its own word, and that takes CDI names."""


class CdiSpecFile(Value, frozen=True):
    """One specification file in one of the CDI directories."""

    path: str
    kind: str
    version: str
    devices: tuple[str, ...] = ()
    ours: bool = False


class CdiState(Value, frozen=True):
    """State: the specifications in force, and for which inventory they were written."""

    generation: int
    files: tuple[CdiSpecFile, ...] = ()
    left_out: tuple[str, ...] = ()
    """Devices without an entry, each with its reason."""
    hook: str = ""
    """The program that makes a linker cache in each container; empty where none is run."""
    no_hook_reason: str = ""
    """Why none is."""
    shim: str = ""
    """The program that stands before the low-level runtime; empty where none is in place."""
