"""Commands about devices of other vendors."""

from nodeagent.cli.commands.shared import ASKING, NODE, RECORD, TABLE
from nodeagent.cli.frame.command import Command, Example
from nodeagent.cli.frame.exit_codes import ExitCode

DEVICES = Command(
    "devices",
    "devices of other kinds than NVIDIA's GPUs: what each class has, whether it works, and who has it",
    runs="nodeagent.cli.devices.commands:show",
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
            runs="nodeagent.cli.devices.commands:discover",
            of_machine=True,
            description="Looks at /dev and sysfs itself; asks no agent and writes nothing.",
            arguments=(*NODE, *RECORD),
            examples=(Example("nodeagent devices discover", "what to write below `devices`"),),
        ),
    ),
)
