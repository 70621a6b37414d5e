"""Commands about MIG layouts."""

from nodeagent.cli.commands.shared import ASKING, RECORD, TABLE, command_order
from nodeagent.cli.frame.command import Argument, Command, Example
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.frame.values import parse_duration
from nodeagent.model.orders import APPLY_LAYOUT

LAYOUT = Argument(("layout",), "its name: of the configuration, of a file, or such as all-1g.10gb", metavar="LAYOUT")
LAYOUTS = Argument(("--layouts",), "a file of layouts, in place of those that the running agent knows", metavar="FILE")
STEPS = Argument(("--json",), "a JSON document a line, for scripts: with --wait one for each step", action="store_true")

MIG = Command(
    "mig",
    "how GPUs are cut into MIG devices: what there is, what would change, and having it changed",
    examples=(Example("nodeagent mig show", "what each GPU is cut into"),),
    subcommands=(
        Command(
            "show",
            "what each GPU is cut into, and which layout is asked for",
            runs="nodeagent.cli.gpu.mig:show",
            exits=(ExitCode.NO_DRIVER,),
            description="Asks the running agent; where there is none, or with --gpus, the driver itself.",
            arguments=(*ASKING, *TABLE),
            examples=(Example("nodeagent mig show", "also while a change is under way"),),
        ),
        Command(
            "plan",
            "what a layout would change, like a diff",
            runs="nodeagent.cli.gpu.mig:plan",
            exits=(ExitCode.UNWELL, ExitCode.NO_DRIVER),
            description=(
                "Nothing is changed. Layouts are those of the running agent; where there is none, or with --gpus,\n"
                "those of this command's own settings. Exit code 1: the layout cannot be had on these GPUs."
            ),
            arguments=(*ASKING, *RECORD, LAYOUT, LAYOUTS),
            examples=(
                Example("nodeagent mig plan all-balanced", "before you ask for it"),
                Example("nodeagent mig plan all-1g.10gb --gpus simulated:dgx-h100", "for another machine"),
            ),
        ),
        command_order(
            "apply",
            APPLY_LAYOUT,
            Argument(
                ("layout",),
                "its name; without one, the layout that is asked for already",
                metavar="LAYOUT",
                nargs="?",
            ),
            Argument(
                ("--wait",),
                "after the other words: until it is in place, or for so long, with a line for each step",
                metavar="DURATION",
                nargs="?",
                default=0.0,
                parse=parse_duration,
            ),
            STEPS,
            runs="nodeagent.cli.gpu.mig:apply",
            exits=(ExitCode.UNWELL,),
            description=(
                "The agent must have `mig.manage` on. GPUs that are right are not touched; those who use what goes\n"
                "are waited for, or the change is refused, as `mig.when_busy` says. The layout is remembered over\n"
                "restarts. A mode that waits for a boot of the node is told as `rebooting`.\n"
                "Exit code 1: with --wait, it is not in place."
            ),
            examples=(
                Example("nodeagent mig apply all-balanced --wait", "and see each step"),
                Example("nodeagent mig apply all-balanced --json --wait 10m", "the same for a script"),
            ),
        ),
        Command(
            "assert",
            "whether the GPUs are cut as a layout says",
            runs="nodeagent.cli.gpu.mig:check",
            exits=(ExitCode.UNWELL, ExitCode.NO_DRIVER),
            description="Says nothing where they are. Exit code 1: they are not, and a line for each says why.",
            arguments=(*ASKING, *RECORD, LAYOUT, LAYOUTS),
            examples=(Example("nodeagent mig assert all-1g.10gb", "in a script"),),
        ),
        Command(
            "export",
            "the layout that there is now, as a file of layouts",
            runs="nodeagent.cli.gpu.mig:export",
            exits=(ExitCode.NO_DRIVER,),
            description="In the format that mig-parted reads too.",
            arguments=(
                *ASKING,
                *RECORD,
                Argument(
                    ("--name",), "what the layout is called (default: current)", metavar="NAME", default="current"
                ),
            ),
            examples=(Example("nodeagent mig export --name lab", "to have it on other nodes"),),
        ),
    ),
)
