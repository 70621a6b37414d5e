"""Commands about what the agent writes and serves: CDI files, runtime configuration, metrics, labels."""

from nodeagent.cli.commands.shared import ASKING, CONFIG, NODE, RECORD, SET, TABLE
from nodeagent.cli.frame.command import Argument, Command, Example
from nodeagent.cli.frame.exit_codes import ExitCode


def _ids(*names: str, meaning: str, metavar: str = "ID") -> Argument:
    """An option with ids joined by commas, given once or several times."""
    return Argument(names, f"{meaning}; joined by commas", metavar=metavar, action="append")


CDI = Command(
    "cdi",
    "the specifications from which container runtimes learn what a GPU is made of",
    description="Works without a running agent. Kinds, devices and files are read afresh each time.",
    examples=(Example("nodeagent cdi list", "the names for `podman run --device`"),),
    subcommands=(
        Command(
            "generate",
            "print the specification of this node's GPUs, or write it to a file",
            runs="nodeagent.cli.node.cdi:generate",
            of_machine=True,
            exits=(
                ExitCode.UNWELL,
                ExitCode.NO_DRIVER,
                ExitCode.UNREACHABLE,
            ),
            description="Exit code 1: a device had to be left out; standard error says which and why.",
            arguments=(
                *NODE,
                Argument(
                    ("--kind",),
                    "for which kind (default: nvidia.com/gpu)",
                    metavar="VENDOR/CLASS",
                    default="nvidia.com/gpu",
                ),
                Argument(("--output", "-o"), "write this file, whole, instead of printing", metavar="FILE"),
            ),
            examples=(
                Example("nodeagent cdi generate", "what containers would get on this node"),
                Example("nodeagent cdi generate -o /etc/cdi/nvidia.json", "on a node without a running agent"),
            ),
        ),
        Command(
            "list",
            "every device name that a runtime would resolve on this node, and what is in its way",
            runs="nodeagent.cli.node.cdi:list_devices",
            of_machine=True,
            exits=(ExitCode.UNWELL,),
            description="Exit code 1: a file is invalid, or files cancel each other.",
            arguments=(CONFIG, SET, *TABLE),
            examples=(Example("nodeagent cdi list", "the names for `podman run --device`"),),
        ),
        Command(
            "files",
            "the paths of the driver and its GPUs, as `nvidia-container-cli list` prints them",
            runs="nodeagent.cli.node.driver_files:list_files",
            of_machine=True,
            exits=(ExitCode.NO_DRIVER,),
            description=(
                "A path a line, below the driver's root; without an option all but the rights over MIG devices."
            ),
            arguments=(
                *NODE,
                _ids("--device", "-d", meaning="GPUs and MIG devices by index, UUID or PCI address, or all"),
                Argument(("--binaries", "-b"), "the driver's programs", action="store_true"),
                Argument(("--libraries", "-l"), "the driver's libraries", action="store_true"),
                Argument(("--compat32",), "with --libraries, the 32-bit libraries too", action="store_true"),
                Argument(("--ipcs", "-i"), "sockets of the driver's daemons, and pipes of MPS", action="store_true"),
                Argument(("--firmwares", "-f"), "firmware of the GPUs' system processor", action="store_true"),
                _ids(
                    "--mig-config", meaning="all: what a program needs that makes MIG devices on the GPUs of --device"
                ),
                _ids("--mig-monitor", meaning="all: what a program needs that looks at every MIG device"),
                _ids("--imex-channel", metavar="CHANNEL", meaning="IMEX channels by number"),
                Argument(("--no-persistenced",), "without the socket of nvidia-persistenced", action="store_true"),
                Argument(("--no-fabricmanager",), "without the socket of the fabric manager", action="store_true"),
            ),
            examples=(
                Example("nodeagent cdi files", "what a hand-made container with every GPU needs"),
                Example("nodeagent cdi files --device 0 --libraries", "one GPU and the libraries"),
            ),
        ),
        Command(
            "info",
            "the driver and its GPUs, as `nvidia-container-cli info` prints them",
            runs="nodeagent.cli.node.driver_files:show_info",
            of_machine=True,
            exits=(ExitCode.NO_DRIVER,),
            description="`nodeagent gpu list` tells more; this one is for scripts that read NVIDIA's program.",
            arguments=(*NODE, Argument(("--csv",), "as two tables in CSV", action="store_true")),
            examples=(Example("nodeagent cdi info", "versions, and seven facts of each GPU"),),
        ),
        Command(
            "validate",
            "say what is wrong with specification files, or that nothing is",
            runs="nodeagent.cli.node.cdi:validate",
            of_machine=True,
            exits=(ExitCode.UNWELL,),
            description="Without files it judges all those that runtimes read. Exit code 1: something is wrong.",
            arguments=(
                CONFIG,
                SET,
                *RECORD,
                Argument(("files",), "files ending in .json or .yaml", metavar="FILE", nargs="*"),
            ),
            examples=(Example("nodeagent cdi validate /etc/cdi/nvidia.yaml", "one file"),),
        ),
    ),
)


RUNTIME = Command(
    "runtime",
    "the container runtime: what it is, and the least that must change for it to take CDI devices",
    description="Works without a running agent. Where CDI is on already, nothing is ever changed.",
    examples=(Example("nodeagent runtime detect", "before anything else"),),
    subcommands=(
        Command(
            "detect",
            "which runtime serves the kubelet, where its configuration is, and whether it takes CDI devices",
            runs="nodeagent.cli.node.runtime:detect",
            of_machine=True,
            exits=(ExitCode.UNWELL,),
            description="Exit code 1: it does not, or it is not known.",
            arguments=(CONFIG, SET, *RECORD),
            examples=(Example("nodeagent runtime detect", "before anything else"),),
        ),
        Command(
            "plan",
            "what `configure` would change, as a unified diff, and whether the runtime comes up with it",
            runs="nodeagent.cli.node.runtime:plan",
            of_machine=True,
            exits=(ExitCode.UNREACHABLE,),
            description=(
                "containerd's own program is started on the side with a harmless copy of the planned files."
                " The last line says that this proved them, or why it could not be done. Exit code 2: it would fail."
            ),
            arguments=(CONFIG, SET),
            examples=(
                Example("nodeagent runtime plan", "nothing is written"),
                Example("nodeagent runtime plan --set runtime.legacy_class=true", "with the runtime class nvidia"),
            ),
        ),
        Command(
            "configure",
            "write the change; what was there before is kept",
            runs="nodeagent.cli.node.runtime:configure",
            of_machine=True,
            exits=(ExitCode.UNREACHABLE,),
            description="The runtime's own program judges the change before it replaces anything, as `plan` does.",
            arguments=(
                CONFIG,
                SET,
                Argument(
                    ("--restart",),
                    "restart the runtime too, and take everything back if it does not come back with the setting",
                    action="store_true",
                ),
            ),
            examples=(Example("nodeagent runtime configure --restart", "now, with a way back"),),
        ),
        Command(
            "unconfigure",
            "give back, byte for byte, what was there before",
            runs="nodeagent.cli.node.runtime:unconfigure",
            of_machine=True,
            exits=(ExitCode.UNWELL,),
            description="Exit code 1: a file was changed by somebody else since, and is left alone.",
            arguments=(CONFIG, SET),
            examples=(Example("nodeagent runtime unconfigure", "before the agent is removed"),),
        ),
    ),
)


METRICS = Command(
    "metrics",
    "which metrics there are, and which are missing and why",
    examples=(Example("nodeagent metrics list", "what dashboards can use"),),
    subcommands=(
        Command(
            "list",
            "every field of DCGM exporter: shown, available, or missing with the reason",
            runs="nodeagent.cli.node.metrics:list_metrics",
            of_machine=True,
            description="Shows what `metrics.fields_file` makes of the list; lines that cannot be used go to stderr.",
            arguments=(
                *NODE,
                *TABLE,
                Argument(("--csv",), "all available fields as a list for `metrics.fields_file`", action="store_true"),
                Argument(("--strict",), "exit with 2 when a line of the list cannot be used", action="store_true"),
            ),
            examples=(
                Example("nodeagent metrics list", "what dashboards can use"),
                Example("nodeagent metrics list --csv > fields.csv", "a list to choose from"),
                Example("nodeagent metrics list --strict --set metrics.fields_file=/etc/fields.csv", "check a list"),
            ),
        ),
    ),
)


RENDER = Command(
    "render",
    "print what the agent would serve or write, without serving or writing it",
    examples=(Example("nodeagent render labels", "this node's labels"),),
    subcommands=(
        Command(
            "labels",
            "the labels that this node should have, one key=value a line",
            runs="nodeagent.cli.node.labels:render",
            of_machine=True,
            exits=(
                ExitCode.UNWELL,
                ExitCode.NO_DRIVER,
            ),
            arguments=(*NODE, *RECORD),
            examples=(
                Example("nodeagent render labels", "this node's labels"),
                Example("nodeagent render labels --gpus simulated:dgx-h100", "those of a made-up node"),
            ),
        ),
        Command(
            "metrics",
            "the GPU series of /metrics, from two samples taken now",
            runs="nodeagent.cli.node.metrics:render",
            of_machine=True,
            exits=(ExitCode.NO_DRIVER,),
            description="Asks the hardware itself, not the agent; pods are known to the agent alone.",
            arguments=(
                *NODE,
                Argument(("--openmetrics",), "in OpenMetrics rather than the text format", action="store_true"),
            ),
            examples=(
                Example("nodeagent render metrics --gpus simulated:dgx-h100", "series of a node you do not have"),
            ),
        ),
    ),
)


LABELS = Command(
    "labels",
    "the labels of this node: wanted, in place, where, since when",
    runs="nodeagent.cli.node.labels:show",
    exits=(
        ExitCode.UNWELL,
        ExitCode.UNREACHABLE,
    ),
    description="Asks the running agent. Exit code 1: not every label is as wanted.",
    arguments=(*ASKING, *TABLE),
    examples=(Example("nodeagent labels", "what the node is called, and what is in the way"),),
)
