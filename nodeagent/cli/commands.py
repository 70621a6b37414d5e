"""THE list of commands; `docs/cli.md` is generated from it."""

from nodeagent.cli.command import Argument, Command, Example
from nodeagent.cli.durations import parse_duration
from nodeagent.cli.gpu_arguments import parse_xid

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
)
GPUS = Argument(
    ("--gpus",),
    "nvml for the hardware, simulated:PROFILE for made-up GPUs beside real neighbours; short for --set gpus.source=…",
    metavar="SOURCE",
)
NODE = (CONFIG, SET, GPUS)
"""Every command that looks at the node takes these."""

JSON = Argument(("--json",), "the same as JSON, for scripts", action="store_true")

RUN = Command(
    "run",
    "run the agent on this node, in the foreground",
    runs="nodeagent.cli.run:run",
    description=(
        "Runs until SIGTERM. Without an NVIDIA driver it waits for one and says so on every surface.\n"
        "SIGHUP reads the configuration anew; an invalid one is reported and the one before stays in force."
    ),
    arguments=(
        *NODE,
        Argument(
            ("--require-driver",),
            "exit with 3 at once when there is no working driver, instead of waiting for one",
            action="store_true",
        ),
    ),
    examples=(
        Example("nodeagent run", "as the systemd unit and the DaemonSet do"),
        Example("nodeagent run --set http.listen=0.0.0.0:9400", "let Prometheus on another machine scrape it"),
        Example("nodeagent run --gpus simulated:dgx-h100", "made-up GPUs, real kubelet"),
    ),
)

FAULT = Command(
    "fault",
    "have a running simulation misbehave",
    runs="nodeagent.cli.fault:run",
    description="Talks to the simulation over its admin socket. Without arguments it lists the faults there are.",
    arguments=(
        CONFIG,
        SET,
        Argument(("fault",), "which fault", metavar="FAULT", nargs="?"),
        Argument(("arguments",), "its arguments", metavar="ARGUMENT", nargs="*"),
    ),
    examples=(
        Example("nodeagent simulate fault", "what can be broken"),
        Example("nodeagent simulate fault xid 79 3", "GPU 3 falls off the bus"),
        Example("nodeagent simulate fault clear", "all is well again"),
    ),
)

SIMULATE = Command(
    "simulate",
    "run the agent on a made-up GPU node with a stand-in kubelet: no hardware, no cluster, no root",
    runs="nodeagent.cli.simulate:run",
    description="Everything lives in a temporary directory and is gone afterwards.",
    arguments=(
        CONFIG,
        SET,
        Argument(
            ("--profile",),
            "which node to make up; `nodeagent simulate --profile help` lists them",
            metavar="PROFILE",
            default="dgx-h100",
        ),
        Argument(("--pods",), "how many pods come and go at a time", metavar="N", default=6, parse=int),
        Argument(("--for",), "stop by itself after so long", metavar="DURATION", parse=parse_duration),
        Argument(("--seed",), "same seed, same load", metavar="N", default=1, parse=int),
    ),
    examples=(
        Example("nodeagent simulate", "a DGX H100 with its status page on http://127.0.0.1:9400/"),
        Example("nodeagent simulate --profile a100-80gb-mig --for 30s", "MIG devices, for half a minute"),
        Example("nodeagent simulate --set http.listen=127.0.0.1:0", "beside a real agent, on any free port"),
    ),
    subcommands=(FAULT,),
)

STATUS = Command(
    "status",
    "this node in one look: what is wrong, since when, and what to do",
    runs="nodeagent.cli.status:run",
    description=(
        "Asks the running agent, or the running simulation where there is no agent.\nExit code 1: not all is well."
    ),
    arguments=(
        *NODE,
        JSON,
        Argument(("--watch", "-w"), "again every two seconds, until interrupted", action="store_true"),
    ),
    examples=(
        Example("nodeagent status", "the node now"),
        Example("nodeagent status --watch", "while you mend it"),
        Example("nodeagent status --json", "the same for scripts"),
    ),
)

DOCTOR = Command(
    "doctor",
    "check everything by itself, also where no agent runs, and say what to do",
    runs="nodeagent.cli.doctor.command:run",
    description=(
        "One line per check: ok, warn or fail, what was found, and a command to paste.\n"
        "Exit code 6: a check failed; 1: there are warnings. Nothing on the node is changed."
    ),
    arguments=(
        *NODE,
        JSON,
        Argument(
            ("--bundle",),
            "also write state, configuration, checks, logs and journal there, without secrets, for a bug report",
            metavar="FILE.tar.gz",
        ),
    ),
    examples=(
        Example("nodeagent doctor", "when nothing else explains it"),
        Example("nodeagent doctor --bundle report.tar.gz", "for a bug report"),
        Example("nodeagent doctor --gpus simulated:dgx-h100", "to see what it checks"),
    ),
)

COMPLETION = Command(
    "completion",
    "the completion script for a shell",
    runs="nodeagent.cli.completion:run",
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
    arguments=(),
    subcommands=(
        Command(
            "check",
            "say everything that is wrong with the configuration, or that nothing is",
            runs="nodeagent.cli.config:check",
            arguments=(*NODE, JSON),
            examples=(Example("nodeagent config check --config new.yaml", "before it goes to a thousand nodes"),),
        ),
        Command(
            "show",
            "every setting, its value, and where the value came from",
            runs="nodeagent.cli.config:show",
            arguments=(
                *NODE,
                JSON,
                Argument(("--changed",), "only what differs from the default", action="store_true"),
            ),
            examples=(Example("nodeagent config show --changed", "what is special about this node"),),
        ),
        Command(
            "schema",
            "the JSON Schema of the configuration file, for editors",
            runs="nodeagent.cli.config:schema",
            examples=(Example("nodeagent config schema > nodeagent.schema.json", "completion while you type"),),
        ),
        Command(
            "import",
            "say the configuration of NVIDIA's parts in this agent's words",
            runs="nodeagent.cli.import_config:run",
            description=(
                "Reads a ClusterPolicy, a device plugin configuration or ConfigMap, Helm values of the GPU Operator,\n"
                "the device plugin or DCGM exporter, a DCGM exporter field list, a mig-parted file.\n"
                "Exit code 1: something has no counterpart; the result names it in comments, and standard error too."
            ),
            arguments=(
                JSON,
                Argument(("--entry",), "which configuration of a ConfigMap with several", metavar="NAME"),
                Argument(("--output", "-o"), "write this file, whole, instead of printing", metavar="FILE"),
                Argument(("files",), "what to read; - is standard input", metavar="FILE", nargs="+"),
            ),
            examples=(
                Example("nodeagent config import cluster-policy.yaml", "from the GPU Operator"),
                Example(
                    "nodeagent config import -o config.yaml values.yaml dcp-metrics-included.csv",
                    "from several parts at once; a later file wins",
                ),
            ),
        ),
    ),
)

CDI = Command(
    "cdi",
    "the specifications from which container runtimes learn what a GPU is made of",
    description="Works without a running agent. Kinds, devices and files are read afresh each time.",
    subcommands=(
        Command(
            "generate",
            "print the specification of this node's GPUs, or write it to a file",
            runs="nodeagent.cli.cdi:generate",
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
            runs="nodeagent.cli.cdi:list_devices",
            description="Exit code 1: a file is invalid, or files cancel each other.",
            arguments=(CONFIG, SET, JSON),
            examples=(Example("nodeagent cdi list", "the names for `podman run --device`"),),
        ),
        Command(
            "validate",
            "say what is wrong with specification files, or that nothing is",
            runs="nodeagent.cli.cdi:validate",
            description="Without files it judges all those that runtimes read. Exit code 1: something is wrong.",
            arguments=(
                CONFIG,
                SET,
                JSON,
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
    subcommands=(
        Command(
            "detect",
            "which runtime serves the kubelet, where its configuration is, and whether it takes CDI devices",
            runs="nodeagent.cli.runtime:detect",
            description="Exit code 1: it does not, or it is not known.",
            arguments=(CONFIG, SET, JSON),
            examples=(Example("nodeagent runtime detect", "before anything else"),),
        ),
        Command(
            "plan",
            "what `configure` would change, as a unified diff",
            runs="nodeagent.cli.runtime:plan",
            arguments=(CONFIG, SET),
            examples=(
                Example("nodeagent runtime plan", "nothing is written"),
                Example("nodeagent runtime plan --set runtime.legacy_class=true", "with the runtime class nvidia"),
            ),
        ),
        Command(
            "configure",
            "write the change; what was there before is kept",
            runs="nodeagent.cli.runtime:configure",
            description="The runtime's own tool judges the change before it replaces anything.",
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
            runs="nodeagent.cli.runtime:unconfigure",
            description="Exit code 1: a file was changed by somebody else since, and is left alone.",
            arguments=(CONFIG, SET),
            examples=(Example("nodeagent runtime unconfigure", "before the agent is removed"),),
        ),
    ),
)

VERSION = Command(
    "version",
    "the version of the agent and of what it is built on",
    runs="nodeagent.cli.version:run",
    arguments=(JSON,),
)

ALLOCATIONS = Command(
    "allocations",
    "which pod and container holds which device since when",
    runs="nodeagent.cli.allocations:run",
    description="Asks the running agent, whose journal holds what the kubelet was told.",
    arguments=(*NODE, JSON, Argument(("--history",), "those that have ended, the newest first", action="store_true")),
    examples=(
        Example("nodeagent allocations", "who holds what now"),
        Example("nodeagent allocations --history --json", "who held what, for scripts"),
    ),
)

RELOAD = Command(
    "reload",
    "have the running agent read its configuration anew, and say what changed",
    runs="nodeagent.cli.control:reload",
    arguments=(CONFIG, SET),
)

RELEASE = Command(
    "release",
    "have the running agent give up every GPU handle, so that the driver can be unloaded or a GPU reset",
    runs="nodeagent.cli.control:release",
    description="Devices keep their last state meanwhile. `nodeagent gpu holders` shows who else holds the driver.",
    arguments=(
        CONFIG,
        SET,
        Argument(
            ("--for",), "take it back after so long (driver.release_seconds)", metavar="DURATION", parse=parse_duration
        ),
        Argument(("--reason",), "why; shown on every surface", metavar="TEXT"),
    ),
    examples=(Example("nodeagent release --for 10m --reason 'driver upgrade'", "before `modprobe -r nvidia`"),),
)

RESUME = Command(
    "resume",
    "have the running agent take the driver back, in whatever version it now is",
    runs="nodeagent.cli.control:resume",
    arguments=(CONFIG, SET),
)

GPU = Command(
    "gpu",
    "the GPUs of this node: list, topology, health, holders, and the catalogue of XIDs",
    subcommands=(
        Command(
            "list",
            "every GPU and MIG device, with its health",
            runs="nodeagent.cli.gpu:show_list",
            description="Asks the running agent; where there is none, or with --gpus, the driver itself.",
            arguments=(*NODE, JSON),
            examples=(Example("nodeagent gpu list --json", "every detail that the driver tells"),),
        ),
        Command(
            "topology",
            "how GPUs reach each other, and which CPUs are near",
            runs="nodeagent.cli.gpu:show_topology",
            description="Asks the running agent; where there is none, or with --gpus, the driver itself.",
            arguments=(*NODE, JSON),
            examples=(Example("nodeagent gpu topology --gpus simulated:dgx-h100", "the matrix of another machine"),),
        ),
        Command(
            "health",
            "the verdict on every device, what to do, and how it may return",
            runs="nodeagent.cli.gpu:show_health",
            description="Only the running agent judges.\nExit code 1: not every device is healthy.",
            arguments=(*NODE, JSON),
        ),
        Command(
            "xids",
            "what the driver's error numbers mean, and what this node makes of them",
            runs="nodeagent.cli.gpu:show_xids",
            arguments=(
                *NODE,
                JSON,
                Argument(("number",), "explain this one", metavar="XID", nargs="?", parse=parse_xid),
            ),
            examples=(Example("nodeagent gpu xids 79", "explain one"),),
        ),
        Command(
            "prefer",
            "which devices a pod would be given, with the score and the runner-up",
            runs="nodeagent.cli.allocations:prefer",
            description="Decides as for the kubelet, from the inventory and the settings in force here.",
            arguments=(
                *NODE,
                JSON,
                Argument(("--size",), "how many devices the pod asks for", metavar="N", default=1, parse=int),
                Argument(("--available",), "those that are free, by index or UUID (default: all)", metavar="A,B"),
                Argument(("--must-include",), "those that must be among them", metavar="A,B"),
                Argument(("--resource",), "the resource (default: the first by name)", metavar="NAME"),
            ),
            examples=(
                Example("nodeagent gpu prefer --available 0,1,2,5,6,7 --size 4", "why these four"),
                Example("nodeagent gpu prefer --size 2 --gpus simulated:a100-40gb", "on a node you do not have"),
            ),
        ),
        Command(
            "holders",
            "which processes hold the device files, by pid, command and pod",
            runs="nodeagent.cli.gpu:show_holders",
            description="Reads /proc and needs no driver. As root it sees every process, else only your own.",
            arguments=(*NODE, JSON),
        ),
        Command(
            "clear",
            "take a GPU back into service that only a person can clear",
            runs="nodeagent.cli.gpu:clear",
            description="Who, when and why are written down. What is still bad at the next look is found again.",
            arguments=(
                CONFIG,
                SET,
                Argument(("gpu",), "index, UUID or PCI address", metavar="GPU"),
                Argument(("--reason",), "why; it is required", metavar="TEXT"),
            ),
            examples=(Example("nodeagent gpu clear 3 --reason 'board replaced'", "after service"),),
        ),
    ),
)

METRICS = Command(
    "metrics",
    "which metrics there are, and which are missing and why",
    subcommands=(
        Command(
            "list",
            "every field of DCGM exporter: shown, available, or missing with the reason",
            runs="nodeagent.cli.metrics:list_metrics",
            description="Shows what `metrics.fields_file` makes of the list; lines that cannot be used go to stderr.",
            arguments=(
                *NODE,
                JSON,
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
    subcommands=(
        Command(
            "labels",
            "the labels that this node should have, one key=value a line",
            runs="nodeagent.cli.labels:render",
            arguments=(*NODE, JSON),
            examples=(
                Example("nodeagent render labels", "this node's labels"),
                Example("nodeagent render labels --gpus simulated:dgx-h100", "those of a made-up node"),
            ),
        ),
        Command(
            "metrics",
            "the GPU series of /metrics, from two samples taken now",
            runs="nodeagent.cli.metrics:render",
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


TOP = Command(
    "top",
    "GPUs, pods and processes at work, again every two seconds",
    runs="nodeagent.cli.top:run",
    description="Asks the running agent. Commands and pods of processes are read from this host.",
    arguments=(*NODE, JSON, Argument(("--once",), "print it once and exit", action="store_true")),
    examples=(
        Example("nodeagent top", "over ssh, until Ctrl-C"),
        Example("nodeagent top --once", "for a ticket"),
    ),
)


LABELS = Command(
    "labels",
    "the labels of this node: wanted, in place, where, since when",
    runs="nodeagent.cli.labels:show",
    description="Asks the running agent. Exit code 1: not every label is as wanted.",
    arguments=(*NODE, JSON),
    examples=(Example("nodeagent labels", "what the node is called, and what is in the way"),),
)


UNINSTALL = Command(
    "uninstall",
    "leave this node as it was before the agent came",
    runs="nodeagent.cli.uninstall:run",
    description=(
        "Restores the container runtime's files; removes specifications, markers, dead sockets, labels and state.\n"
        "The agent must be stopped. Packages, units and configuration files stay: who put them there removes them.\n"
        "Exit code 1: a step failed; mend what it names and run the command again."
    ),
    arguments=(
        *NODE,
        JSON,
        Argument(("--dry-run",), "only say what would be done", action="store_true"),
        Argument(("--keep-state",), "keep the allocation journal and the verdicts on GPUs", action="store_true"),
    ),
    examples=(
        Example("nodeagent uninstall --dry-run", "what there is to undo"),
        Example("nodeagent uninstall --keep-state", "before a newer version is installed another way"),
    ),
)

ROOT = Command(
    "nodeagent",
    "one process per GPU node: driver, CDI, device plugin, labels, metrics, health, recovery",
    description=("Start with `nodeagent simulate` to see it without a GPU, and `nodeagent status` on a node."),
    subcommands=(
        RUN,
        SIMULATE,
        STATUS,
        DOCTOR,
        TOP,
        GPU,
        ALLOCATIONS,
        CDI,
        RUNTIME,
        LABELS,
        METRICS,
        RENDER,
        CONFIGURATION,
        RELOAD,
        RELEASE,
        RESUME,
        COMPLETION,
        UNINSTALL,
        VERSION,
    ),
)
