"""Runs a daemon: waits for free GPUs, prepares them, keeps the daemon alive, and restores all in the end.

Owns the journal's record of the GPUs before any change, and the daemon's phase.
Refuses to end a daemon with clients, even a silent daemon: the work of clients may go on.
"""

from collections.abc import Callable, Mapping, Sequence
from random import SystemRandom
from typing import Final, NamedTuple

import anyio
from msgspec.structs import replace

from nodeagent.components.mps.holders import join_names
from nodeagent.components.mps.modes import ComputeModes
from nodeagent.components.mps.report_task import MpsReporter
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.log.lines import get_logger
from nodeagent.model.errors import DriverError, GpuError, JournalUnavailable, MpsRefused, MpsSilent
from nodeagent.model.gpu import ComputeMode, Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsDaemon, MpsLimits, MpsPhase, MpsServer
from nodeagent.model.ports import ChangeJournal, MpsHost
from nodeagent.rules.mps.access import plan_place
from nodeagent.rules.mps.daemons import OWNER, DaemonKind, Engagement, Wanted, engage_step
from nodeagent.rules.mps.log import choose_lines, find_news, has_orders
from nodeagent.rules.mps.talk import (
    LOOK,
    find_refusal,
    read_pids,
    read_servers,
    render_defaults,
    render_look,
    render_quit,
    render_server_limits,
)

QUIT_SECONDS: Final = 5
"""How long a daemon waits for its last clients when told to end."""
_SETTLE_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 120.0
"""How often a daemon is asked for limits and servers though neither log nor processes show a change."""
BACKOFF: Final = BackoffSettings(first_seconds=0.5, limit_seconds=60.0, stable_seconds=60.0)
_FAILED: Final = (MpsRefused, MpsSilent, GpuError, DriverError, JournalUnavailable)


class DaemonDependencies(NamedTuple):
    """Dependencies that all supervisors share."""

    host: MpsHost
    modes: ComputeModes
    journal: ChangeJournal
    live: LiveSettings
    clock: Clock
    reporter: MpsReporter
    publish: Callable[[], None]
    """Called at each change of `shown`."""


class DaemonSupervisor:
    """Looks after a daemon until the daemon is unwanted and gone."""

    def __init__(
        self,
        wanted: Wanted,
        dependencies: DaemonDependencies,
        engaged: Mapping[GpuUuid, tuple[int, ComputeMode]] | None = None,
    ) -> None:
        """`engaged`: GPUs prepared by an earlier process, with the number of the change and the mode before."""
        self.wanted, self.is_wanted = wanted, True
        self._asked = wanted.gpus
        """The GPUs for which the daemon is wanted now."""
        self._engaged = dict(engaged or {})
        self._host, self._modes, self._journal, self._live, self._clock, self._reporter, self._publish = dependencies
        self._place = plan_place(self._live.now, wanted.name)
        self._waker, self._failing = Waker(), Backoff(BACKOFF, SystemRandom())
        self._configured: MpsLimits | None = None
        self._orders: set[str] = set()
        """Our own commands that change settings: in the daemon's log they are no news."""
        self._ask_at = 0.0
        self._is_running = False
        """Whether a daemon was found running: holders of its GPUs then go through it, whatever the journal says."""
        self._log = get_logger(component="mps").bind(daemon=wanted.name)
        self.shown = MpsDaemon(
            name=wanted.name,
            gpus=wanted.gpus,
            owner=wanted.owner,
            limits=wanted.limits,
            phase=MpsPhase.WAITING,
            reason="it has yet to be looked for",
            pipe_directory=str(self._place.pipes),
            since_seconds=self._clock.wall(),
        )

    def want(self, target: Wanted | None) -> None:
        """Want the daemon with these limits, or, with `None`, no longer; and check its obstacles again."""
        self.is_wanted = target is not None
        if target is not None:
            self._asked = target.gpus
            self.wanted = replace(self.wanted, limits=target.limits)
        self._waker.wake()

    async def run(self) -> None:
        """Look after the daemon; returns when the daemon is gone and its GPUs are restored."""
        while True:
            began = anyio.current_time()
            try:
                if self.is_wanted:
                    await self._serve()
                elif await self._end():
                    return
            except _FAILED as error:
                phase = MpsPhase.BROKEN if self.is_wanted else MpsPhase.STOPPING
                left = await self._host.find(self._place)
                self._show(phase, str(error), pid=left, servers=(), last_fault=str(error))
                self._log.warning("mps_daemon_failed", reason=str(error))
                with anyio.move_on_after(self._failing.delay_after_failure(ran_seconds=anyio.current_time() - began)):
                    was_wanted = self.is_wanted
                    while self.is_wanted == was_wanted:
                        await self._waker.wait()

    async def _serve(self) -> None:
        """Run the daemon for as long as wanted and allowed."""
        if not await self._wait_turn():
            return
        if self.shown.phase is not MpsPhase.BROKEN:
            # A failed daemon stays broken until ready: its condition is not to come and go with each try.
            self._show(MpsPhase.STARTING)
        pid = await self._host.find(self._place)
        was_found = pid is not None
        await self._engage()
        if pid is None:
            await self._set_modes()
            pid = await self._host.start(self._place, self.wanted.gpus, multi_user=self.wanted.limits.multi_user)
        await self._configure(has_servers=was_found)
        if was_found:
            await self._look(pid, must_ask=True)
        self._show(MpsPhase.READY, pid=pid, starts=self.shown.starts + (not was_found))
        self._log.info("mps_daemon_adopted" if was_found else "mps_daemon_started", pid=pid)
        self._reporter.note_start(self.shown)
        await self._watch(pid)

    async def _wait_turn(self) -> bool:
        """Wait for all obstacles to go; whether the daemon is still wanted then."""
        is_running = await self._host.find(self._place) is not None
        self._is_running = self._is_running or is_running
        await self._leave_gone(is_running=is_running)
        while self.is_wanted and (reason := self._find_obstacle()):
            self._show(MpsPhase.WAITING, reason)
            await self._waker.wait()
            await self._leave_gone(is_running=is_running)
        return self.is_wanted

    async def _leave_gone(self, *, is_running: bool) -> None:
        """Drop missing GPUs not asked for; a running daemon still counts its first GPUs."""
        for uuid in self.wanted.gpus if not self._reporter.find_obstacle() else ():
            is_needed = uuid in self._asked or self._reporter.find_gpu(uuid) is not None
            if is_needed or (is_running and uuid in self._engaged):
                continue
            if uuid in self._engaged:
                await self._journal.settle_change(self._engaged[uuid][0], "gone")
                del self._engaged[uuid]
            self.wanted = replace(self.wanted, gpus=tuple(one for one in self.wanted.gpus if one != uuid))
            self._show(self.shown.phase, self.shown.reason, gpus=self.wanted.gpus)

    def _find_obstacle(self) -> str:
        if obstacle := self._reporter.find_obstacle():
            return obstacle
        if self._is_running or self._engaged.keys() >= set(self.wanted.gpus):
            return ""
        holders = self._reporter.name_others(self.wanted)
        return f"it waits for {join_names(holders)}, who have it otherwise" if holders else ""

    async def _engage(self) -> None:
        """Record the compute modes of the GPUs in the journal, before any change."""
        missing = [uuid for uuid in self.wanted.gpus if uuid not in self._engaged]
        if not missing:
            return
        async with self._modes.open() as session:
            for uuid in missing:
                mode = await session.read_compute_mode(self._find_gpu(uuid))
                # Under a daemon of ours with a lost record, the GPU has no longer its former mode.
                before = ComputeMode.DEFAULT if self._is_running else mode
                step = engage_step(Engagement(wanted=self.wanted, compute_mode=before), self._clock.wall())
                self._engaged[uuid] = await self._journal.begin_change(OWNER, uuid, step), before

    async def _set_modes(self) -> None:
        """Set the exclusive mode, so that clients need the daemon; before each start, as a reloaded driver forgets."""
        async with self._modes.open() as session:
            for uuid in self.wanted.gpus:
                await session.set_compute_mode(self._find_gpu(uuid), ComputeMode.EXCLUSIVE_PROCESS)

    def _find_gpu(self, uuid: GpuUuid) -> Gpu:
        gpu = self._reporter.find_gpu(uuid)
        if gpu is None:
            raise MpsRefused(f"{uuid} is not on this node any more")
        return gpu

    async def _configure(self, *, has_servers: bool) -> None:
        """Set the limits, for clients of future servers and new clients of running servers; check the answer."""
        limits, gpus, host = self.wanted.limits, self.wanted.gpus, self._host
        answer = await self._order(render_defaults(gpus, limits))
        if refusal := find_refusal(gpus, limits, answer):
            raise MpsRefused(refusal)
        for server in read_pids(await host.ask(self._place, LOOK)) if has_servers else ():
            await self._order(render_server_limits(server, gpus, limits))
        self._configured = limits
        self._ask_at = anyio.current_time() + ANSWER_SECONDS
        self._show(self.shown.phase, self.shown.reason, limits=limits)

    async def _order(self, commands: Sequence[str]) -> tuple[str, ...]:
        self._orders.update(commands)
        return await self._host.ask(self._place, commands)

    async def _watch(self, pid: int) -> None:
        """Watch a daemon until its death, its end, or a request to make room.

        Raises:
            MpsRefused: The daemon has ended, or was killed as silent and without clients.
        """
        has_died, failure, waiting = False, "", anyio.CancelScope()

        async def wait_death() -> None:
            nonlocal has_died
            with waiting:
                await self._host.wait_end(pid)
                has_died = True
                self._waker.wake()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_death, name=f"mps daemon {pid}")
            look_at = anyio.current_time() + self._live.now.mps.look_seconds
            while self.is_wanted and not (has_died or failure or self._must_make_room()):
                if self._configured != self.wanted.limits or anyio.current_time() >= look_at:
                    failure = await self._poll_again(pid)
                    look_at = anyio.current_time() + self._live.now.mps.look_seconds
                with anyio.CancelScope(deadline=look_at):
                    await self._waker.wait()
            waiting.cancel()
        if failure:
            raise MpsRefused(failure)
        if has_died:
            await self._note_death()
        if self._must_make_room():
            await self._quit()

    async def _note_death(self) -> None:
        lines = await self._read_news()
        reason = f"it ended; its log ends with {lines[-1]!r}" if lines else "it ended"
        clients = self.shown.clients
        self._show(MpsPhase.BROKEN, reason, pid=None, servers=(), last_fault=reason)
        self._reporter.note_fault(self.shown, reason, clients)
        raise MpsRefused(reason)

    def _must_make_room(self) -> bool:
        """Whether the driver is released, and the daemon has no clients who would lose by its end."""
        return self._reporter.is_released() and not self.shown.clients

    async def _poll_again(self, pid: int) -> str:
        """Check the daemon; returns why the daemon was killed, or empty."""
        try:
            is_broken = self.shown.phase is MpsPhase.BROKEN
            if is_broken or self._configured != self.wanted.limits:
                await self._configure(has_servers=True)
            await self._look(pid, must_ask=is_broken or anyio.current_time() >= self._ask_at)
        except MpsSilent as error:
            self._show(MpsPhase.BROKEN, str(error), last_fault=str(error))
            if self._reporter.name_holders(self.wanted.gpus) or self.wanted.kind is DaemonKind.CLAIM:
                return ""
            await self._host.kill(pid)
            return f"{error}; it was ended, as nobody works through it"
        except MpsRefused as error:
            self._show(MpsPhase.BROKEN, str(error), last_fault=str(error))
            return ""
        if self.shown.phase is MpsPhase.BROKEN:
            self._show(MpsPhase.READY)
        return ""

    async def _look(self, pid: int, *, must_ask: bool) -> None:
        """Read the log and the processes; ask the daemon for clients if any may have changed."""
        host = self._host
        news = await self._read_news()
        if has_orders(news):
            # A daemon of driver 535 takes limits, also of servers, from every process that reaches its pipes.
            await self._configure(has_servers=True)
        clients = [client.pid for client in self.shown.clients]
        known = {*clients, *(server.pid for server in self.shown.servers)}
        if must_ask or news or known != await host.list_processes(pid, clients):
            await self._ask_servers()

    async def _read_news(self) -> tuple[str, ...]:
        """Read what is new in the daemon's log, and repeat the lines."""
        news = find_news(await self._host.read_log(self._place), self._orders)
        repeated, left_out = choose_lines(news)
        for line in repeated:
            self._log.info("mps_said", line=line)
        if left_out:
            self._log.warning("mps_said_more", lines=left_out)
        return news

    async def _ask_servers(self) -> None:
        """Read servers and their clients; limits found changed are set again."""
        host, gpus, limits, servers = self._host, self.wanted.gpus, self.wanted.limits, []
        answer = await host.ask(self._place, poll := render_look(gpus, limits))
        if find_refusal(gpus, limits, answer):
            await self._configure(has_servers=True)
            answer = await host.ask(self._place, poll)
        self._ask_at = anyio.current_time() + ANSWER_SECONDS
        for pid in read_servers(gpus, limits, answer):
            pids = read_pids(await host.ask(self._place, (f"get_client_list {pid}",)))
            servers.append(MpsServer(pid=pid, clients=await self._reporter.name_clients(pids)))
        gone = [one for one in self.shown.servers if one.pid not in {server.pid for server in servers}]
        for server in gone:
            if server.clients:
                fault = f"its server {server.pid} ended"
                self._show(self.shown.phase, self.shown.reason, last_fault=fault)
                self._reporter.note_fault(self.shown, fault, server.clients)
        self._show(self.shown.phase, self.shown.reason, servers=tuple(servers))

    async def _end(self) -> bool:
        """End the daemon once its GPUs have no holders through it; returns whether all is done."""
        holders = () if self.wanted.kind is DaemonKind.CLAIM else self._reporter.name_holders(self.wanted.gpus)
        if holders and self._engaged:
            self._show(MpsPhase.STOPPING, f"it waits for {join_names(holders)}")
            await self._waker.wait()
            return False
        self._show(MpsPhase.STOPPING, "it is being ended")
        await self._quit()
        # A daemon that was there for less than the time between two polls has been read by nobody.
        await self._read_news()
        endings = await self._give_back()
        await self._host.remove(self._place)
        # Last of all: an agent killed before this goes on from the record, the only trace of the directory.
        for uuid, how in endings.items():
            await self._journal.settle_change(self._engaged[uuid][0], how)
            del self._engaged[uuid]
        self._log.info("mps_daemon_removed")
        return True

    async def _quit(self) -> None:
        """Quit the daemon, by force if need be."""
        host = self._host
        pid = await host.find(self._place)
        if pid is None:
            return
        reason, order = "it does not end", render_quit(QUIT_SECONDS)
        self._orders.add(order)
        try:
            await host.ask(self._place, (order,), QUIT_SECONDS + _SETTLE_SECONDS)
        except MpsSilent as error:
            # The daemon's front end also fails after a server's bad end: the daemon ends all the same.
            reason = str(error)
        with anyio.move_on_after(_SETTLE_SECONDS):
            await host.wait_end(pid)
        if await host.find(self._place) == pid:
            self._log.warning("mps_daemon_killed", pid=pid, reason=reason)
            await host.kill(pid)
            with anyio.move_on_after(_SETTLE_SECONDS):
                await host.wait_end(pid)
        # A process that even survives its kill still has the GPUs.
        left = await host.find(self._place)
        servers = () if left is None else self.shown.servers
        self._show(self.shown.phase, self.shown.reason, pid=left, servers=servers)

    async def _give_back(self) -> dict[GpuUuid, str]:
        """Restore the compute modes; the outcome for each GPU."""
        endings: dict[GpuUuid, str] = {}
        if not self._engaged:
            return endings
        async with self._modes.open() as session:
            for uuid, (_, before) in self._engaged.items():
                gpu = self._reporter.find_gpu(uuid)
                # A missing or lost GPU has no mode left to restore.
                is_there = gpu is not None and not gpu.lost
                if gpu is not None and is_there:
                    await session.set_compute_mode(gpu, before)
                endings[uuid] = "given back" if is_there else "gone"
        return endings

    def _show(self, phase: MpsPhase, reason: str = "", **fields: object) -> None:
        since = self.shown.since_seconds if phase is self.shown.phase else self._clock.wall()
        shown = replace(self.shown, phase=phase, reason=reason, since_seconds=since, **fields)
        if shown != self.shown:
            self.shown = shown
            self._publish()
