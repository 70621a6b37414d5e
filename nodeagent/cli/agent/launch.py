"""Starts an agent in this process and turns errors into one line and an exit code."""

import gc
import signal
from collections.abc import Callable
from functools import partial

from nodeagent.app.errors import DriverRequired, StartRefused
from nodeagent.app.gpu_wait import wait_for_gpu
from nodeagent.app.node_label import recall_label
from nodeagent.app.plan import AgentPlan, Endpoints, SimulationPlan
from nodeagent.cli.agent.settings import reload_settings
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, describe_first
from nodeagent.config.load import Loaded
from nodeagent.config.tree import DEFAULT
from nodeagent.core.authorities import without_authorities
from nodeagent.core.errors import VitalComponentFailed
from nodeagent.edge.http.errors import HttpError
from nodeagent.model.errors import SourceUnusable

with without_authorities():
    from nodeagent.app.agent import run_agent


def launch(
    load: Callable[[str], Loaded],
    environ: dict[str, str],
    *,
    require_driver: bool = False,
    awaits_gpu: bool = False,
    patience_seconds: float = 0.0,
    is_standby: bool = False,
    simulation: SimulationPlan | None = None,
    stop_after_seconds: float | None = None,
    announce: Callable[[Endpoints], None] = lambda _endpoints: None,
) -> None:
    """Run to the end; `load` reads the settings, given the node label with the name of a named configuration."""
    # Before the agent handles SIGHUP, an early reload would end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # A start makes no garbage; the agent enables the collector again shortly before it runs.
    gc.disable()
    try:
        reload = partial(reload_settings, load)
        loaded, recalled = recall_label(load(""), reload, environ)
        if awaits_gpu:
            wait_for_gpu(loaded.settings)
        run_agent(
            AgentPlan(
                loaded=loaded,
                reload_settings=reload,
                recalled=recalled,
                environ=environ,
                require_driver=require_driver,
                patience_seconds=patience_seconds,
                is_standby=is_standby,
                simulation=simulation,
                may_move=simulation is not None and loaded.origin_of("http.listen") == DEFAULT,
                stop_after_seconds=stop_after_seconds,
                announce=announce,
            )
        )
    except* DriverRequired as errors:
        raise CommandFailed(describe_first(errors), ExitCode.NO_DRIVER) from None
    except* (StartRefused, HttpError, SourceUnusable) as errors:
        raise CommandFailed(describe_first(errors), ExitCode.BAD_INPUT) from None
    except* VitalComponentFailed as errors:
        raise CommandFailed(describe_first(errors), ExitCode.COMPONENT_FAILED) from None
    finally:
        gc.enable()
