"""The commands about claims of dynamic resource allocation."""

from nodeagent.cli.commands.shared import ASKING, RECORD, TABLE
from nodeagent.cli.frame.command import Argument, Command, Example
from nodeagent.cli.frame.exit_codes import ExitCode

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
