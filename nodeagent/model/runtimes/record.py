"""The record of a container runtime: every property in which runtimes differ."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from nodeagent.model.runtime import RuntimeFlavour, RuntimeKind
from nodeagent.model.values import Value

MAIN: Final = "{main}"
"""Stands, in a command line, for the main configuration file."""


class FurtherFiles(Enum):
    """How a runtime finds the files beside its main file."""

    NONE = auto()
    IMPORTS = auto()
    """The main file names them, under `imports`."""
    DIRECTORY = auto()
    """All files, at any depth, in the directory beside the main file with the usual directory's name and `.d`."""
    CONFS = auto()
    """The files `*.conf`, without subdirectories, in the directory with the main file's name and `.d`."""


class RuntimePlace(Value, frozen=True):
    """A runtime's place in a distribution that starts it."""

    socket: str
    flavour: RuntimeFlavour = RuntimeFlavour.PLAIN
    config_file: str = ""
    """Empty for the runtime's own."""
    restart: tuple[str, ...] = ()
    """The command to restart the runtime; empty where its service is restarted."""
    mark: str = ""
    """A directory by which the distribution differs from another with the same socket; empty without such."""


class RuntimeRecord(Value, frozen=True):
    """A container runtime's properties."""

    kind: RuntimeKind
    setting: str
    """The runtime's word in `runtime.kind`, also part of its sockets' names."""
    title: str
    """The runtime's name for people."""
    program: str
    unit: str
    """The runtime's service in distributions; empty for a command."""
    config_file: str
    config_flags: tuple[str, ...]
    places: tuple[RuntimePlace, ...]
    first_with_cdi: tuple[int, int]
    first_with_groups: tuple[int, int]
    """The first release known to read version 0.7.0 of the CDI format."""
    adapter: str = ""
    """Ending of the socket name of the adapter in front of the runtime; without the adapter it serves no kubelet."""
    speaks_cri: bool = True
    is_command: bool = False
    """Whether the runtime is no daemon but a program started by people; considered only where the settings name it."""
    further_files: FurtherFiles = FurtherFiles.NONE
    check: tuple[str, ...] = ()
    """The arguments with which the runtime's own program checks a configuration; empty where it has no check."""
    check_flag: str = ""
    """The flag among the arguments known only to newer releases; empty where all releases know them."""

    notes: tuple[str, ...] = ()
    """Patterns of files, a file for each container, with the path of the container's low-level runtime."""
    monitor: str = ""
    """The monitor program beside each container, with the same path in its arguments; empty where there is none."""

    def find_place(self, flavour: RuntimeFlavour) -> RuntimePlace:
        """The runtime's place in a distribution; an unknown distribution has the plain place."""
        return next((each for each in self.places if each.flavour is flavour), self.places[0])

    def find_config_flag(self, arguments: Sequence[str]) -> str:
        """The configuration file in the daemon's arguments; empty when the default is in use."""
        for number, argument in enumerate(arguments):
            for flag in self.config_flags:
                if argument == flag and number + 1 < len(arguments):
                    return arguments[number + 1]
                if argument.startswith(f"{flag}="):
                    return argument.partition("=")[2]
        return ""
