"""Commands about single GPUs: identity, allocation modes, and acts on a GPU."""

from nodeagent.cli.commands.shared import (
    ASKING,
    GPU,
    POD,
    RECORD,
    TABLE,
    command_order,
)
from nodeagent.cli.frame.command import Argument, Command, Example
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.frame.values import parse_duration, parse_xid
from nodeagent.model.orders import CLEAR_GPU, CORDON_GPU, DOOR_WORDS, FORGET_GPU, SET_DOOR, UNCORDON_GPU
from nodeagent.model.proof import ProofStage

GPUS = Command(
    "gpu",
    "the GPUs of this node: list, topology, health, holders, doors, and the catalogue of XIDs",
    examples=(Example("nodeagent gpu list", "every GPU and who says what of it"),),
    subcommands=(
        Command(
            "list",
            "every GPU and MIG device, with its health",
            runs="nodeagent.cli.gpu.commands:show_list",
            exits=(ExitCode.NO_DRIVER,),
            description="Asks the running agent; where there is none, or with --gpus, the driver itself.",
            arguments=(*ASKING, *TABLE, GPU, POD),
            examples=(
                Example("nodeagent gpu list --json", "every detail that the driver tells"),
                Example("nodeagent gpu list -o wide --pod ml/train-0", "what a pod was given"),
                Example("nodeagent gpu list -o name", "UUIDs, for a loop in a shell"),
            ),
        ),
        Command(
            "topology",
            "how GPUs reach each other, and which CPUs are near",
            runs="nodeagent.cli.gpu.commands:show_topology",
            exits=(ExitCode.NO_DRIVER,),
            description="Asks the running agent; where there is none, or with --gpus, the driver itself.",
            arguments=(*ASKING, *TABLE),
            examples=(Example("nodeagent gpu topology --gpus simulated:dgx-h100", "the matrix of another machine"),),
        ),
        Command(
            "health",
            "the verdict on every device, what to do, and how it may return",
            runs="nodeagent.cli.gpu.commands:show_health",
            exits=(
                ExitCode.UNWELL,
                ExitCode.UNREACHABLE,
            ),
            description="Only the running agent judges.\nExit code 1: not every device is healthy, "
            "one that should be there is gone, or what is known of them is old.",
            arguments=(*ASKING, *TABLE, GPU, POD),
            examples=(Example("nodeagent gpu health", "what each device needs before it is offered again"),),
        ),
        Command(
            "xids",
            "what the driver's error numbers mean, and what this node makes of them",
            runs="nodeagent.cli.gpu.commands:show_xids",
            arguments=(
                *ASKING,
                *TABLE,
                Argument(("number",), "explain this one", metavar="XID", nargs="?", parse=parse_xid),
            ),
            examples=(Example("nodeagent gpu xids 79", "explain one"),),
        ),
        Command(
            "prefer",
            "which devices a pod would be given, with the score and the runner-up",
            runs="nodeagent.cli.node.allocations:prefer",
            exits=(ExitCode.NO_DRIVER,),
            description=(
                "Decides as for the kubelet, from the inventory and the settings in force here.\n"
                "Where an agent runs, of the devices that are free and healthy now."
            ),
            arguments=(
                *ASKING,
                *RECORD,
                Argument(("--size",), "how many devices the pod asks for", metavar="N", default=1, parse=int),
                Argument(
                    ("--available",), "those that are free, by index or UUID (default: those that are)", metavar="A,B"
                ),
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
            runs="nodeagent.cli.gpu.commands:show_holders",
            of_machine=True,
            description="Reads /proc and needs no driver. As root it sees every process, else only your own.",
            arguments=(*ASKING, *TABLE, POD),
            examples=(Example("nodeagent gpu holders", "who keeps the driver from being unloaded"),),
        ),
        Command(
            "validate",
            "whether the container of this very command can use the GPU that it was given",
            runs="nodeagent.cli.gpu.prove:validate",
            exits=(ExitCode.UNWELL,),
            description=(
                "Looks for device nodes and libraries as a program of the container does, and computes with CUDA.\n"
                "The pods of driver.workload_validation run it; it asks no agent.\n"
                "Exit code 1: the GPU cannot be used, and standard error says why."
            ),
            examples=(Example("nodeagent gpu validate", "in a container with a GPU"),),
        ),
        Command(
            "prove",
            "whether a GPU computes, copies and remembers as it should, and as fast as the others",
            runs="nodeagent.cli.gpu.prove:run",
            exits=(ExitCode.UNWELL, ExitCode.NO_DRIVER, ExitCode.UNREACHABLE),
            description=(
                "Uses the GPU itself, in a process that is killed if it hangs, and only while nobody else does: a\n"
                "GPU in use is not tested, and the table says who has it. Cordon the GPU first, lest a pod come.\n"
                "Idle GPUs of the same model are measured, too, for their speeds.\n"
                "Exit code 1: a GPU failed; 4: no GPU failed, and a GPU could not be tested."
            ),
            arguments=(
                *ASKING,
                *TABLE,
                Argument(("gpu",), "index, UUID or PCI address; all for every GPU", metavar="GPU"),
                Argument(
                    ("--stage",),
                    "instant: the driver's readings; quick: 1 to 2 s; proof: all memory and peers, 5 s; soak: minutes",
                    choices=tuple(ProofStage),
                    default=ProofStage.QUICK,
                ),
                Argument(("--floors",), "a file of least speeds by model, before those known", metavar="FILE"),
            ),
            examples=(
                Example("nodeagent gpu prove 3", "after a reset"),
                Example("nodeagent gpu prove all --stage proof", "before a node takes pods"),
                Example("nodeagent gpu prove 3 --stage soak --json", "with every reading, for a ticket"),
            ),
        ),
        command_order(
            "clear",
            CLEAR_GPU,
            Argument(("gpu",), "index, UUID or PCI address", metavar="GPU"),
            Argument(("--reason",), "why; it is required", metavar="TEXT", default=""),
            description="Who, when and why are written down. What is still bad at the next look is found again.",
            examples=(Example("nodeagent gpu clear 3 --reason 'board replaced'", "after service"),),
        ),
        Command(
            "doors",
            "by which door each GPU is given out: whole, in fractions, by claims, or not at all",
            runs="nodeagent.cli.gpu.allocation_modes:show",
            exits=(ExitCode.UNREACHABLE,),
            description="Asks the running agent. WAITS FOR names who must be gone before a door is as wanted.",
            arguments=(*ASKING, *TABLE, GPU),
            examples=(Example("nodeagent gpu doors", "what `doors.rules` and people have chosen"),),
        ),
        command_order(
            "set-door",
            SET_DOOR,
            Argument(("gpu",), "index, UUID or PCI address", metavar="GPU"),
            Argument(
                ("door",),
                "whole, fractions or claims (where they are on), none, or configured",
                choices=DOOR_WORDS,
            ),
            Argument(
                ("--wait",),
                "after the other words: until the door is as wanted, or for so long, with a line for each change",
                metavar="DURATION",
                nargs="?",
                default=0.0,
                parse=parse_duration,
            ),
            runs="nodeagent.cli.gpu.allocation_modes:choose",
            exits=(ExitCode.UNWELL,),
            description=(
                "The choice outranks `doors.rules` and is remembered over restarts, until `configured` takes it back.\n"
                "Pods keep what they have: the door changes as soon as nobody has the GPU, and with `doors.change`\n"
                "at drain nobody new gets it until then. Exit code 1: with --wait DURATION, somebody still had it."
            ),
            examples=(
                Example("nodeagent gpu set-door 3 none --wait", "before the board is taken out"),
                Example("nodeagent gpu set-door 3 configured", "afterwards"),
            ),
        ),
        command_order(
            "cordon",
            CORDON_GPU,
            Argument(("gpu",), "index, UUID or PCI address", metavar="GPU"),
            Argument(("--reason",), "why; it is required", metavar="TEXT", default=""),
            Argument(
                ("--until",),
                "the end, in the form of RFC 3339, such as 2031-05-01T08:00:00Z (default: none)",
                metavar="TIME",
                default="",
            ),
            description=(
                "The GPU keeps its door, and `nodeagent gpu doors` names the pods that the cordon waits for.\n"
                "It is remembered over restarts, and ends at the time given. The node's annotation\n"
                "nodeagent.io/gpu-cordon does the same from the cluster."
            ),
            examples=(
                Example("nodeagent gpu cordon 3 --reason 'fan is loud'", "until it is taken back"),
                Example("nodeagent gpu cordon 3 --reason service --until 2031-05-01T08:00:00Z", "for a while"),
            ),
        ),
        command_order(
            "uncordon",
            UNCORDON_GPU,
            Argument(("gpu",), "index, UUID or PCI address", metavar="GPU"),
            description="The brake's cordon goes too. Cordons by annotations stay: each source takes back its own.",
            examples=(Example("nodeagent gpu uncordon 3", "after the service"),),
        ),
        command_order(
            "forget",
            FORGET_GPU,
            Argument(("gpu",), "UUID, PCI address, or the index that it had", metavar="GPU"),
            description="It is no longer missed, until it comes back and vanishes again. Who and when are logged.",
            examples=(Example("nodeagent gpu forget 3", "after it was taken out"),),
        ),
    ),
)
