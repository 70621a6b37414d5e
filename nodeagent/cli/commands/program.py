"""Commands about the program itself: configuration, completion, version, removal."""

from nodeagent.cli.commands.shared import JSON, NODE, RECORD, TABLE
from nodeagent.cli.frame.command import Argument, Command, Example
from nodeagent.cli.frame.exit_codes import ExitCode

COMPLETION = Command(
    "completion",
    "the completion script for a shell",
    runs="nodeagent.cli.frame.completion:run",
    arguments=(Argument(("shell",), "bash, zsh or fish", metavar="SHELL", choices=("bash", "zsh", "fish")),),
    examples=(
        Example("nodeagent completion bash > /etc/bash_completion.d/nodeagent", "for every user's bash"),
        Example("nodeagent completion zsh > _nodeagent", "into a directory of $fpath"),
        Example("nodeagent completion fish > nodeagent.fish", "into ~/.config/fish/completions"),
    ),
)


CONFIGURATION = Command(
    "config",
    "check and explain the configuration",
    examples=(Example("nodeagent config show --changed", "what is special about this node"),),
    subcommands=(
        Command(
            "check",
            "say everything that is wrong with the configuration, or that nothing is",
            runs="nodeagent.cli.agent.config:check",
            of_machine=True,
            arguments=(*NODE, *RECORD),
            examples=(Example("nodeagent config check --config new.yaml", "before it goes to a thousand nodes"),),
        ),
        Command(
            "show",
            "every setting, its value, and where the value came from",
            runs="nodeagent.cli.agent.config:show",
            of_machine=True,
            arguments=(
                *NODE,
                *RECORD,
                Argument(("--changed",), "only what differs from the default", action="store_true"),
            ),
            examples=(Example("nodeagent config show --changed", "what is special about this node"),),
        ),
        Command(
            "schema",
            "the JSON Schema of the configuration file, for editors",
            runs="nodeagent.cli.agent.config:schema",
            examples=(Example("nodeagent config schema > nodeagent.schema.json", "completion while you type"),),
        ),
        Command(
            "import",
            "say the configuration of NVIDIA's parts or of gpu-manager in this agent's words",
            runs="nodeagent.cli.agent.import_config:run",
            exits=(ExitCode.UNWELL,),
            description=(
                "Reads a ClusterPolicy, NVIDIADriver objects, a device plugin configuration or ConfigMap; Helm values\n"
                "of the GPU Operator, the device plugin or DCGM exporter; a DCGM exporter field list, a mig-parted\n"
                "file; DaemonSets of gpu-manager, the device plugin, GPU feature discovery and DCGM exporter;\n"
                "gpu-manager's command line.\n"
                "Exit code 1: something has no counterpart; the result names it in comments, and standard error too."
            ),
            arguments=(
                *NODE,
                JSON,
                Argument(("--check",), "instead of the file, say what would change on this node", action="store_true"),
                Argument(("--entry",), "which configuration of a ConfigMap with several", metavar="NAME"),
                Argument(
                    ("--values",),
                    "values of the chart: the settings below config, and the driver pods",
                    action="store_true",
                ),
                Argument(("--output", "-o"), "write this file, whole, instead of printing", metavar="FILE"),
                Argument(("files",), "what to read; - is standard input", metavar="FILE", nargs="+"),
            ),
            examples=(
                Example("nodeagent config import cluster-policy.yaml", "from the GPU Operator"),
                Example(
                    "nodeagent config import --values cluster-policy.yaml", "for helm install, with the driver pods"
                ),
                Example("nodeagent config import --check gpu-manager.yaml", "what this node would do otherwise"),
                Example(
                    "nodeagent config import -o config.yaml values.yaml dcp-metrics-included.csv",
                    "from several parts at once; a later file wins",
                ),
            ),
        ),
    ),
)


VERSION = Command(
    "version",
    "the version of the agent and of what it is built on",
    runs="nodeagent.cli.version:run",
    arguments=(*RECORD,),
    examples=(Example("nodeagent version --json", "for an inventory of nodes"),),
)


UNINSTALL = Command(
    "uninstall",
    "leave this node as it was before the agent came",
    runs="nodeagent.cli.uninstall.command:run",
    of_machine=True,
    exits=(ExitCode.UNWELL,),
    description=(
        "Restores the container runtime's files; removes specifications, markers, dead sockets, labels and state.\n"
        "The agent must be stopped. Packages, units and configuration files stay: who put them there removes them.\n"
        "Exit code 1: a step failed; mend what it names and run the command again."
    ),
    arguments=(
        *NODE,
        *TABLE,
        Argument(("--dry-run",), "only say what would be done", action="store_true"),
        Argument(("--keep-state",), "keep the allocation journal and the verdicts on GPUs", action="store_true"),
    ),
    examples=(
        Example("nodeagent uninstall --dry-run", "what there is to undo"),
        Example("nodeagent uninstall --keep-state", "before a newer version is installed another way"),
    ),
)
