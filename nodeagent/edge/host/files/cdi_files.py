"""The ports of the cdi component on a real host: the driver's files, and the directories of specifications.

Owns the blocking file work, done in a worker thread and bounded in time.
Refuses to know a specification's meaning; a name is a file, its content is bytes.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.driver.driver_files import DriverFileFinder, find_extra_nodes
from nodeagent.edge.host.driver.roots import resolve_driver_roots
from nodeagent.edge.host.errors import FileNotWritten, HostError
from nodeagent.edge.host.files.atomic_file import identify, read_bounded, remove_stale_temporaries, write_atomically
from nodeagent.edge.host.files.pseudo_file import list_names
from nodeagent.edge.host.host_worker import HostWorker
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.cdi import DriverFiles, SpecContent

DEFAULT_DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""The default directories of runtimes; the last directory has the last word."""

_EXTENSIONS = (".json", ".yaml")
_LIMIT_BYTES = 8 * 1024 * 1024
_FILE_MODE = 0o644
_DIRECTORY_MODE = 0o755
_TIMEOUT_SECONDS = 10.0
_POLL_SECONDS = 0.75
_PATIENCE_SECONDS = 0.003
"""How long the loop stands still for a write while a container waits."""

Fingerprint = tuple[tuple[object, ...], ...]


class HostDriverFiles:
    """The port `DriverFileSource`."""

    def __init__(
        self,
        root: Path,
        dev_root: Path | None,
        finder: DriverFileFinder,
        worker: WorkerThread | None = None,
        *,
        host_root: Path = Path("/"),
    ) -> None:
        self._root, self._dev_root, self._host_root, self._finder = root, dev_root, host_root, finder
        self._worker = HostWorker(worker or WorkerThread("driver files"), root, _TIMEOUT_SECONDS)

    async def read_driver_files(self, extra_nodes: Sequence[str] = ()) -> DriverFiles:
        """Find the driver and its files, and device nodes at further paths of the host."""
        return await self._worker.run(lambda: self.read_nowait(extra_nodes), "looking for the driver's files")

    def read_nowait(self, extra_nodes: Sequence[str] = ()) -> DriverFiles:
        """As `read_driver_files`, in this thread."""
        roots = resolve_driver_roots(self._root, dev_root=self._dev_root, host_root=self._host_root)
        return replace(self._finder.read(roots), extra_nodes=tuple(find_extra_nodes(self._host_root, extra_nodes)))


class SpecFiles:
    """The directories of CDI specifications; the agent writes in a single directory of them.

    `own` is the agent's directory as this process sees it: in a container, mounted under the host's own name. `others`
    are further directories of the host that runtimes read. Specifications with a prefix of `passing` come and go with
    pods; the node's specifications exclude these.
    """

    def __init__(
        self,
        own: Path,
        *,
        others: Iterable[Path] = DEFAULT_DIRECTORIES,
        worker: WorkerThread | None = None,
        writer: WorkerThread | None = None,
        host: HostPaths | None = None,
        passing: tuple[str, ...] = (),
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        self._own, self._others, self._host = own, tuple(others), host or HostPaths()
        thread = worker or WorkerThread("cdi directories")
        self._worker = HostWorker(thread, own, _TIMEOUT_SECONDS)
        self._writer = HostWorker(writer or thread, own, _TIMEOUT_SECONDS)
        self._passing = passing
        self._cleared = set[str]()
        self._poll_seconds = poll_seconds
        self._seen: Fingerprint | None = None

    def locate(self, name: str) -> str:
        """The path of a file of the agent."""
        return str(self._own / name)

    async def read_specs(self) -> tuple[SpecContent, ...]:
        """Every file that a runtime would read, lower directory first, without files that come and go with a pod."""
        return await self._worker.run(self.read_nowait, "reading CDI specifications")

    async def list_passing(self) -> tuple[str, ...]:
        """Names of the agent's files that come and go with pods."""
        return await self._worker.run(self._list_passing, "listing CDI specifications")

    async def write_spec(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Write a file atomically, with the directory where missing.

        A file made anew at the next start of its container need not be durable.

        Raises:
            NodeagentError: The file cannot be written; the file before stays.
        """
        # Not queued behind a poll of all files, and waited for, as a container waits.
        await self._writer.run(
            lambda: self.write_nowait(name, content, durable=durable),
            "writing a CDI specification",
            patience_seconds=_PATIENCE_SECONDS,
        )

    async def remove_spec(self, name: str) -> None:
        """Remove a file of the agent; fine when already gone."""
        await self._worker.run(lambda: self.remove_nowait(name), "removing a CDI specification")

    async def wait_change(self) -> None:
        """Return when a file has come, gone or changed since the last reading."""
        await self._worker.wait_change(
            self._identify, lambda: self._seen, "watching CDI specifications", poll_seconds=self._poll_seconds
        )

    def close(self) -> None:
        """Let the threads end."""
        self._worker.close()
        self._writer.close()

    def read_nowait(self) -> tuple[SpecContent, ...]:
        """As `read_specs`, in this thread."""
        # Before the contents, so that the next comparison sees a change during the reading.
        self._seen = self._identify()
        return tuple(
            _read_one(place / name, directory / name)
            for directory, place in self._list_directories()
            for name in self._list_names(place)
        )

    def write_nowait(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """As `write_spec`, in this thread."""
        path = self._own / name
        try:
            self._own.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise FileNotWritten(path, "create its directory", error, replaced=False) from error
        self._clear_leftovers(path)
        write_atomically(path, content, mode=_FILE_MODE, durable=durable)

    def remove_nowait(self, name: str) -> None:
        """As `remove_spec`, in this thread."""
        path = self._own / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise FileNotWritten(path, "remove it", error, replaced=False) from error

    def _clear_leftovers(self, path: Path) -> None:
        """Remove leftovers of killed writers: for a waiting container's file, only those of an earlier agent."""
        prefix = next((each for each in self._passing if path.name.startswith(each)), None)
        if prefix is None:
            remove_stale_temporaries(path)
        elif prefix not in self._cleared:
            # Files with other prefixes may have another writer, at work now.
            remove_stale_temporaries(self._own / prefix, is_prefix=True)
            self._cleared.add(prefix)

    def _list_directories(self) -> list[tuple[Path, Path]]:
        """Each directory once, however many names lead to it: its name on the host, and its path in this process."""
        own = self._own.resolve()
        others = [(directory, self._host.here(str(directory)).resolve()) for directory in self._others]
        foreign = [(name, place) for name, place in others if place != own and not _are_same(place, own)]
        return [*foreign, (self._own, self._own)]

    def _identify(self) -> Fingerprint:
        """Equal until a file changes. A directory with two names is read twice: cheaper than a comparison."""
        places = [str(self._own), *(str(self._host.here(str(directory))) for directory in self._others)]
        return tuple(
            [(place, name, *identify(f"{place}/{name}")) for place in places for name in self._list_names(place)]
        )

    def _list_passing(self) -> tuple[str, ...]:
        return tuple(name for name in _list_specs(self._own) if name.startswith(self._passing))

    def _list_names(self, directory: Path | str) -> tuple[str, ...]:
        return tuple(name for name in _list_specs(directory) if not name.startswith(self._passing))


def _list_specs(directory: Path | str) -> tuple[str, ...]:
    return tuple(name for name in list_names(directory) if name.endswith(_EXTENSIONS))


def _read_one(place: Path, name: Path) -> SpecContent:
    try:
        content = read_bounded(place, limit_bytes=_LIMIT_BYTES)
        return SpecContent(path=str(name), content=content, written_seconds=_read_time(place))
    except HostError as error:
        return SpecContent(path=str(name), problem=str(error).replace(str(place), str(name)))


def _read_time(place: Path) -> float:
    """The time of the last writing; 0 for a file that has gone since."""
    try:
        return place.stat().st_mtime
    except OSError:
        return 0.0


def _are_same(one: Path, other: Path) -> bool:
    """Whether a directory is mounted at both places."""
    try:
        return one.samefile(other)
    except OSError:
        return False
