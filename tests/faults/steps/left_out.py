"""Points that the matrix does not meet, each with the reason; one that is met, or that is gone, is an error."""

from collections.abc import Iterable
from typing import Final

from tests.faults.steps.points import Point

LEFT_OUT: Final = {
    "app/control.py replace": "settings in memory, no file",
    "app/endpoints.py unlink": "handed to the exit stack, which calls it at an orderly end",
    "cli/": "a command that a person gives is given again; what agents do of it is met here",
    "config/rules.py rename": "a word of the configuration",
    "core/children/": "pipes to children, which end with the agent",
    "core/life/shutdown.py": "last words on standard error",
    "edge/container_runtime/tools.py": "a copy in a scratch directory, for a program to judge",
    "edge/container_runtime/trial.py": "the same for a runtime that is tried",
    "edge/host/devices/device_node_files.py unlink": "after a node that could not be made",
    "edge/host/files/audit_file.py": "lines of a log from which no state follows",
    "edge/host/files/atomic_file.py fchown": "a file of another user's, which takes another user",
    "edge/host/files/atomic_file.py unlink": "after a write that failed: tests/faults/host has every failure",
    "edge/host/files/private_directory.py": "of simulations",
    "edge/host/shim/shim_host.py unlink": "after a link that failed; the others are met alone",
    "edge/mps/host.py chmod": "shared memory of a daemon's own, which takes a mount namespace",
    "edge/mps/host.py mkdir": "the same; the other directories are met",
    "edge/mps/host.py rmdir": "of a resource's own daemon, as the removal that is met",
    "edge/kube/credentials.py rmtree": "a directory that a killed agent left; the next reading removes the rest",
    "edge/host/files/container_label.py setxattr": "hosts with SELinux",
    "edge/host/vgpu/ended_processes.py": "slots of processes in containers, freed again by the next look",
    "edge/mps/launch.py": "in the process that becomes the daemon: it ends, and is begun again",
    "rules/offer/sharing.py rename": "a word of the configuration",
}
WITHOUT_NODES: Final = ("edge/host/devices/device_node_files.py",)
"""Where this user may not make device nodes."""


def find_reason(point: Point) -> str | None:
    """The entry that leaves this point out; nothing where it must be met."""
    places = (point.file, f"{point.file} {point.call}")
    return next(
        (each for each in LEFT_OUT if each in places or (each[-1] == "/" and point.file.startswith(each))), None
    )


def find_idle(points: Iterable[Point]) -> tuple[str, ...]:
    """Entries that leave nothing out."""
    used = {find_reason(point) for point in points}
    return tuple(each for each in LEFT_OUT if each not in used)
