"""Commands about the devices of pods: fractions, claims, MPS daemons, devices of other classes."""

from nodeagent.cli.commands.shared import ASKING, NODE, RECORD, TABLE, command_order
from nodeagent.cli.frame.command import Argument, Command, Example
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.frame.values import parse_cores, parse_size
from nodeagent.model.orders import SET_PART

_POD = Argument(("pod",), "the pod; NAME alone means it in every namespace", metavar="NAMESPACE/NAME")

FRACTIONS = Command(
    "fractions",
    "parts of GPUs: who has which, how that was decided, other limits",
    examples=(Example("nodeagent fractions list", "every container with a part of a GPU"),),
    subcommands=(
        Command(
            "list",
            "every container with a part of a GPU, and those that wait for one",
            runs="nodeagent.cli.gpu.fractions:show",
            exits=(ExitCode.UNREACHABLE,),
            description=(
                "Asks the running agent. CORES are hundredths of a GPU's compute. Cores and memory are shown as used\n"
                "and promised, with - where nothing tells what is used."
            ),
            arguments=(*ASKING, *TABLE),
            examples=(Example("nodeagent fractions list -o wide", "with the reason for each"),),
        ),
        Command(
            "explain",
            "how the GPUs of a pod were chosen, or why it waits",
            runs="nodeagent.cli.gpu.fractions:explain",
            exits=(ExitCode.UNREACHABLE,),
            description="Asks the running agent: what was looked at, in its order, with what spoke for and against it.",
            arguments=(*ASKING, *RECORD, _POD),
            examples=(Example("nodeagent fractions explain ml/train-0", "why this GPU, or why none"),),
        ),
        command_order(
            "set",
            SET_PART,
            _POD,
            Argument(("--container",), "which, where the pod has several with parts", metavar="NAME"),
            Argument(("--cores",), "hundredths of a GPU's compute, 1 to 99", metavar="N", parse=parse_cores),
            Argument(
                ("--memory",),
                "of the GPU, such as 8GiB or 512Mi",
                metavar="SIZE",
                dest="memory_bytes",
                parse=parse_size,
            ),
            description=(
                "Within what its GPU has left. The container sees it at its next allocation, and keeps it when it is\n"
                "started again; what it uses already is not taken away. Who and when are logged."
            ),
            examples=(Example("nodeagent fractions set ml/train-0 --cores 50 --memory 8GiB", "while it runs"),),
        ),
    ),
)


CLAIMS = Command(
    "claims",
    "claims of dynamic resource allocation: which are ready, for whom, and which were refused",
    runs="nodeagent.cli.node.claims:show",
    exits=(ExitCode.UNREACHABLE,),
    description=(
        "Asks the running agent. A claim is ready when the journal holds it and the container runtime knows its\n"
        "devices; PODS are the containers that have it by the kubelet's list, else the pods that it is reserved for."
    ),
    arguments=(*ASKING, *TABLE),
    examples=(Example("nodeagent claims", "every claim on this node"),),
    subcommands=(
        Command(
            "explain",
            "what a claim got and how it is shared, or why it is refused",
            runs="nodeagent.cli.node.claims:explain",
            exits=(ExitCode.UNREACHABLE,),
            description="Asks the running agent.",
            arguments=(
                *ASKING,
                *RECORD,
                Argument(("name",), "the claim; its name alone means it in every namespace", metavar="NAMESPACE/NAME"),
            ),
            examples=(Example("nodeagent claims explain ml/train-0-gpu", "its devices, pods and configuration"),),
        ),
        Command(
            "slices",
            "the devices that schedulers are told of, what keeps pods away from them, and which claims have them",
            runs="nodeagent.cli.node.slices:show",
            exits=(ExitCode.UNREACHABLE,),
            description=(
                "Asks the running agent. The order is that in which schedulers take devices; with --json every\n"
                "attribute, capacity and counter is told as it was written."
            ),
            arguments=(*ASKING, *TABLE),
            examples=(Example("nodeagent claims slices", "what a claim could be given on this node"),),
        ),
    ),
)


MPS = Command(
    "mps",
    "daemons by which several processes use a GPU at once: how they stand, their limits, who works through them",
    runs="nodeagent.cli.gpu.mps:show",
    exits=(ExitCode.UNWELL, ExitCode.UNREACHABLE),
    description=(
        "Asks the running agent, which looks at servers and clients each `mps.look_seconds`. LIMITS are those of each\n"
        "client. Exit code 1: a daemon is not ready and should be."
    ),
    arguments=(*ASKING, *TABLE),
    examples=(
        Example("nodeagent mps", "each daemon, and below the table each client with its pod"),
        Example("nodeagent mps -o wide", "with process ids, directories and what went wrong last"),
    ),
)


DEVICES = Command(
    "devices",
    "devices of the configured classes: what each class has, whether it works, and who has it",
    runs="nodeagent.cli.node.devices:show",
    exits=(ExitCode.UNWELL, ExitCode.UNREACHABLE),
    description=(
        "Asks the running agent. Classes are described in the section `devices` of the configuration.\n"
        "Exit code 1: a device does not work, or a node is given to nobody."
    ),
    arguments=(*ASKING, *TABLE),
    examples=(
        Example("nodeagent devices", "what there is now"),
        Example("nodeagent devices --json", "the same for scripts"),
    ),
    subcommands=(
        Command(
            "discover",
            "which classes this host could have, ready to paste",
            runs="nodeagent.cli.node.devices:discover",
            of_machine=True,
            description="Looks at /dev and sysfs itself; asks no agent and writes nothing.",
            arguments=(*NODE, *RECORD),
            examples=(Example("nodeagent devices discover", "what to write below `devices`"),),
        ),
    ),
)
