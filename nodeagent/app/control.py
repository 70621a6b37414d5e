"""The configuration in force: read anew by order or SIGHUP, and chosen by the node's label."""

from collections.abc import Callable
from pathlib import Path

import anyio

from nodeagent.app.node_label import SEAL, Recalled
from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.files import list_files
from nodeagent.config.live import LiveSettings
from nodeagent.config.load import Loaded
from nodeagent.config.named import choose_configuration
from nodeagent.config.reload import ReloadPlan, decide_reload
from nodeagent.core.channels.bus import Bus
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.core.conditions import Conditions
from nodeagent.core.errors import CoreError
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.core.log.lines import configure_logging, get_logger
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.edge.host.files.sealed_store import SealedStore
from nodeagent.model.errors import ControlRefused
from nodeagent.model.events import ConfigurationRejected, ConfigurationReloaded
from nodeagent.model.orders import RELOAD

READ_SECONDS = 10.0
SOURCE = "control"
NOT_REMEMBERED = "configuration-not-remembered"


class Control:
    """Carries the order out; implements `model.ports.ConfigurationControl`."""

    def __init__(
        self,
        bus: Bus,
        conditions: Conditions,
        live: LiveSettings,
        orders: OrderHandlers,
        reload_settings: Callable[[str], Loaded],
        recalled: Recalled,
    ) -> None:
        self._bus, self._conditions, self._live = bus, conditions, live
        self._load_again = reload_settings
        self._reader = WorkerThread("configuration reader")
        self._node_label, self._stored_label = recalled.in_force, recalled.label
        self._label_store = SealedStore(SealedFile(recalled.file, *SEAL))
        # A reload waiting for a change of the label must not then bring back the configuration of the label before.
        self._loading = anyio.Lock()
        self._log = get_logger(component=SOURCE)
        orders.add(RELOAD, lambda _: self.reload())
        conditions.show("named-configuration-unknown", recalled.refusal)
        conditions.show(NOT_REMEMBERED, recalled.trouble)

    def close(self) -> None:
        """Let the threads end."""
        self._reader.close()
        self._label_store.close()

    async def reload(self) -> str:
        """Read the configuration anew; an unreadable or invalid configuration changes nothing."""
        async with self._loading:
            return await self._load(self._node_label)

    async def follow_label(self, label: str, *, cause: int | None = None) -> str:
        """Put the named configuration of the node's label in force; an unknown name changes nothing."""
        async with self._loading:
            return await self._follow(label, cause)

    async def _follow(self, label: str, cause: int | None) -> str:
        settings = self._live.now.device_plugin
        if settings.config_dir is None:
            raise ControlRefused(f"cannot use configuration {label}: device_plugin.config_dir names no directory")
        names = await self._list_configurations(settings.config_dir)
        chosen = choose_configuration(names, label, settings.default_config)
        if chosen.problem and label:
            raise ControlRefused(chosen.problem)
        done = await self._load(label, cause)
        self._node_label = label
        await self._remember(label)
        return done

    async def _remember(self, label: str) -> None:
        """Store the label, for an agent that starts while the API server is away."""
        trouble = await self._label_store.write(label.encode()) if label != self._stored_label else ""
        self._conditions.show(NOT_REMEMBERED, trouble)
        if not trouble:
            self._stored_label = label

    async def _list_configurations(self, directory: Path) -> tuple[str, ...]:
        def read() -> tuple[str, ...]:
            names, problems = list_files(directory)
            if problems:
                raise ControlRefused("; ".join(str(problem) for problem in problems))
            return names

        try:
            return await self._reader.run(read, timeout_seconds=READ_SECONDS, what="list named configurations")
        except CoreError as error:
            raise ControlRefused(str(error)) from error

    async def _load(self, node_label: str, cause: int | None = None) -> str:
        def load() -> Loaded:
            return self._load_again(node_label)

        try:
            loaded = await self._reader.run(load, timeout_seconds=READ_SECONDS, what="read configuration")
        except ConfigurationInvalid as error:
            raise self._reject(tuple(str(problem) for problem in error.problems), cause) from error
        except CoreError as error:
            raise self._reject((str(error),), cause) from error
        if node_label and loaded.unchosen:  # the configuration's file is gone: the other files alone are not in force
            raise self._reject((loaded.unchosen,), cause)
        self._conditions.clear("configuration-invalid", cause=cause)
        return self._apply(decide_reload(self._live.now, loaded.settings), cause)

    def _reject(self, problems: tuple[str, ...], cause: int | None) -> ControlRefused:
        fact = self._bus.publish_fact(ConfigurationRejected(problems=problems), source=SOURCE, cause=cause)
        self._conditions.set("configuration-invalid", detail="; ".join(problems), cause=fact)
        return ControlRefused(f"the configuration before stays in force: {'; '.join(problems)}")

    def _apply(self, plan: ReloadPlan, cause: int | None) -> str:
        later = tuple(change.path for change in plan.changed_needs_restart)
        self._conditions.show("configuration-needs-restart", ", ".join(later))
        if plan.is_empty:
            return "nothing changed"
        self._live.replace(plan.settings)
        configure_logging(form=plan.settings.log.format, level=plan.settings.log.level)
        now = tuple(change.path for change in plan.changed_reloadable)
        reloaded = ConfigurationReloaded(changed=now, needs_restart=later)
        self._bus.publish_fact(reloaded, source=SOURCE, cause=cause)
        self._log.info("configuration_reloaded", changed=now, needs_restart=later)
        sentences = [f"changed: {', '.join(str(change) for change in plan.changed_reloadable)}"] if now else []
        if later:
            sentences.append(f"needs a restart: {', '.join(str(change) for change in plan.changed_needs_restart)}")
        return "; ".join(sentences)
