"""THE list of commands; `docs/cli.md` is generated from the list."""

from nodeagent.cli.commands.agent import DRIVER, EXTENDER, RELEASE, RELOAD, RESUME, RUN, SIMULATE
from nodeagent.cli.commands.cluster import CLUSTER
from nodeagent.cli.commands.devices import CLAIMS, DEVICES, FRACTIONS, MPS
from nodeagent.cli.commands.gpus import GPUS
from nodeagent.cli.commands.mig import MIG
from nodeagent.cli.commands.node import ALLOCATIONS, AUDIT, DOCTOR, EVENTS, REPAIRS, STATUS, TOP
from nodeagent.cli.commands.outputs import CDI, LABELS, METRICS, RENDER, RUNTIME
from nodeagent.cli.commands.program import COMPLETION, CONFIGURATION, UNINSTALL, VERSION
from nodeagent.cli.frame.command import Argument, Command

ROOT = Command(
    "nodeagent",
    "one process per GPU node: driver, CDI, device plugin, labels, metrics, health, recovery",
    description=("Start with `nodeagent simulate` to see it without a GPU, and `nodeagent status` on a node."),
    arguments=(Argument(("--version",), "the version, and nothing else", action="version"),),
    subcommands=(
        RUN,
        SIMULATE,
        STATUS,
        DOCTOR,
        EVENTS,
        AUDIT,
        REPAIRS,
        TOP,
        GPUS,
        MIG,
        MPS,
        DEVICES,
        ALLOCATIONS,
        FRACTIONS,
        CLAIMS,
        CDI,
        RUNTIME,
        LABELS,
        METRICS,
        RENDER,
        CONFIGURATION,
        RELOAD,
        DRIVER,
        RELEASE,
        RESUME,
        EXTENDER,
        CLUSTER,
        COMPLETION,
        UNINSTALL,
        VERSION,
    ),
)
