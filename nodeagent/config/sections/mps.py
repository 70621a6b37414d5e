"""`mps`: the daemons of NVIDIA's multi-process service."""

from pathlib import Path
from typing import Literal, TypeAlias

from nodeagent.config.kinds import AbsolutePath, Flag, Maybe, Number, OneOf, Whole
from nodeagent.config.knobs import Section, knob

DaemonPer: TypeAlias = Literal["gpu", "resource"]
SharedMemory: TypeAlias = Literal["own", "host"]


class MpsSettings(Section):
    """Daemons of NVIDIA's multi-process service, for sharing, claims and fractions; pipes and logs in `mps_root`."""

    daemon_per: DaemonPer = knob(
        OneOf[DaemonPer](("gpu", "resource")),
        "gpu",
        "one daemon for each GPU, or one for all GPUs of a resource as NVIDIA's device plugin has it; containers can"
        " have shares of several GPUs only with the second",
        "a fault that ends a daemon's clients is then limited to the clients of one GPU",
    )
    claims: bool = knob(
        Flag(),
        default=False,
        what="start daemons for claims whose configuration asks for sharing by MPS",
        why="off, nothing of this part is loaded unless `sharing.mps` is set",
    )
    shared_memory: SharedMemory = knob(
        OneOf[SharedMemory](("own", "host")),
        "own",
        "what daemons and clients have as /dev/shm: the directory shm in `device_plugin.mps_root`, for which a daemon"
        " gets a mount namespace of its own (CAP_SYS_ADMIN); or that of the host",
        "the host's holds what is no business of pods",
    )
    shared_memory_mib: int | None = knob(
        Maybe(Whole(16, 1 << 24)),
        None,
        "MiB that all MPS clients together may use with mps.shared_memory own, where the agent"
        " may mount a file system; elsewhere the limit is the room left in the file system of"
        " `device_plugin.mps_root`, and `nodeagent doctor` says so",
        "half of the machine's, as with NVIDIA's device plugin",
    )
    program: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "the path of nvidia-cuda-mps-control below the driver root",
        "the agent looks where drivers install the program",
    )
    start_timeout_seconds: float = knob(
        Number(1, 120), 10.0, "how long a daemon may take until it listens", "a daemon starts in a fraction of a second"
    )
    answer_timeout_seconds: float = knob(
        Number(0.5, 60), 5.0, "how long a daemon may take for one answer", "a daemon answers in milliseconds"
    )
    look_seconds: float = knob(
        Number(1, 600),
        15.0,
        "pause between looks at servers and clients; that a daemon dies is noticed at once",
        "each look reads a daemon's log and processes; the daemon itself is asked after news"
        " there, and every two minutes",
        reload=True,
    )
