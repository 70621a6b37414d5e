"""The container runtime and the CDI specifications, as the node has them."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

from nodeagent.model.values import Value


class RuntimeKind(StrEnum):
    """Kinds of container runtimes of the kubelet."""

    CONTAINERD = "containerd"
    CRIO = "cri-o"
    DOCKER = "docker"
    PODMAN = "podman"
    UNKNOWN = "unknown"


class RuntimeFlavour(StrEnum):
    """The distribution that starts the runtime and writes its configuration."""

    PLAIN = "plain"
    K3S = "k3s"
    RKE2 = "rke2"
    MICROK8S = "microk8s"
    K0S = "k0s"


class RuntimeCandidate(Value, frozen=True):
    """A container runtime seen on the node."""

    kind: RuntimeKind
    socket: str
    flavour: RuntimeFlavour = RuntimeFlavour.PLAIN
    answers: bool = False
    """Whether the runtime answered on its socket."""
    problem: str = ""
    """Why the runtime did not answer."""
    version: str = ""
    pid: int | None = None
    executable: str = ""
    arguments: tuple[str, ...] = ()
    unit: str = ""
    """The systemd service of the runtime's process; empty where there is no service, or the service is unknown."""
    cdi_in_force: bool | None = None
    """The running daemon's own answer on CDI; `None` without an answer."""
    handlers: tuple[str, ...] | None = None
    """Runtime classes of the daemon; `None` without an answer."""
    programs: Mapping[str, str] = {}
    """The low-level runtime behind a class, of the classes for which the daemon reports a program."""
    default_handler: str = ""
    """The class of a container without a class of its own; empty without an answer."""


class RuntimeEvidence(Value, frozen=True):
    """All evidence for deciding the kubelet's runtime."""

    candidates: tuple[RuntimeCandidate, ...] = ()
    kubelet_endpoint: str = ""
    """The kubelet's configured socket; empty when the setting cannot be seen."""
    wrapper: str = ""
    """The program behind the runtime class `nvidia`; empty when there is none."""


class ConfigFile(Value, frozen=True):
    """A file of a runtime's configuration."""

    path: str
    content: bytes | None = None
    """`None` when there is no such file."""
    problem: str = ""


class ConfigTree(Value, frozen=True):
    """The main file first, then all included files, in the order in which the runtime reads them."""

    files: tuple[ConfigFile, ...]
    problems: tuple[str, ...] = ()


SCRATCH: Final = "/@scratch@"
"""Placeholder for the scratch directory, in files for a daemon on trial."""


class TrialAnswer(Value, frozen=True):
    """The result of a daemon's trial start."""

    obstacle: str = ""
    """Why no daemon could be started; the trial then proves nothing."""
    is_ready: bool = False
    """Whether CRI answered that the runtime is ready."""
    said: str = ""
    """Why the runtime is not ready, in the daemon's own words."""
    handlers: tuple[str, ...] | None = None
    cdi_enabled: bool | None = None


class DaemonProcess(Value, frozen=True):
    """A process of a runtime's program, and its activity so far."""

    pid: int
    age_seconds: float
    cpu_seconds: float
    moved_bytes: int = 0
    """Bytes read from storage and written to storage; zero where the count is hidden."""


OWN_NAME: Final = "zz-nodeagent"
"""Directories are read in the order of names and the last file wins: the GPU toolkit names its file `99-nvidia`."""
FORMER_NAME: Final = "99-nodeagent"
"""The name in earlier releases of the agent."""


def is_own_file(path: str) -> bool:
    """Whether a configuration file is the agent's alone, by its name; others only have some settings of the agent."""
    return PurePosixPath(path).stem in (OWN_NAME, FORMER_NAME)


class FileChange(Value, frozen=True):
    """A file as it is and as it should be."""

    path: str
    before: bytes | None
    after: bytes | None
    """`None` removes the file."""


class EditedFile(Value, frozen=True):
    """A file changed by the agent, and by another program since."""

    path: str
    before: bytes | None
    """The content before the agent's change; `None` when there was no file."""
    ours: bytes
    """The content after the agent's change."""
    now: bytes


class Restored(Value, frozen=True):
    """The outcome for each file that the agent had changed."""

    given_back: tuple[str, ...] = ()
    """Restored to the content before the agent's change, byte for byte."""
    taken_out: tuple[str, ...] = ()
    """Changed by another program since; the agent's keys are gone, the others are kept."""
    kept: tuple[str, ...] = ()
    """Changed by another program since, and left unchanged: the agent's keys cannot be told from the others."""


class RuntimeState(Value, frozen=True):
    """State: whether containers on the node can be given GPUs."""

    kind: RuntimeKind
    version: str = ""
    socket: str = ""
    config_file: str = ""
    cdi_enabled: bool | None = None
    problem: str = ""
    """Why the runtime is not known, or the obstacle to its settings; empty without a problem."""
    restart_needed: str = ""
    """The exact command to bring the written configuration into force, or why no command is known, with the remedy;
    empty when the configuration is in force."""
    through_shim: bool = False
    """Whether the runtime creates every container through the runtime shim, and the shim takes CDI names."""


class CdiSpecFile(Value, frozen=True):
    """A specification file in a CDI directory."""

    path: str
    kind: str
    version: str
    devices: tuple[str, ...] = ()
    ours: bool = False


class CdiState(Value, frozen=True):
    """State: the specifications in force, and the inventory generation described by them."""

    generation: int
    files: tuple[CdiSpecFile, ...] = ()
    left_out: tuple[str, ...] = ()
    """Devices without an entry, each with its reason."""
    hook: str = ""
    """The program to make a linker cache in each container; empty where no hook is run."""
    no_hook_reason: str = ""
    """Why no hook is run."""
    shim: str = ""
    """The program before the low-level runtime; empty where no shim is in place."""
