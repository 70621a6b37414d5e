"""Commands about the whole node: state, GPUs, holders."""

from nodeagent.cli.commands.shared import (
    ASKING,
    CONFIG,
    GPU,
    POD,
    RECORD,
    SET,
    TABLE,
    TABLES,
)
from nodeagent.cli.frame.command import Argument, Command, Example
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.frame.values import parse_duration

STATUS = Command(
    "status",
    "this node in one look: what is wrong, since when, and what to do",
    runs="nodeagent.cli.node.status:run",
    exits=(
        ExitCode.UNWELL,
        ExitCode.UNREACHABLE,
    ),
    description=(
        "Asks the running agent, or the running simulation where this machine has no agent of its own.\n"
        "Exit code 1: not all is well."
    ),
    arguments=(
        *ASKING,
        *TABLES,
        Argument(("--watch", "-w"), "again every two seconds, until interrupted", action="store_true"),
        Argument(("--all", "-a"), "every condition, where otherwise many of one kind are counted", action="store_true"),
    ),
    examples=(
        Example("nodeagent status", "the node now"),
        Example("nodeagent status --watch", "while you mend it"),
        Example("nodeagent status -o wide", "clocks, what holds them back, fan, ECC, PCIe and NVLink traffic too"),
        Example("nodeagent status --json", "the same for scripts"),
    ),
)


DOCTOR = Command(
    "doctor",
    "check everything by itself, also where no agent runs, and say what to do",
    runs="nodeagent.cli.doctor.command:run",
    exits=(
        ExitCode.UNWELL,
        ExitCode.CHECK_FAILED,
    ),
    description=(
        "One line per check: ok, warn or fail, what was found, and a command to paste.\n"
        "Exit code 6: a check failed; 1: there are warnings. Nothing on the node is changed."
    ),
    arguments=(
        *ASKING,
        *RECORD,
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


ALLOCATIONS = Command(
    "allocations",
    "which pod and container holds which device since when",
    runs="nodeagent.cli.node.allocations:run",
    exits=(ExitCode.UNREACHABLE,),
    description=(
        "Asks the running agent, whose journal holds what the kubelet was told.\n"
        "With --history it shows the receipts of the last month: who held which GPUs, and the faults of these\n"
        "GPUs until then, each with its number, how often it came, and how long before the end it came last.\n"
        "BLAMED is hardware where a fault means that a GPU or the node failed, application where a fault means\n"
        "that the pod's own program did, and none where no number says so. The agent does not know how a pod\n"
        "ended: compare the times."
    ),
    arguments=(
        *ASKING,
        *TABLE,
        GPU,
        POD,
        Argument(
            ("--history",), "those that have ended, with the faults of their GPUs, newest first", action="store_true"
        ),
    ),
    examples=(
        Example("nodeagent allocations", "who holds what now"),
        Example("nodeagent allocations --history --pod ml/train-0", "whether a GPU failed under a pod that is gone"),
        Example(
            "nodeagent allocations --history --json", "who held what, with all that is known of faults, for scripts"
        ),
        Example("nodeagent allocations --gpu 3", "who holds parts of one GPU"),
    ),
)


AUDIT = Command(
    "audit",
    "what the agent changed outside itself: the cluster's objects, runtime files, services, GPUs, processes; repairs",
    runs="nodeagent.cli.node.audit:run",
    description=(
        "Reads the audit log in node.state_dir, which outlives the agent; the newest change is last.\n"
        "It has changes that failed, too, but neither events nor the agent's own files, and is bounded to 8 MiB."
    ),
    arguments=(
        CONFIG,
        SET,
        *TABLE,
        Argument(("--since",), "only changes of this last while, such as 1h", metavar="DURATION", parse=parse_duration),
        Argument(
            ("--of",),
            "only changes of these",
            choices=("kubernetes", "file", "service", "gpu", "process", "module", "repair", "driver"),
        ),
        Argument(("--last",), "so many changes (default: 100)", metavar="N", default=100, parse=int),
    ),
    examples=(
        Example("nodeagent audit --since 1h", "what was changed in the last hour"),
        Example("nodeagent audit --of kubernetes -o wide", "what was written to the API server, with its content"),
        Example("nodeagent audit --json", "each change for scripts"),
    ),
)


_SESSION = Argument(("name",), "the session's number, or a GPU of it by index, UUID or PCI address", metavar="SESSION")

REPAIRS = Command(
    "repairs",
    "fault sessions of GPUs: what a repair would do, and why it is not done",
    examples=(Example("nodeagent repairs list", "every session, the open ones first"),),
    subcommands=(
        Command(
            "list",
            "every fault session, the open ones first, with what would be done",
            runs="nodeagent.cli.node.repairs:show",
            exits=(ExitCode.UNREACHABLE,),
            description=(
                "Asks the running agent. RUNG is the place on the ladder of repairs; PLAN is what would be done next.\n"
                "Closed sessions are remembered for seven days."
            ),
            arguments=(*ASKING, *TABLE),
            examples=(Example("nodeagent repairs list --json", "the same for scripts"),),
        ),
        Command(
            "explain",
            "a session's faults, attempts and plan",
            runs="nodeagent.cli.node.repairs:explain",
            exits=(ExitCode.UNREACHABLE,),
            description="Asks the running agent. Of a GPU without an open session the newest closed one is shown.",
            arguments=(*ASKING, *RECORD, _SESSION),
            examples=(
                Example("nodeagent repairs explain 12", "why it was opened, and why it stands where it does"),
                Example("nodeagent repairs explain 3", "the session of GPU 3, where no session has that number"),
            ),
        ),
        Command(
            "why-not",
            "why nothing is done about a GPU",
            runs="nodeagent.cli.node.repairs:why_not",
            exits=(ExitCode.UNREACHABLE,),
            description="Asks the running agent: what keeps the next act back, or why the GPU has no session.",
            arguments=(*ASKING, *RECORD, Argument(("gpu",), "the GPU: index, UUID or PCI address", metavar="GPU")),
            examples=(Example("nodeagent repairs why-not 3", "each reason, a line each"),),
        ),
    ),
)


EVENTS = Command(
    "events",
    "what happened on this node, and what led to what",
    runs="nodeagent.cli.node.events:run",
    exits=(ExitCode.UNREACHABLE,),
    description=(
        "Asks the running agent, which remembers the last few hundred events. What an event led to stands under it,\n"
        "with how long that took: XID, unhealthy, kubelet told, label changed."
    ),
    arguments=(
        *ASKING,
        *RECORD,
        Argument(("--follow", "-f"), "go on with what happens from now on, until interrupted", action="store_true"),
        GPU,
        Argument(("--last",), "so many chains, the newest last (default: 20)", metavar="N", default=20, parse=int),
    ),
    examples=(
        Example("nodeagent events", "what happened lately, the newest last"),
        Example("nodeagent events --gpu 3", "everything about one GPU, and what followed from it"),
        Example("nodeagent events --follow --json", "each event as a line of JSON, for scripts"),
    ),
)


TOP = Command(
    "top",
    "GPUs, pods and processes at work, again every two seconds",
    runs="nodeagent.cli.top.command:run",
    exits=(ExitCode.UNREACHABLE,),
    description=(
        "Asks the running agent. Commands, users and pods of processes are read from this host.\n"
        "On a terminal keys sort (s, S, r), filter (/), scroll (arrows, PgUp, PgDn), switch between GPUs and\n"
        "processes (Tab) and show all readings of a GPU (Enter): clocks and why they are low, fan, ECC, PCIe, NVLink.\n"
        "? lists them, q quits. Where the output is no terminal it is printed once."
    ),
    arguments=(*ASKING, *TABLES, GPU, POD, Argument(("--once",), "print it once and exit", action="store_true")),
    examples=(
        Example("nodeagent top", "over ssh, until q"),
        Example("nodeagent top --pod ml/train-0", "one pod's GPUs and processes"),
        Example("nodeagent top --once", "for a ticket"),
    ),
)
