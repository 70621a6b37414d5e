"""Arguments shared by several commands, and the commands that give orders."""

from typing import Any

from nodeagent.cli.frame.command import Argument, Command, Example
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.model.orders import Order

CONFIG = Argument(
    ("--config", "-c"),
    "configuration file; conf.d/*.yaml beside it is read too (default: /etc/nodeagent/config.yaml if it exists)",
    metavar="FILE",
)


SET = Argument(
    ("--set",),
    "one setting, over file and environment; may be given any number of times",
    metavar="SECTION.KEY=VALUE",
    action="append",
    default=(),
    offers="nodeagent.cli.agent.settings:list_settings",
)


GPUS = Argument(
    ("--gpus",),
    "nvml for the hardware, simulated:PROFILE for made-up GPUs beside real neighbours; short for --set gpus.source=…",
    metavar="SOURCE",
    offers="nodeagent_sim.command:list_sources",
)

NODE = (CONFIG, SET, GPUS)
"""The arguments of every command that reads the node."""

JSON = Argument(("--json",), "the same as JSON, for scripts; short for -o json", action="store_true")


def _offer_forms(*forms: str) -> Argument:
    meanings = {"wide": "every column, nothing cut", "json": "JSON", "yaml": "YAML", "name": "names alone, a line each"}
    said = "; ".join(f"{form}: {meanings[form]}" for form in forms)
    return Argument(("--output", "-o"), said, metavar="FORM", choices=forms, dest="form")


NO_HEADERS = Argument(
    ("--no-headers",),
    "rows alone: no line of column names, and what is said of a table on standard error",
    action="store_true",
)

RECORD = (JSON, _offer_forms("json", "yaml"))
"""The arguments of every command with a single record for an answer."""

TABLES = (JSON, _offer_forms("wide", "json", "yaml"), NO_HEADERS)
"""The arguments of every command with tables in its answer."""

TABLE = (JSON, _offer_forms("wide", "json", "yaml", "name"), NO_HEADERS)
"""The arguments of every command with a single table for an answer."""

GPU = Argument(("--gpu",), "only what this GPU is part of: index, UUID or PCI address", metavar="GPU")

POD = Argument(("--pod",), "only what this pod holds; NAME alone means it in every namespace", metavar="NAMESPACE/NAME")
SIMULATION = Argument(
    ("--simulation",),
    "which simulation, where several run; NODEAGENT_SIMULATION says the same",
    metavar="NAME",
)

ASKING = (*NODE, SIMULATION)
"""The arguments of every command that asks the running agent about the node."""


def command_order(
    name: str,
    order: Order[Any],
    *arguments: Argument,
    description: str = "",
    examples: tuple[Example, ...] = (),
    runs: str = "nodeagent.cli.answers.orders:run",
    exits: tuple[ExitCode, ...] = (),
) -> Command:
    """The command that gives an order; an argument of the order has the name of the order's field."""
    return Command(
        name,
        order.summary,
        runs=runs,
        order=order,
        exits=(*exits, ExitCode.UNREACHABLE),
        description=description,
        arguments=(CONFIG, SET, SIMULATION, *arguments),
        examples=examples,
    )
