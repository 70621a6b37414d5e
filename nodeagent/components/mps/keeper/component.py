"""One daemon: waits until its GPUs are free, makes them its own, keeps it running, and gives all back in the end.

Owns what is written down of its GPUs before they are changed, and how the daemon stands.
Refuses to end a daemon that somebody works through, even one that no longer answers: their work may go on without it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import SystemRandom
from typing import Final

import anyio
from msgspec import Struct
from msgspec.structs import replace

from nodeagent.components.mps.holders import join_names
from nodeagent.components.mps.keeper.modes import ModeDesk
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock
from nodeagent.core.life.backoff import Backoff, BackoffSettings
from nodeagent.core.log.lines import get_logger
from nodeagent.model.errors import DriverError, GpuError, JournalUnavailable, MpsRefused, MpsSilent
from nodeagent.model.gpu import ComputeMode, Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mps import MpsClient, MpsDaemon, MpsLimits, MpsPhase, MpsServer
from nodeagent.model.ports import ChangeKeeper, MpsHost
from nodeagent.rules.mps.access import plan_place
from nodeagent.rules.mps.daemons import OWNER, DaemonKind, Engagement, Wanted, engage_step
from nodeagent.rules.mps.log import choose_told, find_news, has_orders
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
"""How long clients that are still there when a daemon is to end may take."""
_SETTLE_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 120.0
"""How often a daemon is asked for its limits and servers though neither its log nor its processes say a change."""
BACKOFF: Final = BackoffSettings(first_seconds=0.5, limit_seconds=60.0, stable_seconds=60.0)
_FAILED: Final = (MpsRefused, MpsSilent, GpuError, DriverError, JournalUnavailable)


class Surroundings(Struct, frozen=True):
    """What all keepers share, ask and tell."""

    host: MpsHost
    modes: ModeDesk
    journal: ChangeKeeper
    live: LiveSettings
    clock: Clock
    find_gpu: Callable[[GpuUuid], Gpu | None]
    find_obstacle: Callable[[], str]
    """Why no daemon can be started now for the driver's sake; empty where one can."""
    is_released: Callable[[], bool]
    name_holders: Callable[[Sequence[GpuUuid]], tuple[str, ...]]
    """Those who have any of these GPUs."""
    name_others: Callable[[Wanted], tuple[str, ...]]
    """Those who have the GPUs of a daemon and will not go through it."""
    name_clients: Callable[[Sequence[int]], Awaitable[tuple[MpsClient, ...]]]
    tell: Callable[["Keeper"], None]
    """Called when it stands otherwise than before."""
    note_start: Callable[["Keeper"], None]
    note_fault: Callable[["Keeper", str, tuple[MpsClient, ...]], None]
    """Called when a daemon or a server of it has ended unasked, with those who worked through it when last seen."""


class Keeper:
    """Looks after one daemon until it is not wanted any more and gone."""

    def __init__(
        self, wanted: Wanted, around: Surroundings, engaged: Mapping[GpuUuid, tuple[int, ComputeMode]] | None = None
    ) -> None:
        """`engaged` are GPUs that another life of the agent has made its own: the change, and the mode before."""
        self.wanted, self.is_wanted = wanted, True
        self._asked = wanted.gpus
        """Those of its GPUs that there is to be a daemon for now."""
        self._around, self._engaged = around, dict(engaged or {})
        self._place = plan_place(around.live.now, wanted.name)
        self._waker, self._failing = Waker(), Backoff(BACKOFF, SystemRandom())
        self._configured: MpsLimits | None = None
        self._orders: set[str] = set()
        """Our own commands that change something: in its log they are no news."""
        self._ask_at = 0.0
        self._is_running = False
        """Whether a daemon was found running: who has its GPUs has them through it, whatever is written down."""
        self._log = get_logger(component="mps").bind(daemon=wanted.name)
        self.shown = MpsDaemon(
            name=wanted.name,
            gpus=wanted.gpus,
            owner=wanted.owner,
            limits=wanted.limits,
            phase=MpsPhase.WAITING,
            reason="it has yet to be looked for",
            pipe_directory=str(self._place.pipes),
            since_seconds=around.clock.wall(),
        )

    def want(self, target: Wanted | None) -> None:
        """Have it with these limits from now on, `None`: have it no more; and look again at what it waits for."""
        self.is_wanted = target is not None
        if target is not None:
            self._asked = target.gpus
            self.wanted = replace(self.wanted, limits=target.limits)
        self._waker.wake()

    async def run(self) -> None:
        """Look after it; returns when it is gone and all is given back."""
        while True:
            began = anyio.current_time()
            try:
                if self.is_wanted:
                    await self._serve()
                elif await self._end():
                    return
            except _FAILED as error:
                phase = MpsPhase.BROKEN if self.is_wanted else MpsPhase.STOPPING
                self._show(phase, str(error), pid=None, servers=(), last_fault=str(error))
                self._log.warning("mps_daemon_failed", reason=str(error))
                with anyio.move_on_after(self._failing.delay_after_failure(ran_seconds=anyio.current_time() - began)):
                    was_wanted = self.is_wanted
                    while self.is_wanted == was_wanted:
                        await self._waker.wait()

    async def _serve(self) -> None:
        """Have it running for as long as it is wanted and may."""
        if not await self._wait_turn():
            return
        if self.shown.phase is not MpsPhase.BROKEN:
            # One that has failed stays so until it is ready: its condition is not to come and go with each try.
            self._show(MpsPhase.STARTING)
        pid = await self._around.host.find(self._place)
        was_found = pid is not None
        await self._engage()
        if pid is None:
            await self._set_modes()
            pid = await self._around.host.start(self._place, self.wanted.gpus)
        await self._configure(has_servers=was_found)
        if was_found:
            await self._look(pid, must_ask=True)
        self._show(MpsPhase.READY, pid=pid, starts=self.shown.starts + (not was_found))
        self._log.info("mps_daemon_adopted" if was_found else "mps_daemon_started", pid=pid)
        self._around.note_start(self)
        await self._watch(pid)

    async def _wait_turn(self) -> bool:
        """Whether it is still wanted when nothing is in its way any more."""
        is_running = await self._around.host.find(self._place) is not None
        self._is_running = self._is_running or is_running
        await self._leave_gone(is_running=is_running)
        while self.is_wanted and (reason := self._find_obstacle()):
            self._show(MpsPhase.WAITING, reason)
            await self._waker.wait()
            await self._leave_gone(is_running=is_running)
        return self.is_wanted

    async def _leave_gone(self, *, is_running: bool) -> None:
        """Go on without GPUs that are gone and not asked for; a daemon that runs counts those it came with."""
        for uuid in self.wanted.gpus if not self._around.find_obstacle() else ():
            is_needed = uuid in self._asked or self._around.find_gpu(uuid) is not None
            if is_needed or (is_running and uuid in self._engaged):
                continue
            if uuid in self._engaged:
                await self._around.journal.settle_change(self._engaged[uuid][0], "gone")
                del self._engaged[uuid]
            self.wanted = replace(self.wanted, gpus=tuple(one for one in self.wanted.gpus if one != uuid))
            self._show(self.shown.phase, self.shown.reason, gpus=self.wanted.gpus)

    def _find_obstacle(self) -> str:
        if obstacle := self._around.find_obstacle():
            return obstacle
        if self._is_running or self._engaged.keys() >= set(self.wanted.gpus):
            return ""
        holders = self._around.name_others(self.wanted)
        return f"it waits for {join_names(holders)}, who have it otherwise" if holders else ""

    async def _engage(self) -> None:
        """Write down what its GPUs are, before they are changed."""
        missing = [uuid for uuid in self.wanted.gpus if uuid not in self._engaged]
        if not missing:
            return
        async with self._around.modes.open() as session:
            for uuid in missing:
                mode = await session.read_compute_mode(self._find_gpu(uuid))
                # With a daemon of ours on it, whose record is lost, it is no longer as it was.
                before = ComputeMode.DEFAULT if self._is_running else mode
                step = engage_step(Engagement(wanted=self.wanted, compute_mode=before), self._around.clock.wall())
                self._engaged[uuid] = await self._around.journal.begin_change(OWNER, uuid, step), before

    async def _set_modes(self) -> None:
        """Nobody gets past it; again before each start, because a driver that was loaded anew has forgotten."""
        async with self._around.modes.open() as session:
            for uuid in self.wanted.gpus:
                await session.set_compute_mode(self._find_gpu(uuid), ComputeMode.EXCLUSIVE_PROCESS)

    def _find_gpu(self, uuid: GpuUuid) -> Gpu:
        gpu = self._around.find_gpu(uuid)
        if gpu is None:
            raise MpsRefused(f"{uuid} is not on this node any more")
        return gpu

    async def _configure(self, *, has_servers: bool) -> None:
        """Set its limits, for clients of servers to come, and for new ones of those that run; see that it took them."""
        limits, gpus, host = self.wanted.limits, self.wanted.gpus, self._around.host
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
        return await self._around.host.ask(self._place, commands)

    async def _watch(self, pid: int) -> None:
        """Until it dies, is not wanted, or is to make room.

        Raises:
            MpsRefused: it has ended, or was ended because it does not answer and nobody works through it.
        """
        has_died, failure, waiting = False, "", anyio.CancelScope()

        async def wait_death() -> None:
            nonlocal has_died
            with waiting:
                await self._around.host.wait_end(pid)
                has_died = True
                self._waker.wake()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_death, name=f"mps daemon {pid}")
            look_at = anyio.current_time() + self._around.live.now.mps.look_seconds
            while self.is_wanted and not (has_died or failure or self._must_make_room()):
                if self._configured != self.wanted.limits or anyio.current_time() >= look_at:
                    failure = await self._look_again(pid)
                    look_at = anyio.current_time() + self._around.live.now.mps.look_seconds
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
        self._around.note_fault(self, reason, clients)
        raise MpsRefused(reason)

    def _must_make_room(self) -> bool:
        """Whether the driver was released, and nobody works through it who would lose by its end."""
        return self._around.is_released() and not self.shown.clients

    async def _look_again(self, pid: int) -> str:
        """Why it was ended; empty where it was not."""
        try:
            is_broken = self.shown.phase is MpsPhase.BROKEN
            if is_broken or self._configured != self.wanted.limits:
                await self._configure(has_servers=True)
            await self._look(pid, must_ask=is_broken or anyio.current_time() >= self._ask_at)
        except MpsSilent as error:
            self._show(MpsPhase.BROKEN, str(error), last_fault=str(error))
            if self._around.name_holders(self.wanted.gpus) or self.wanted.kind is DaemonKind.CLAIM:
                return ""
            await self._around.host.kill(pid)
            return f"{error}; it was ended, as nobody works through it"
        except MpsRefused as error:
            self._show(MpsPhase.BROKEN, str(error), last_fault=str(error))
            return ""
        if self.shown.phase is MpsPhase.BROKEN:
            self._show(MpsPhase.READY)
        return ""

    async def _look(self, pid: int, *, must_ask: bool) -> None:
        """See what its log and the kernel say of it; it is asked for its clients where they may have changed."""
        host = self._around.host
        news = await self._read_news()
        told, left_out = choose_told(news)
        for line in told:
            self._log.info("mps_said", line=line)
        if left_out:
            self._log.warning("mps_said_more", lines=left_out)
        if has_orders(news):
            # A daemon of driver 535 takes limits from everybody who reaches its pipes, those of a server included.
            await self._configure(has_servers=True)
        clients = [client.pid for client in self.shown.clients]
        known = {*clients, *(server.pid for server in self.shown.servers)}
        if must_ask or news or known != await host.list_processes(pid, clients):
            await self._ask_servers()

    async def _read_news(self) -> tuple[str, ...]:
        return find_news(await self._around.host.read_log(self._place), self._orders)

    async def _ask_servers(self) -> None:
        """Its servers, and who works through them; limits that are not those it was given are set again."""
        host, gpus, limits, servers = self._around.host, self.wanted.gpus, self.wanted.limits, []
        answer = await host.ask(self._place, look := render_look(gpus, limits))
        if find_refusal(gpus, limits, answer):
            await self._configure(has_servers=True)
            answer = await host.ask(self._place, look)
        self._ask_at = anyio.current_time() + ANSWER_SECONDS
        for pid in read_servers(gpus, limits, answer):
            pids = read_pids(await host.ask(self._place, (f"get_client_list {pid}",)))
            servers.append(MpsServer(pid=pid, clients=await self._around.name_clients(pids)))
        gone = [one for one in self.shown.servers if one.pid not in {server.pid for server in servers}]
        for server in gone:
            if server.clients:
                fault = f"its server {server.pid} ended"
                self._show(self.shown.phase, self.shown.reason, last_fault=fault)
                self._around.note_fault(self, fault, server.clients)
        self._show(self.shown.phase, self.shown.reason, servers=tuple(servers))

    async def _end(self) -> bool:
        """End it when nobody has its GPUs through it; whether that is done."""
        holders = () if self.wanted.kind is DaemonKind.CLAIM else self._around.name_holders(self.wanted.gpus)
        if holders and self._engaged:
            self._show(MpsPhase.STOPPING, f"it waits for {join_names(holders)}")
            await self._waker.wait()
            return False
        self._show(MpsPhase.STOPPING, "it is being ended")
        await self._quit()
        endings = await self._give_back()
        await self._around.host.remove(self._place)
        # Last of all: who is killed before goes on from here, and nobody else knows of the directory.
        for uuid, how in endings.items():
            await self._around.journal.settle_change(self._engaged[uuid][0], how)
            del self._engaged[uuid]
        self._log.info("mps_daemon_removed")
        return True

    async def _quit(self) -> None:
        """End it, whatever it says to that."""
        host = self._around.host
        pid = await host.find(self._place)
        if pid is None:
            return
        reason = "it does not end"
        try:
            await host.ask(self._place, (render_quit(QUIT_SECONDS),), QUIT_SECONDS + _SETTLE_SECONDS)
        except MpsSilent as error:
            # Its front end also fails where a server did not end well: the daemon ends all the same.
            reason = str(error)
        with anyio.move_on_after(_SETTLE_SECONDS):
            await host.wait_end(pid)
        if await host.find(self._place) == pid:
            self._log.warning("mps_daemon_killed", pid=pid, reason=reason)
            await host.kill(pid)
        self._show(self.shown.phase, self.shown.reason, pid=None, servers=())

    async def _give_back(self) -> dict[GpuUuid, str]:
        """The compute modes, as they were; how that went with each GPU."""
        endings: dict[GpuUuid, str] = {}
        if not self._engaged:
            return endings
        async with self._around.modes.open() as session:
            for uuid, (_, before) in self._engaged.items():
                gpu = self._around.find_gpu(uuid)
                # A GPU that is gone, or is lost, has no mode left to be given back.
                is_there = gpu is not None and not gpu.lost
                if gpu is not None and is_there:
                    await session.set_compute_mode(gpu, before)
                endings[uuid] = "given back" if is_there else "gone"
        return endings

    def _show(self, phase: MpsPhase, reason: str = "", **fields: object) -> None:
        since = self.shown.since_seconds if phase is self.shown.phase else self._around.clock.wall()
        shown = replace(self.shown, phase=phase, reason=reason, since_seconds=since, **fields)
        if shown != self.shown:
            self.shown = shown
            self._around.tell(self)
