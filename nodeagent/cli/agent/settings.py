"""The settings a command runs with, from `--config`, `--set` and `--gpus`."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from nodeagent.app.node_label import Recalled, recall_label
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed
from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.load import Loaded, load_settings
from nodeagent.config.schema import Settings
from nodeagent.config.sources import walk_knobs


def list_overrides(arguments: argparse.Namespace) -> list[str]:
    """The settings of the flags, weakest first; `--gpus` is short for a `--set`."""
    overrides = list(arguments.set or ())
    if getattr(arguments, "gpus", None):
        overrides.append(f"gpus.source={arguments.gpus}")
    return overrides


def list_settings() -> tuple[str, ...]:
    """Every setting, up to the beginning of its value, for completion in shells."""
    return tuple(sorted(f"{'.'.join(path)}=" for path, _ in walk_knobs(Settings)))


def load_for(
    arguments: argparse.Namespace,
    environ: Mapping[str, str],
    *,
    extra: tuple[str, ...] = (),
    node_label: str = "",
    skip_forbidden: bool = False,
) -> Loaded:
    """The settings; `extra` is weaker than the user's flags, `node_label` chooses a named configuration."""
    file = Path(arguments.config) if arguments.config else None
    try:
        overrides = [*extra, *list_overrides(arguments)]
        return load_settings(
            file, environ=environ, overrides=overrides, node_label=node_label, skip_forbidden=skip_forbidden
        )
    except ConfigurationInvalid as error:
        lines = [str(problem) for problem in error.problems]
        raise CommandFailed("\nnodeagent: ".join(lines), ExitCode.BAD_INPUT) from error


def load_for_looking(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """The settings of a reading command: without permission for the node's files, the defaults."""
    return load_for(arguments, environ, skip_forbidden=True).settings


def load_in_force(arguments: argparse.Namespace, environ: Mapping[str, str]) -> tuple[Loaded, Recalled]:
    """The settings with the last named configuration of the node's label, as for an agent started now."""

    def load(node_label: str) -> Loaded:
        return load_for(arguments, environ, node_label=node_label)

    return recall_label(load(""), lambda node_label: reload_settings(load, node_label), environ)


def reload_settings(load: Callable[[str], Loaded], node_label: str) -> Loaded:
    """Load settings for a caller with earlier settings to go on with: the problems themselves instead of a message.

    Raises:
        ConfigurationInvalid: With every problem.
    """
    try:
        return load(node_label)
    except CommandFailed as error:
        if isinstance(error.__cause__, ConfigurationInvalid):
            raise error.__cause__ from None
        raise
