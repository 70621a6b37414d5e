"""What is known of one container runtime: all that others would otherwise have to know it by name for."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from nodeagent.model.runtime import RuntimeFlavour, RuntimeKind
from nodeagent.model.values import Value

MAIN: Final = "{main}"
"""Stands, in a command line, for the main configuration file."""


class FurtherFiles(Enum):
    """How a runtime finds what it reads beside its main file."""

    NONE = auto()
    IMPORTS = auto()
    """It names them, under `imports`."""
    DIRECTORY = auto()
    """They lie beside it in the directory that is called like its usual one, with `.d` behind: all, at any depth."""
    CONFS = auto()
    """They lie in the directory that is called like it, with `.d` behind: what is called `*.conf`, nothing below."""


class RuntimePlace(Value, frozen=True):
    """Where it is when this distribution starts it."""

    socket: str
    flavour: RuntimeFlavour = RuntimeFlavour.PLAIN
    config_file: str = ""
    """Empty for the runtime's own."""
    restart: tuple[str, ...] = ()
    """What restarts it; empty where that is the service in which it runs."""
    mark: str = ""
    """A directory that tells this distribution from one with the same socket; empty for none."""


class RuntimeRecord(Value, frozen=True):
    """One runtime."""

    kind: RuntimeKind
    setting: str
    """Its word in `runtime.kind`; its sockets have it in their names."""
    title: str
    """What people call it."""
    program: str
    unit: str
    """The service that distributions have for it; empty for a command."""
    config_file: str
    config_flags: tuple[str, ...]
    places: tuple[RuntimePlace, ...]
    first_with_cdi: tuple[int, int]
    first_with_groups: tuple[int, int]
    """The first release that is known to read version 0.7.0 of the CDI format."""
    adapter: str = ""
    """How the socket's name ends of the program in front of it; it serves no kubelet without that one."""
    speaks_cri: bool = True
    is_command: bool = False
    """Whether it is no daemon but a program that people start; it is looked for only where the settings name it."""
    further_files: FurtherFiles = FurtherFiles.NONE
    check: tuple[str, ...] = ()
    """The arguments with which its own program judges a configuration; empty where it does not."""
    check_flag: str = ""
    """The flag among them that only newer releases know; empty where all do."""

    notes: tuple[str, ...] = ()
    """Patterns of files, one for each container, that hold the path of the low-level runtime it was made by."""
    monitor: str = ""
    """The program beside each container that was told this path instead; empty where there is none."""

    def find_place(self, flavour: RuntimeFlavour) -> RuntimePlace:
        """Where it is in this distribution; any other is as the plain one."""
        return next((each for each in self.places if each.flavour is flavour), self.places[0])

    def find_config_flag(self, arguments: Sequence[str]) -> str:
        """The configuration file that the daemon was started with; empty when its default is in use."""
        for number, argument in enumerate(arguments):
            for flag in self.config_flags:
                if argument == flag and number + 1 < len(arguments):
                    return arguments[number + 1]
                if argument.startswith(f"{flag}="):
                    return argument.partition("=")[2]
        return ""
