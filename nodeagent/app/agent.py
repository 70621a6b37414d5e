"""A run of the agent from start to stop."""

import contextlib
import gc
import sys
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from nodeagent.app.compose import Composition, compose
from nodeagent.app.endpoints import Listeners, open_endpoints
from nodeagent.app.errors import DriverRequired
from nodeagent.app.hardware import ChooseHardware, choose_hardware
from nodeagent.app.plan import AgentPlan, Endpoints
from nodeagent.app.standby import Standby
from nodeagent.components.driver.decide import decide_driver
from nodeagent.core.heap import keep_heap_small
from nodeagent.core.life.report import ComponentReport, Phase
from nodeagent.core.life.shutdown import ExitWatchdog, Shutdown
from nodeagent.core.log.lines import configure_logging, get_logger, report_repeats
from nodeagent.core.values import ActiveConditions
from nodeagent.edge.host.files.audit_file import open_audit
from nodeagent.edge.host.machine.systemd_notify import SystemdNotifier
from nodeagent.model.errors import ControlRefused

REACHABLE_SECONDS = 30.0
"""How long an agent with a set end may take to be reachable before its time begins to run."""

TELL_REPEATS_SECONDS = 10.0

SWITCH_SECONDS = 0.0002
"""How long another thread may keep the interpreter from the event loop. Python's default, 5 ms, is five times as long
as a pod's admission, and a hundredth of all admissions met a thread busy with files.
"""

_log = get_logger(component="agent")


def run_agent(plan: AgentPlan, choose: ChooseHardware = choose_hardware) -> None:
    """Run until told to stop, on the GPUs that `choose` gives access to.

    Raises:
        StartRefused: A need of the agent is refused; no component runs, and no file is left behind.
        ListenFailed: An address cannot be had.
        SourceUnusable: GPUs cannot come from where the settings say.
        VitalComponentFailed: A vital component crashed too often; everything was stopped in order.
    """
    settings = plan.loaded.settings
    configure_logging(form=settings.log.format, level=settings.log.level)
    # Imported objects stay for good: garbage collection of them would hold up a pod for 20 ms, for nothing.
    gc.freeze()
    gc.enable()
    keep_heap_small()
    sys.setswitchinterval(SWITCH_SECONDS)
    standby = Standby(settings, plan.patience_seconds) if plan.is_standby else None
    with open_endpoints(
        settings,
        patience_seconds=plan.patience_seconds,
        may_move=plan.may_move,
        wait=standby.wait if standby is not None else None,
    ) as listeners:
        try:
            with open_audit(settings.node.state_dir):
                anyio.run(_run, plan, listeners, choose)
        finally:
            report_repeats(everything=True)


async def _run(plan: AgentPlan, listeners: Listeners, choose: ChooseHardware) -> None:
    parts = compose(plan, listeners, choose)
    notifier = SystemdNotifier.from_environment(plan.environ)
    watchdog = ExitWatchdog(plan.loaded.settings.shutdown.total_seconds)
    async with anyio.create_task_group() as tasks:

        def stop() -> None:
            notifier.stopping("stopping")
            parts.supervisor.stop()

        def reload() -> None:
            tasks.start_soon(_reload, parts, notifier, name="reload")

        with Shutdown(
            on_stop=stop,
            on_force=tasks.cancel_scope.cancel,
            on_reload=reload,
            watchdog=watchdog,
        ) as shutdown:
            await tasks.start(shutdown.run, name="signals")
            await tasks.start(parts.hardware.run, name="GPU source")
            if plan.require_driver:
                await _require_driver(parts)
            _start_background(tasks, plan, parts, notifier, shutdown.stop)
            try:
                await parts.supervisor.run()
            finally:
                await parts.aclose()
            tasks.cancel_scope.cancel()
    _log.info("agent_stopped")


def _start_background(
    tasks: TaskGroup, plan: AgentPlan, parts: Composition, notifier: SystemdNotifier, stop: Callable[[str], None]
) -> None:
    tasks.start_soon(parts.conditions.run, name="conditions")
    tasks.start_soon(parts.introspection.run, name="introspection")
    tasks.start_soon(parts.driver_release.run, name="driver release")
    tasks.start_soon(_report_repeats, name="repeated log lines")
    reachable = anyio.Event()
    tasks.start_soon(_announce, plan, parts, notifier, reachable, name="announcer")
    tasks.start_soon(_report_to_systemd, parts, notifier, name="systemd status")
    if notifier.watchdog_seconds is not None:
        tasks.start_soon(_feed_watchdog, notifier, notifier.watchdog_seconds / 2, name="systemd watchdog")
    if plan.simulation is not None:
        root = plan.loaded.settings.kubelet.device_plugins_dir.parent
        tasks.start_soon(plan.simulation.play_kubelet, root, parts.bus, parts.hardware.gpus, name="stand-in cluster")
    elif parts.hardware.simulation is not None:
        tasks.start_soon(parts.hardware.simulation.follow_journal, parts.bus, name="simulated jobs")
    if plan.stop_after_seconds is not None:
        tasks.start_soon(_stop_after, plan.stop_after_seconds, reachable, stop, name="stop timer")


async def _require_driver(parts: Composition) -> None:
    state = decide_driver(await parts.hardware.probe.read_evidence()).state
    if not state.ready:
        raise DriverRequired(state.detail or str(state.phase), state.remedy)


async def _announce(plan: AgentPlan, parts: Composition, notifier: SystemdNotifier, reachable: anyio.Event) -> None:
    """Announce where the agent is reached, once reachable, and tell systemd that the start is over.

    Readiness is not waited for: a node waiting for its driver has started, and systemd would kill a silent agent.
    """
    with parts.bus.watch(ComponentReport, client="announcer", key="web") as reports:
        async for report in reports:
            if report.value.phase is Phase.RUNNING:
                break
    endpoints = Endpoints(parts.listeners.url, parts.listeners.taken)
    _log.info("agent_started", node=parts.node, url=endpoints.url, gpus=parts.live.now.gpus.source)
    for notice in plan.loaded.notices:
        _log.warning("configuration_notice", notice=notice)
    notifier.ready("started")
    plan.announce(endpoints)
    reachable.set()


async def _report_to_systemd(parts: Composition, notifier: SystemdNotifier) -> None:
    """Keep the status line of `systemctl status` equal to the worst condition."""
    with parts.bus.watch(ActiveConditions, client="systemd status") as states:
        async for state in states:
            conditions = state.value.conditions
            notifier.status(f"{conditions[0].title}: {conditions[0].detail}" if conditions else "all is well")


async def _report_repeats() -> None:
    """Report repeated log lines to their end, even after the repeats stop."""
    while True:
        await anyio.sleep(TELL_REPEATS_SECONDS)
        report_repeats()


async def _feed_watchdog(notifier: SystemdNotifier, period_seconds: float) -> None:
    while True:
        notifier.watchdog()
        await anyio.sleep(period_seconds)


async def _stop_after(seconds: float, reachable: anyio.Event, stop: Callable[[str], None]) -> None:
    """Counts from when people can reach the agent; an agent never reached ends all the same."""
    with anyio.move_on_after(REACHABLE_SECONDS):
        await reachable.wait()
    await anyio.sleep(seconds)
    stop("time is over")


async def _reload(parts: Composition, notifier: SystemdNotifier) -> None:
    notifier.reloading("reading the configuration anew")
    try:
        # A refusal is already a condition, a fact and a log line; a signal has no reply.
        with contextlib.suppress(ControlRefused):
            await parts.control.reload()
    finally:
        notifier.ready("running")
