"""Commands that run the agent or control a running agent."""

from nodeagent.cli.commands.shared import ASKING, CONFIG, NODE, RECORD, SET, command_order
from nodeagent.cli.frame.command import Argument, Command, Example
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.frame.values import parse_duration
from nodeagent.model import orders

RUN = Command(
    "run",
    "run the agent on this node, in the foreground",
    runs="nodeagent.cli.agent.run:run",
    exits=(
        ExitCode.NO_DRIVER,
        ExitCode.COMPONENT_FAILED,
        ExitCode.STOP_OVERRAN,
    ),
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
        Argument(
            ("--await-gpu",),
            "without an NVIDIA GPU wait for one: ready, with next to nothing loaded, no label and no condition",
            action="store_true",
        ),
        Argument(
            ("--wait",),
            "wait so long for another nodeagent on this node to leave, instead of exiting with 2 at once",
            metavar="DURATION",
            default=0.0,
            parse=parse_duration,
        ),
        Argument(
            ("--standby",),
            "beside another nodeagent be ready, and take over when it leaves; after --wait say so, and wait on",
            action="store_true",
        ),
    ),
    examples=(
        Example("nodeagent run", "as the systemd unit does"),
        Example("nodeagent run --wait 20s", "another nodeagent may still be ending"),
        Example("nodeagent run --standby --wait 2m --await-gpu", "as the DaemonSet does"),
        Example("nodeagent run --set http.listen=0.0.0.0:9400", "let Prometheus on another machine scrape it"),
        Example("nodeagent run --gpus simulated:dgx-h100", "made-up GPUs, real kubelet"),
    ),
)


EXTENDER = Command(
    "extender",
    "run the scheduler's extender for parts of GPUs: one or several in a cluster, none on a node",
    runs="nodeagent.cli.agent.extender:run",
    description=(
        "Runs until SIGTERM. It watches all nodes and pods and tells kube-scheduler where a pod with parts of GPUs\n"
        "has room; it needs an API server, no GPU and no root. docs/extender.md says how to switch it on and off."
    ),
    exits=(ExitCode.STOP_OVERRAN,),
    arguments=(CONFIG, SET),
    examples=(
        Example("nodeagent extender", "as its Deployment does"),
        Example("nodeagent extender --set kubernetes.kubeconfig=/etc/kubernetes/admin.conf", "beside a kube-scheduler"),
    ),
)


FAULT = command_order(
    "fault",
    orders.INJECT_FAULT,
    Argument(
        ("fault",),
        "which fault",
        metavar="FAULT",
        nargs="?",
        default="help",
        offers="nodeagent_sim.command:list_faults",
    ),
    Argument(("arguments",), "its arguments", metavar="ARGUMENT", nargs="*"),
    runs="nodeagent_sim.command:inject",
    description="Talks to the simulation over its admin socket. Without arguments it lists the faults there are.",
    examples=(
        Example("nodeagent simulate fault", "what can be broken"),
        Example("nodeagent simulate fault xid 79 3", "GPU 3 falls off the bus"),
        Example("nodeagent simulate fault clear", "all is well again"),
    ),
)


SIMULATE = Command(
    "simulate",
    "run the agent on a made-up GPU node with a stand-in kubelet: no hardware, no cluster, no root",
    runs="nodeagent_sim.command:run",
    exits=(
        ExitCode.COMPONENT_FAILED,
        ExitCode.STOP_OVERRAN,
    ),
    description=(
        "Everything lives in a temporary directory of its own and is gone afterwards. Several may run side by side:\n"
        "each takes the next free number as its name, and the next free port unless http.listen is set."
    ),
    arguments=(
        CONFIG,
        SET,
        Argument(
            ("--simulation",),
            "its name, by which other commands choose among several (default: the first free number)",
            metavar="NAME",
        ),
        Argument(
            ("--profile",),
            "which node to make up; `nodeagent simulate --profile help` lists them",
            metavar="PROFILE",
            default="dgx-h100",
            offers="nodeagent_sim.command:list_nodes",
        ),
        Argument(("--pods",), "how many pods come and go at a time", metavar="N", default=6, parse=int),
        Argument(("--for",), "stop by itself after so long", metavar="DURATION", parse=parse_duration),
        Argument(("--seed",), "same seed, same load", metavar="N", default=1, parse=int),
        Argument(
            ("--keep-state",),
            "go on from what the last one left that was told to keep it, and leave it too",
            action="store_true",
        ),
    ),
    examples=(
        Example("nodeagent simulate", "a DGX H100 with its status page on http://127.0.0.1:9400/"),
        Example("nodeagent simulate --profile a100-80gb-mig --for 30s", "MIG devices, for half a minute"),
        Example("nodeagent simulate --profile fractions", "four GPUs whole and four in parts, with pods on both"),
        Example(
            "nodeagent simulate --simulation mine --profile t4", "under a name: nodeagent status --simulation mine"
        ),
    ),
    subcommands=(FAULT,),
)


RELOAD = command_order(
    "reload",
    orders.RELOAD,
    examples=(Example("nodeagent reload", "after an edit that `nodeagent config check` likes; SIGHUP with an answer"),),
)


RELEASE = command_order(
    "release",
    orders.RELEASE,
    Argument(
        ("--for",),
        "take it back after so long (driver.release_seconds)",
        metavar="DURATION",
        dest="seconds",
        parse=parse_duration,
    ),
    Argument(("--reason",), "why; shown on every surface", metavar="TEXT"),
    description="Devices keep their last state meanwhile. `nodeagent gpu holders` shows who else holds the driver.",
    examples=(Example("nodeagent release --for 10m --reason 'driver upgrade'", "before `modprobe -r nvidia`"),),
)


DRIVER = Command(
    "driver",
    "upgrades of the driver: whom one would touch, where it stands, and who may hold or end it",
    examples=(Example("nodeagent driver plan", "before anything is touched"),),
    subcommands=(
        Command(
            "plan",
            "whom an upgrade of the driver would touch, and what keeps it back",
            runs="nodeagent.cli.node.driver:plan",
            exits=(ExitCode.UNREACHABLE,),
            description=(
                "Asks the running agent; nothing is touched. The pods are those that have a GPU now.\n"
                "KEPT are pods that a disruption budget would not let go now: the API server rehearses each eviction.\n"
                "LAST TIME is how long the last upgrade took on this node, from the closing of the GPUs to the proof."
            ),
            arguments=(*ASKING, *RECORD),
            examples=(Example("nodeagent driver plan --json", "the same for scripts"),),
        ),
        Command(
            "status",
            "the upgrade of the driver under way, and the last ones",
            runs="nodeagent.cli.node.driver:show",
            exits=(ExitCode.UNREACHABLE,),
            description="Asks the running agent: the phase, what is waited for, and who was put aside meanwhile.",
            arguments=(*ASKING, *RECORD),
            examples=(Example("nodeagent driver status", "what is waited for"),),
        ),
        command_order(
            "pause",
            orders.PAUSE_UPGRADE,
            description="What has begun goes on to its end; the GPUs stay closed to new pods.",
            examples=(Example("nodeagent driver pause", "until `nodeagent driver resume`"),),
        ),
        command_order(
            "resume",
            orders.RESUME_UPGRADE,
            examples=(Example("nodeagent driver resume", "after a pause, or once what failed is mended"),),
        ),
        command_order(
            "abort",
            orders.ABORT_UPGRADE,
            description="Once modules are out the driver that is installed is loaded again; nobody is left paused.",
            examples=(Example("nodeagent driver abort", "the node serves pods with the driver that it has"),),
        ),
    ),
)


RESUME = command_order(
    "resume",
    orders.RESUME,
    examples=(Example("nodeagent resume", "after `modprobe nvidia`; it happens by itself at the end of the release"),),
)
