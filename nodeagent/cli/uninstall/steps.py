"""The agent's remains on a host, kind by kind, and how each kind is removed.

Every step searches, and acts unless it is a rehearsal; a failed step is reported and does not stop the others. Only
files with the agent's names are touched, as directories may have other files.
"""

import contextlib
import errno
import os
import socket
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct

from nodeagent.app.endpoints import LOCK
from nodeagent.app.node_label import NAME as LABEL_NAME
from nodeagent.app.runtime_edge import see_processes
from nodeagent.app.wiring.cluster import FEATURE_FILE
from nodeagent.cli.answers.places import ADMIN_SOCKET
from nodeagent.components.allocations.journal_format import parse_journal
from nodeagent.components.allocations.ledger import Ledger, replay
from nodeagent.components.cdi.decide import plan_own_paths
from nodeagent.components.cdi.plan_specs import HOOK_PROGRAM
from nodeagent.components.driver.plan_markers import list_markers
from nodeagent.components.fractions.decide import list_resources
from nodeagent.components.runtime.withdraw import withdraw
from nodeagent.config.schema import Settings
from nodeagent.config.sections.claims import locate_registration, locate_service
from nodeagent.config.sections.devices import name_class_resources
from nodeagent.edge.container_runtime.change_files import RECORD_NAME, RuntimeFiles
from nodeagent.edge.host.errors import describe_os_error
from nodeagent.edge.host.files.audit_file import NAME as AUDIT_NAME
from nodeagent.edge.host.files.cdi_files import SpecFiles
from nodeagent.edge.host.files.host_program import COMMAND, locate_shared
from nodeagent.edge.host.files.journal_disk import JOURNAL_NAME, LOCK_NAME
from nodeagent.edge.host.files.state_lock import StateLock
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.edge.host.shim.shim_host import list_table_files
from nodeagent.edge.host.shim.users import count_users
from nodeagent.edge.host.vgpu.fraction_folders import MEMORY as USAGE_MEMORY
from nodeagent.model.errors import NodeagentError
from nodeagent.model.mig import MEMORY
from nodeagent.model.nvidia import CDI_HOOK, CONTAINER_CLI
from nodeagent.model.shim_names import RUNTIME_NAMES, USUAL_DIRECTORIES
from nodeagent.rules.cdi_names import (
    CLAIM_FILES,
    DEVICE_FRACTION_FILES,
    FRACTION_FILES,
    name_claim_file,
    name_fraction_file,
)
from nodeagent.rules.devices.answer import SPEC_PREFIX
from nodeagent.rules.devices.group import name_resource
from nodeagent.rules.fractions.profiles import plan_profile
from nodeagent.rules.offer.devices import Resource

STATE_NAMES: Final = (
    LOCK,
    LOCK_NAME,
    JOURNAL_NAME,
    "verdicts.json",
    "gpus.json",
    "events.json",
    AUDIT_NAME,
    MEMORY,
    LABEL_NAME,
    RECORD_NAME,
)
"""Beginnings of file names in the state directory; journals have suffixes, temporaries a leading dot."""
_SOCKET_PATTERN: Final = "nvidia-*.sock"
_DIAL_SECONDS: Final = 1.0


class Step(StrEnum):
    """The result of a step."""

    REMOVED = "removed"
    RESTORED = "restored"
    KEPT = "kept"
    FAILED = "failed"


class Outcome(Struct, frozen=True):
    """A line of the report."""

    step: Step
    what: str
    detail: str = ""


@contextlib.contextmanager
def hold_state(state_dir: Path) -> Iterator[None]:
    """Keep agents from starting meanwhile.

    Raises:
        StateLocked: An agent is running.
    """
    if not state_dir.is_dir():
        yield
        return
    with StateLock(state_dir / LOCK):
        yield


def read_ledger(settings: Settings) -> Ledger:
    """The journal's ledger; an empty one without a journal."""
    try:
        content = (settings.node.state_dir / JOURNAL_NAME).read_bytes()
    except OSError:
        return Ledger()
    return replay(parse_journal(content).records, 0)


def list_stopped(settings: Settings) -> Iterator[Outcome]:
    """The services that stay stopped for an upgrade of the driver without an end: the driver may be gone."""
    for upgrade in read_ledger(settings).upgrades.values():
        for service in upgrade.put_aside.services if upgrade.is_open else ():
            reason = f"stopped for upgrade {upgrade.number} of the driver: systemctl start {service}"
            yield Outcome(Step.KEPT, f"service {service}", reason)


def restore_runtime(settings: Settings, *, dry: bool) -> Iterator[Outcome]:
    """Restore the container runtime's files, byte for byte where unchanged by others since."""
    files = RuntimeFiles(settings.node.state_dir, HostPaths(settings.node.host_root))
    try:
        if dry:
            yield from (Outcome(Step.RESTORED, path, "as before the agent") for path in files.list_paths())
            return
        restored = files.restore(withdraw)
    except NodeagentError as error:
        yield Outcome(Step.FAILED, "container runtime configuration", str(error))
        return
    for path in restored.given_back:
        yield Outcome(Step.RESTORED, path, "as before the agent; restart the container runtime for it to take effect")
    for path in restored.taken_out:
        yield Outcome(Step.RESTORED, path, "without our keys; somebody else has changed it since and keeps theirs")
    for path in restored.kept:
        yield Outcome(Step.KEPT, path, "changed by somebody else since; take our part out by hand")


def remove_cdi(settings: Settings, kept: Mapping[str, str], *, dry: bool) -> Iterator[Outcome]:
    """Remove specifications and their hook program, except the specifications of kept containers, by name."""
    directory = settings.cdi.dir
    prefixes = (SPEC_PREFIX, FRACTION_FILES, DEVICE_FRACTION_FILES, CLAIM_FILES)
    begun = (path for prefix in prefixes for path in sorted(directory.glob(f"{prefix}*.json")))
    reasons = {name_file(name): kept[name] for name_file in (name_fraction_file, name_claim_file) for name in kept}
    found = [*map(Path, plan_own_paths(SpecFiles(directory).locate)), *begun]
    own = [path for path in found if path.name not in reasons]
    others = directory.is_dir() and {*directory.iterdir()} - {*own}
    hook = locate_shared(
        settings.cdi.hook_dir / HOOK_PROGRAM, HostPaths(settings.node.host_root), settings.node.state_dir
    )
    staying = [path for path in found if path.name in reasons]
    yield from (Outcome(Step.KEPT, str(path), reasons[path.name]) for path in staying)
    if staying and hook.exists():
        yield Outcome(Step.KEPT, str(hook), "the specifications that are kept may name it")
    gone = [*own, *_find_names(settings)]
    yield from remove_files(gone if staying else [*gone, hook], "CDI", dry=dry)
    if not others and not directory.is_mount():
        yield from remove_directory(directory, dry=dry)


def _find_names(settings: Settings) -> Iterator[Path]:
    """NVIDIA's names of the hook and of the agent's own command, as far as they are links that lead to these."""
    directory = settings.cdi.nvidia_name_dir
    if directory is None:
        return
    place = locate_shared(directory, HostPaths(settings.node.host_root), settings.node.state_dir)
    for name, program in ((CDI_HOOK, HOOK_PROGRAM), (CONTAINER_CLI, COMMAND)):
        if (place / name).is_symlink() and (place / name).readlink().name == program:
            yield place / name


def remove_shim(settings: Settings, *, dry: bool) -> Iterator[Outcome]:
    """Remove the runtime shim's table, names and program, unless a container still needs the shim to end."""
    host, shared, what = HostPaths(settings.node.host_root), settings.node.state_dir, "runtime shim"
    program = settings.shim.program
    # The names of the setting, and the usual names of an earlier setting.
    usual = (Path(directory) / name for directory in USUAL_DIRECTORIES for name in RUNTIME_NAMES)
    names = tuple(dict.fromkeys((*settings.shim.further_names, *usual)))
    here = locate_shared(program, host, shared)
    ours = [
        place
        for name in names
        if (place := locate_shared(name.parent, host, shared) / name.name).is_symlink() and place.readlink() == program
    ]
    users = count_users(frozenset(map(str, (program, *names))), host, see_processes(settings)) if here.exists() else 0
    directory = locate_shared(settings.shim.table_dir, host, shared)
    if users:
        reason = f"containers were started through it, {users} are left: uninstall again when they have ended"
        yield from (Outcome(Step.KEPT, str(place), reason) for place in (here, *ours, directory))
        return
    yield from remove_files([*ours, here, *list_table_files(directory)], what, dry=dry)
    yield from remove_directory(directory, dry=dry)


def remove_markers(settings: Settings, *, dry: bool) -> Iterator[Outcome]:
    """Remove the marker files, where configured: otherwise they are another validator's."""
    if settings.driver.validation_markers:
        names = list_markers(validates=settings.driver.workload_validation)
        yield from remove_files((settings.driver.validation_dir / name for name in names), "marker file", dry=dry)


def remove_features(settings: Settings, *, dry: bool) -> Iterator[Outcome]:
    """Remove the feature file; Node Feature Discovery then removes the labels by itself."""
    yield from remove_files([settings.labels.nfd_dir / FEATURE_FILE], "feature file", dry=dry)


def remove_sockets(settings: Settings, *, dry: bool) -> Iterator[Outcome]:
    """Remove dead sockets, left by a killed agent; a living socket belongs to another program."""
    directory = settings.kubelet.device_plugins_dir
    divided = (name for each in settings.devices.divisible for name in name_class_resources(name_resource(each)))
    whole = map(name_resource, settings.devices.classes)
    resources = (*whole, *divided, *list_resources(plan_profile(settings.fractions)))
    own = (directory / Resource(name=name, devices=()).socket for name in resources)
    yield from _remove_dead(dict.fromkeys((*sorted(directory.glob(_SOCKET_PATTERN)), *own)), "device plugin", dry=dry)
    service = locate_service(settings.claims)
    yield from _remove_dead((locate_registration(settings.claims), service), "DRA driver", dry=dry)
    if settings.fractions.usage_socket is not None:
        yield from _remove_dead((settings.fractions.usage_socket,), "service of use", dry=dry)
    yield from remove_directory(service.parent, dry=dry)


def _remove_dead(paths: Iterable[Path], whose: str, *, dry: bool) -> Iterator[Outcome]:
    for path in paths:
        if path.exists() and _answers(path):
            yield Outcome(Step.KEPT, str(path), f"another {whose} answers there")
        else:
            yield from remove_files([path], f"socket of a {whose}", dry=dry)


def remove_run_dir(settings: Settings, *, dry: bool) -> Iterator[Outcome]:
    """Remove the admin socket and its directory."""
    yield from remove_files([settings.node.run_dir / ADMIN_SOCKET], "admin socket", dry=dry)
    yield from remove_directory(settings.node.run_dir, dry=dry)


def remove_state(
    settings: Settings, claims: Mapping[str, str], *, dry: bool, gone: Collection[str] = ()
) -> list[Outcome]:
    """Remove the agent's memory, and the directory if empty; the journal stays for used claims.

    `gone` are the removed paths, or the paths to remove in a rehearsal.
    """
    directory = settings.node.state_dir
    if not directory.is_dir():
        return []
    ours = [path for path in sorted(directory.iterdir()) if path.name.lstrip(".").startswith(STATE_NAMES)]
    record, journal = directory / RECORD_NAME, directory / JOURNAL_NAME
    kept = {record: "holds how the files that were kept above were before the agent"} if not dry else {}
    if claims:
        kept[journal] = f"says whose claims are used, {len(claims)} of them"
    outcomes = list(remove_files((path for path in ours if path not in kept), "state", dry=dry))
    outcomes += [Outcome(Step.KEPT, str(path), kept[path]) for path in ours if path in kept]
    return [*outcomes, *_remove_memory(directory / USAGE_MEMORY, gone, dry=dry), *remove_directory(directory, dry=dry)]


def _remove_memory(path: Path, gone: Collection[str], *, dry: bool) -> Iterator[Outcome]:
    """Unmount the usage files' memory, mounted by unit or chart; in a pod the host's mount goes with the directory."""
    if not path.is_dir():
        return
    if any(str(each) not in gone for each in path.iterdir()):
        yield Outcome(Step.KEPT, str(path), "containers have files in it: unmount it when they have ended")
        return
    if path.is_mount():
        yield act(lambda: _unmount(path), path, "memory for what containers write", dry=dry)
    if dry or not path.is_mount():
        yield act(path.rmdir, path, "directory", dry=dry)


def _unmount(path: Path) -> None:
    done = subprocess.run(  # noqa: S603 - a mount of ours
        ["umount", str(path)],  # noqa: S607 - as root calls it
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise OSError(errno.EBUSY, done.stderr.decode("utf-8", "replace").strip())


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dialled:
        dialled.settimeout(_DIAL_SECONDS)
        try:
            dialled.connect(str(path))
        except OSError:
            return False
    return True


def remove_files(paths: Iterable[Path], what: str, *, dry: bool) -> Iterator[Outcome]:
    """Remove the existing files of the list."""
    for path in paths:
        if os.path.lexists(path):
            yield act(path.unlink, path, what, dry=dry)


def remove_directory(path: Path, *, dry: bool) -> Iterator[Outcome]:
    """Remove an empty directory, unless mounted."""
    if not path.is_dir():
        return
    if not dry and any(path.iterdir()):
        yield Outcome(Step.KEPT, str(path), "something else is in it")
    elif path.is_mount():
        yield Outcome(Step.KEPT, str(path), "an empty directory that is mounted here, as in a pod")
    else:
        yield act(path.rmdir, path, "directory", dry=dry)


def act(action: Callable[[], None], path: Path, what: str, *, dry: bool) -> Outcome:
    """Act, unless in a rehearsal, and report the result."""
    try:
        if not dry:
            action()
    except OSError as error:
        return Outcome(Step.FAILED, str(path), describe_os_error(error))
    return Outcome(Step.REMOVED, str(path), what)
