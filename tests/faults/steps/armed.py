"""Run as a program: the agent, in which each step that changes a file system is noted, and ends one of its lives.

`NODEAGENT_STEPS` says so as JSON: where the `points` are, `below` which directory, where `notes` of the steps go and
where the `deaths`, in which `phases` the agent dies (`before` a step, `after` it), and whether a step is told
`by_place` or by who calls.
Of the journal a step says which records it writes. Names that chance made are told by their kind. Each life dies of the
first step that no earlier one has died of, until there is none left.
"""

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tests.faults.steps.points import OF_OS, PACKAGE, Point, find_point, group_points

VARIABLE: Final = "NODEAGENT_STEPS"
PROGRAMS: Final = "NODEAGENT_PROGRAMS"
"""Where programs of ours are, for an agent of a checkout in which they were not built."""
HASTE: Final = "NODEAGENT_HASTE"
"""Set where the files of memory stand in for the device files of GPUs; by `SECONDS` repairs wait for no minutes."""
SECONDS: Final = "seconds"
PROOF_PAUSE_SECONDS: Final = 5.0
"""Between two proofs of a free GPU, where repairs wait for no minutes."""
MEMORY_MAJOR: Final = 1
"""The kernel's number of /dev/zero and its like."""
CALLS: Final = (*sorted(OF_OS), "open")
_BY_DESCRIPTOR: Final = frozenset(
    {
        "fchmod",
        "fchown",
        "fdatasync",
        "fsync",
        "ftruncate",
        "posix_fallocate",
        "pwrite",
        "pwritev",
        "sendfile",
        "write",
        "writev",
    }
)
_RECORD: Final = re.compile(rb'"type":"([a-z_]+)"')
_CHANCE: Final = re.compile(
    r"\d{8}T\d{6}Z|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|(?<=[-.])\d+(?=[.])"
    r"|(?<=share-)\d+|(?<=daemon-)\d+|(?<=[.]aside[.])\d+"
)
"""What differs from life to life, or from round to round, in the names of files."""
_JOURNAL: Final = "state/allocations.journal"


class Recorder:
    """Stands between the agent and `os`."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self._points = group_points(tuple(Point(*each) for each in json.loads(Path(wanted["points"]).read_text())))
        self._below = str(wanted["below"]).rstrip("/") + "/"
        self._phases, self._by_place = frozenset(wanted["phases"]), bool(wanted["by_place"])
        self._deaths = Path(wanted["deaths"])
        self._died = set(self._deaths.read_text().splitlines()) if self._deaths.exists() else set()
        self._write = os.write
        self._open = os.open
        self._notes = os.open(wanted["notes"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._records: dict[str, str] = {}
        self._seen: set[tuple[object, ...]] = set()

    def install(self) -> None:
        """From now on, in this process."""
        for name in CALLS:
            setattr(os, name, self._wrap(name, getattr(os, name)))
        socket.socket.bind = self._wrap("bind", socket.socket.bind)  # type: ignore[method-assign]

    def _wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            told = self._tell(name, args)
            if told is None:
                return call(*args, **kwargs)
            self._die_once(f"before {told}")
            answer = call(*args, **kwargs)
            self._note(told, is_done=True)
            self._die_once(f"after {told}")
            return answer

        return step

    def _die_once(self, when: str) -> None:
        """Die, unless an earlier life has died of the same."""
        if when.partition(" ")[0] not in self._phases or when in self._died:
            return
        self._died.add(when)
        deaths = self._open(self._deaths, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._write(deaths, f"{when}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)

    def _tell(self, name: str, args: tuple[Any, ...]) -> str | None:
        """The step, noted; nothing for one that is none of the agent's, or changes nothing that lasts."""
        if name == "open" and not (len(args) > 1 and args[1] & os.O_CREAT):
            return None
        place = self._find_place(name, args)
        if place is None:
            return None
        met = tuple(self._walk(sys._getframe(2)))
        if not met:
            return None
        what, records = self._describe(name, place, args)
        callers = " < ".join(f"{point.file}:{point.first}" for point in met)
        told = f"{name} {what if self._by_place else callers} {records}".rstrip()
        self._note(told, [str(point) for point in met], records)
        return told

    def _note(self, told: str, points: Sequence[str] = (), records: str = "", *, is_done: bool = False) -> None:
        """Once in each life by whom it is met, and once that it has changed something: there may be nothing to do."""
        if (seen := (told, is_done, *points)) not in self._seen:
            self._seen.add(seen)
            line = json.dumps({"step": told, "points": points, "records": records, "is_done": is_done})
            self._write(self._notes, f"{line}\n".encode())

    def _walk(self, frame: Any) -> Any:
        """The points among those who call, the innermost first."""
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(f"{PACKAGE}/"):
                point = find_point(self._points, file.removeprefix(f"{PACKAGE}/"), frame.f_lineno)
                if point is not None:
                    yield point
            frame = frame.f_back

    def _find_place(self, name: str, args: tuple[Any, ...]) -> str | None:
        if name in _BY_DESCRIPTOR:
            try:
                place = os.readlink(f"/proc/self/fd/{args[0]}")  # noqa: PTH115  at every write
            except OSError:
                return None
            # Pipes and sockets end with the process.
            return place if place.startswith("/") else None
        which = args[1] if name in ("bind", "link", "rename", "replace", "symlink") else args[0]
        # What is bound to a port is none.
        return os.fspath(which) if not isinstance(which, int | tuple) else None

    def _describe(self, name: str, place: str, args: tuple[Any, ...]) -> tuple[str, str]:
        """What is changed, and of the journal the records that it is about."""
        short = _CHANCE.sub("*", place.removeprefix(self._below))
        if short != _JOURNAL or name not in ("write", "fdatasync"):
            return short, ""
        if name == "write":
            found = sorted({one.decode() for one in _RECORD.findall(bytes(args[1]))})
            self._records[place] = "+".join(found)
        return short, self._records.get(place, "")


def stand_in_for_programs(directory: Path) -> None:
    """Have the agent install these programs in place of the built ones, which a checkout need not have."""
    from nodeagent.edge.host.files import host_program  # noqa: PLC0415  before those who take the place from it

    host_program.BUILT = directory  # type: ignore[misc]
    host_program.HOOK = host_program.Program(  # type: ignore[misc]
        built=directory / "nodeagent-cdi-hook", what=host_program.HOOK.what, without=host_program.HOOK.without
    )


def stand_in_for_gpu_files() -> None:
    """Have the agent take open files of memory for those of GPUs."""
    from nodeagent.edge.host.processes.device_users import HostDeviceUsers  # noqa: PLC0415  only with repairs

    defaults = HostDeviceUsers.__init__.__kwdefaults__
    assert defaults is not None
    defaults["major"] = MEMORY_MAJOR


def make_haste() -> None:
    """Shorten what no setting shortens."""
    from nodeagent.components.repairs import component, drain_task, holding_task  # noqa: PLC0415  only with repairs
    from nodeagent.rules.proof import idle  # noqa: PLC0415  likewise
    from nodeagent.rules.repair import slots  # noqa: PLC0415  likewise

    for module in (slots, holding_task):
        _replace(module, RETRY_SECONDS=0.5)
    _replace(idle, _find_pause=lambda _record, _pace: PROOF_PAUSE_SECONDS)
    _replace(component, PROOF_SECONDS=6.0, RETRY_SECONDS=0.5, AGAIN_SECONDS=0.5)
    _replace(drain_task, AGAIN_SECONDS=0.5)


def _replace(module: ModuleType, **values: object) -> None:
    assert values.keys() <= vars(module).keys(), f"{module.__name__} has no {sorted(values.keys() - vars(module))}"
    vars(module).update(values)


def main() -> int:
    programs, wanted = os.environ.pop(PROGRAMS, ""), os.environ.pop(VARIABLE, "")
    if haste := os.environ.pop(HASTE, ""):
        stand_in_for_gpu_files()
        if haste == SECONDS:
            make_haste()
    if programs:
        stand_in_for_programs(Path(programs))
    if wanted:
        Recorder(json.loads(wanted)).install()
    from nodeagent.cli.main import main as run  # noqa: PLC0415  the agent begins here

    return run()


if __name__ == "__main__":
    sys.exit(main())
