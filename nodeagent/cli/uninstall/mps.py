"""Ends the daemons of a stopped agent, and gives their GPUs back.

Owns the condition: a daemon with clients is kept, with advice. Compute modes are set by the driver's own tool, as no
agent's worker is there.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

from nodeagent.app.wiring.mps import find_driver_root
from nodeagent.cli.uninstall.steps import Outcome, Step
from nodeagent.config.schema import Settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.mps.host import HostMps, MpsHostSettings
from nodeagent.edge.mps.processes import read_gpus
from nodeagent.edge.mps.run import run
from nodeagent.model.errors import MpsRefused, MpsSilent
from nodeagent.model.mps import MARKER, MpsPlace
from nodeagent.rules.mps.fractions import PREFIX
from nodeagent.rules.mps.talk import LOOK, read_pids, render_quit

_WHAT: Final = "MPS daemon"
_SHARED: Final = "what MPS daemons share"
_QUIT_SECONDS: Final = 5
_TOOL_SECONDS: Final = 30.0


def end_daemons(settings: Settings, *, dry: bool) -> list[Outcome]:
    """End each daemon below `device_plugin.mps_root`, where the directory is this agent's."""
    root = settings.device_plugin.mps_root
    if not (root / MARKER).exists():
        return []
    # Either may be missing after a killed agent; a daemon's own pipe may have the name, too.
    found = (each for name in ("pipe", "log") for each in root.glob(f"**/{name}") if each.is_dir())
    own = {each.parent for each in found if root / "shm" not in each.parents}
    places = [_locate(settings, directory) for directory in sorted(own)]
    shared = Outcome(Step.REMOVED, str(root), _SHARED)
    if dry:
        return [Outcome(Step.REMOVED, str(place.directory), _WHAT) for place in places] or [shared]
    outcomes = anyio.run(lambda: _end_all(settings, places))
    if places or outcomes:
        return outcomes
    return [Outcome(Step.KEPT, str(root), "something else is in it") if (root / MARKER).exists() else shared]


def _locate(settings: Settings, directory: Path) -> MpsPlace:
    root = settings.device_plugin.mps_root
    own = settings.mps.shared_memory == "own"
    return MpsPlace(root=root, name=str(directory.relative_to(root)), has_own_memory=own)


async def _end_all(settings: Settings, places: list[MpsPlace]) -> list[Outcome]:
    worker = WorkerThread("MPS files")
    host = HostMps(
        MpsHostSettings(
            find_root=lambda: find_driver_root(settings),
            program=settings.mps.program,
            answer_timeout_seconds=settings.mps.answer_timeout_seconds,
        ),
        worker,
    )
    try:
        if not places:
            await host.remove_shared(settings.device_plugin.mps_root)
        return [outcome for place in places for outcome in await _end(settings, host, place)]
    except MpsRefused as error:
        return [Outcome(Step.FAILED, str(settings.device_plugin.mps_root), str(error))]
    finally:
        worker.close()


async def _end(settings: Settings, host: HostMps, place: MpsPlace) -> list[Outcome]:
    pid = await host.find(place)
    alone = place.name.removeprefix(PREFIX)
    gpus = read_gpus(pid) if pid is not None else (alone,) if alone.startswith("GPU-") else ()
    if pid is not None:
        clients = await _list_clients(host, place)
        if clients:
            reason = f"{len(clients)} processes work through it: uninstall again when they have ended"
            return [Outcome(Step.KEPT, str(place.directory), reason)]
        await _quit(host, place, pid)
    try:
        await host.remove(place)
    except MpsRefused as error:
        return [Outcome(Step.FAILED, str(place.directory), str(error))]
    # Simulated GPUs have no compute mode for the driver's tool to reset.
    real = gpus if settings.gpus.simulated_profile is None else ()
    modes = [outcome for gpu in real for outcome in [await _give_back(settings, gpu)]]
    return [Outcome(Step.REMOVED, str(place.directory), _WHAT), *modes]


async def _list_clients(host: HostMps, place: MpsPlace) -> list[int]:
    """The clients of a daemon; empty for a silent daemon."""
    clients: list[int] = []
    try:
        for server in read_pids(await host.ask(place, LOOK)):
            clients += read_pids(await host.ask(place, (f"get_client_list {server}",)))
    except MpsSilent:
        return []
    return clients


async def _quit(host: HostMps, place: MpsPlace, pid: int) -> None:
    # The daemon's front end also fails where a server did not end well: the daemon ends all the same.
    with suppress(MpsSilent):
        await host.ask(place, (render_quit(_QUIT_SECONDS),), _QUIT_SECONDS + 2.0)
    with anyio.move_on_after(_QUIT_SECONDS) as scope:
        await host.wait_end(pid)
    if scope.cancelled_caught:
        await host.kill(pid)
        # A daemon asleep in the driver does not end by the kill, and is left to the kernel.
        with anyio.move_on_after(_QUIT_SECONDS):
            await host.wait_end(pid)


async def _give_back(settings: Settings, gpu: str) -> Outcome:
    root = str(find_driver_root(settings)).rstrip("/")
    command = [*(("chroot", root) if root else ()), "nvidia-smi", "-i", gpu, "-c", "DEFAULT"]
    what = f"compute mode of {gpu}"
    try:
        ran = await run(command, {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}, "", _TOOL_SECONDS)
    except OSError as error:
        return Outcome(Step.FAILED, what, f"run `{' '.join(command)}` by hand: {error.strerror}")
    if ran.status != 0:
        return Outcome(Step.FAILED, what, f"run `{' '.join(command)}` by hand: {ran.said}")
    return Outcome(Step.RESTORED, what, "any number of processes may use it")
