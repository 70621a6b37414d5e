"""Run as a program: what needs no whole agent, or more rights than one has in a test, dies of each of its steps alone.

    python -m tests.faults.steps.alone DIRECTORY

Each is a piece of work that whoever was killed in it begins anew. Prints, as JSON, what was met and what did not hold.
"""

import json
import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.container_runtime.change_files import RuntimeFiles
from nodeagent.edge.host.devices.device_node_files import DeviceNodeFiles
from nodeagent.edge.host.driver.off_loop import MarkerDirectory
from nodeagent.edge.host.files.feature_file import FeatureFile
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.edge.host.shim.shim_host import HostShim
from nodeagent.model.runtime import EditedFile, FileChange
from nodeagent.model.shim import ShimTable
from tests.faults.journal.scenario import in_child
from tests.faults.steps.armed import Recorder
from tests.faults.steps.points import find_points

LIVES: Final = 500
BEFORE, AFTER = b"before\n", b"before\nours\n"
NODE_MODE: Final = 0o666
PROC: Final = {
    "devices": "Character devices:\n195 nvidia\n",
    "driver/nvidia/gpus/0000:1b:00.0/information": "Device Minor: 0\n",
}


class Piece(NamedTuple):
    """Something that is done, and what must hold whenever it was cut short."""

    work: Callable[[Path], None]
    is_right: Callable[[Path], bool]


def change_runtime(place: Path) -> None:
    """A runtime's configuration is changed, and given back."""
    files, here = RuntimeFiles(place / "state", HostPaths()), str(place / "config.toml")
    files.restore(withdraw)
    now = HostPaths().read(here)
    assert now == BEFORE, now
    change = FileChange(path=here, before=now, after=AFTER)
    added = FileChange(path=str(place / "conf.d" / "ours.toml"), before=None, after=AFTER)
    files.apply([change, added])
    files.restore(withdraw)


def withdraw(file: EditedFile) -> bytes:
    raise AssertionError(f"nobody else has changed {file.path}")


def is_runtime_whole(place: Path) -> bool:
    """As it was or as it is wanted, and never without a note of how it was."""
    now, record = (place / "config.toml").read_bytes(), place / "state" / "runtime-changes.json"
    added = place / "conf.d" / "ours.toml"
    is_ours = now == AFTER or added.parent.exists()
    return now in (BEFORE, AFTER) and (not is_ours or str(place / "config.toml") in record.read_text())


def write_features(place: Path) -> None:
    """Labels by way of a file, and none any more."""

    async def work() -> None:
        worker = WorkerThread("features")
        file = FeatureFile(place / "features", worker)
        await file.write("a=b\n")
        await file.remove()
        worker.close()

    anyio.run(work)


def are_features_whole(place: Path) -> bool:
    file = place / "features"
    return not file.exists() or file.read_text() == "a=b\n"


def write_markers(place: Path) -> None:
    """The driver is ready, and is not."""

    async def work() -> None:
        worker = WorkerThread("markers")
        markers = MarkerDirectory(place / "validations", worker)
        await markers.write_marker("driver-ready", "A=b\n")
        await markers.remove_marker("driver-ready")
        worker.close()

    anyio.run(work)


def are_markers_whole(place: Path) -> bool:
    file = place / "validations" / "driver-ready"
    return not file.exists() or file.read_text() == "A=b\n"


def keep_table(place: Path) -> None:
    """The runtime shim's table, in the place of a link; and none any more."""

    async def work() -> None:
        worker = WorkerThread("shim")
        shim = HostShim(worker)
        table = place / "shim" / "table"
        if not table.exists():
            table.parent.mkdir(exist_ok=True)
            table.symlink_to("/dev/null")
        await shim.write(place / "shim", ShimTable(), "refuse")
        await shim.remove(place / "shim")
        worker.close()

    anyio.run(work)


def is_table_whole(place: Path) -> bool:
    table = place / "shim" / "table"
    return not table.is_file() or table.is_symlink() or table.read_bytes().startswith(b"nodeagent-shim-table ")


def make_nodes(place: Path) -> None:
    """The driver's device nodes, and the links to them."""
    proc = place / "proc"
    for name, text in PROC.items():
        (proc / name).parent.mkdir(parents=True, exist_ok=True)
        (proc / name).write_text(text)
    DeviceNodeFiles(place / "root", proc_root=proc, host_root=place / "root").repair()


def are_nodes_whole(place: Path) -> bool:
    """Whatever has its name may be used; what has not is nobody's."""
    node = place / "root" / "dev" / "nvidia0"
    if not os.path.lexists(node):
        return True
    status = node.stat()
    return stat.S_ISCHR(status.st_mode) and stat.S_IMODE(status.st_mode) == NODE_MODE


PIECES: Final = {
    "runtime files": Piece(change_runtime, is_runtime_whole),
    "features": Piece(write_features, are_features_whole),
    "markers": Piece(write_markers, are_markers_whole),
    "shim's table": Piece(keep_table, is_table_whole),
    "device nodes": Piece(make_nodes, are_nodes_whole),
}


def can_make_nodes(place: Path) -> bool:
    """Whether this user may, here."""
    try:
        os.mknod(place / "probe", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        return False
    (place / "probe").unlink()
    return True


def die_of_each_step(place: Path, piece: Piece, points: Path) -> list[str]:
    """Life after life, until one does not die; what did not hold, and a life that ended otherwise."""
    wanted = {
        "points": str(points),
        "below": str(place),
        "notes": str(place.parent / "notes"),
        "deaths": str(place / "deaths"),
        "phases": ["before", "after"],
        "by_place": True,
    }

    def live() -> None:
        Recorder(wanted).install()
        piece.work(place)

    faults: list[str] = []
    for _ in range(LIVES):
        ended = in_child(live)
        last = (place / "deaths").read_text().splitlines()[-1:] if (place / "deaths").exists() else []
        if not piece.is_right(place):
            faults.append(f"not whole after: {last}")
        if ended != -signal.SIGKILL:
            return faults if ended == 0 else [*faults, f"ended with {ended} after: {last}"]
    return [*faults, f"still dies after {LIVES} lives"]


def main(directory: Path) -> None:
    points = directory / "points"
    points.write_text(json.dumps([list(point) for point in find_points()]))
    faults: dict[str, list[str]] = {}
    for name, piece in PIECES.items():
        if piece.work is make_nodes and not can_make_nodes(directory):
            continue
        place = directory / name.replace(" ", "-")
        place.mkdir()
        (place / "config.toml").write_bytes(BEFORE)
        if found := die_of_each_step(place, piece, points):
            faults[name] = found
        left = [path.name for path in place.rglob("*.tmp")]
        if left:
            faults.setdefault(name, []).append(f"left over: {left}")
    notes = [json.loads(line) for line in (directory / "notes").read_text().splitlines()]
    sys.stdout.write(json.dumps({"faults": faults, "notes": notes, "made_nodes": can_make_nodes(directory)}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
