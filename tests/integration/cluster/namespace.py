"""The mount namespace in which the whole cluster lives, so that no mount of it is ever seen, or left, on the machine.

The kubelet's device plugin directory has a fixed path. In here, /var/lib is a folder of the scratch directory; outside,
the machine keeps its own. When the last process in here ends, the kernel removes every mount, however it ended.
"""

import os
from collections.abc import Iterator, Sequence

from tests.integration.cluster.errors import NotUp
from tests.integration.cluster.layout import Layout
from tests.integration.cluster.processes import PROC, ProcessId, read_record, spawn, wait_until

HOLDER = "namespace"  # the name of the process that keeps it open
SHARE = "mount --make-rshared /"  # as on a node: pods may ask to see what is mounted later


def open_namespace(layout: Layout) -> ProcessId:
    """Create the namespace; return the process that holds it open."""
    command = ("unshare", "--mount", "--propagation", "slave", "sh", "-c", render_script(layout))
    log = layout.log(HOLDER)
    holder = spawn(command, log, layout.records / HOLDER, dict(os.environ))

    def is_ready() -> str | None:
        text = log.read_text()
        return None if text.endswith("ready\n") else f"{HOLDER} says {text!r}"

    wait_until("the cluster's mount namespace", is_ready, timeout_seconds=10)
    return holder


def render_script(layout: Layout) -> str:
    """What the namespace's first process does."""
    binds = [f"mount --bind {ours} {theirs}" for ours, theirs in layout.mounts.items()]
    covers = [
        f"{{ [ ! -d {theirs} ] || mount --bind {ours} {theirs}; }}"
        for ours, theirs in layout.mounts_over_what_is_there.items()
    ]
    return " && ".join((SHARE, *binds, *covers, "echo ready", "exec sleep infinity"))


def join_namespace(layout: Layout, command: Sequence[str]) -> tuple[str, ...]:
    """The command line that runs `command` in there, in place (the process keeps its id)."""
    holder = read_record(layout.records / HOLDER)
    if holder is None or not holder.is_alive():
        raise NotUp(layout.root)
    return ("nsenter", f"--mount={PROC}/{holder.pid}/ns/mnt", "--", *command)


def find_members(layout: Layout) -> tuple[ProcessId, ...]:
    """Every process of the cluster outside its containers: recorded, in its namespace, or a shim of its containerd.

    Shims are nobody's record, and they outlive everything else when the rest is killed.
    """
    recorded = tuple(filter(None, map(read_record, layout.records.glob("*")))) if layout.records.is_dir() else ()
    alive = {each for each in recorded if each.is_alive()}
    namespaces = {namespace_of(each.pid) for each in alive} - {None, namespace_of(os.getpid())}
    members = {each for each in _all_processes() if namespace_of(each.pid) in namespaces or is_shim(each.pid, layout)}
    return tuple(sorted(alive | members, key=lambda each: each.pid))


def is_shim(pid: int, layout: Layout) -> bool:
    """Whether this process serves containers of this cluster's containerd."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return b"containerd-shim" in words[0] and os.fsencode(layout.containerd_socket) in words


def namespace_of(pid: int) -> str | None:
    """The identity of a process's mount namespace; None when it is gone, or guarded better than anything we start."""
    try:
        return str((PROC / str(pid) / "ns" / "mnt").readlink())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def _all_processes() -> Iterator[ProcessId]:
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (process := ProcessId.of(int(entry.name))) is not None:
            yield process
