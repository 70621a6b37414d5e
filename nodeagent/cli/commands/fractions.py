"""The commands about parts of GPUs."""

from nodeagent.cli.commands.shared import ASKING, RECORD, TABLE, command_order
from nodeagent.cli.frame.command import Argument, Command, Example
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.parts.arguments import parse_cores, parse_size
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
            runs="nodeagent.cli.parts.commands:show",
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
            runs="nodeagent.cli.parts.commands:explain",
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
