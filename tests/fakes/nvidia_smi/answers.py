"""The answers of the stand-in for `nvidia-smi -r`, each with the class that the agent gives it and its source."""

from typing import Final

from msgspec import Struct

from nodeagent.model.repairs import Outcome

PROGRAM: Final = "a text in nvidia-smi of 535 and 550"
MANUAL: Final = "the manual's list of exit codes"
PEERS: Final = (1, 2, 3)


class FakeAnswer(Struct, frozen=True):
    """An exit code with its text."""

    code: int
    said: str
    outcome: Outcome | None
    source: str
    piece: str = ""
    """The part of the text that the real program has in its file."""
    hangs: bool = False


ANSWERS: Final[dict[str, FakeAnswer]] = {
    "done": FakeAnswer(
        0, "GPU 00000000:3B:00.0 was successfully reset.\nAll done.\n", None, PROGRAM, "was successfully reset."
    ),
    "in-use": FakeAnswer(
        255,
        "The following GPUs could not be reset:\n  GPU 00000000:3B:00.0: In use by another client\n",
        Outcome.IN_USE,
        PROGRAM,
        "In use by another client",
    ),
    "in-use-process": FakeAnswer(
        255,
        "GPU 00000000:3B:00.0 is currently in use by another process.\n",
        Outcome.IN_USE,
        PROGRAM,
        "is currently in use by another process.",
    ),
    "incomplete": FakeAnswer(
        255,
        "GPU Reset couldn't progress because the specified devices do not meet the reset criterion (e.g. NVLink"
        " connected GPUs must be reset together). Please append the following device indexes to the command line and"
        " retry.\n1, 2, 3\n",
        Outcome.INCOMPLETE,
        PROGRAM,
        "Please append the following device indexes to the command line and retry.",
    ),
    "primary": FakeAnswer(
        255,
        "GPU Reset couldn't run because GPU 00000000:3B:00.0 is the primary GPU.\n",
        Outcome.UNSUPPORTED,
        PROGRAM,
        "is the primary GPU.",
    ),
    "vgpu": FakeAnswer(
        255,
        "GPU Reset couldn't run because GPU 00000000:3B:00.0 is in vGPU mode.\n",
        Outcome.UNSUPPORTED,
        PROGRAM,
        "is in vGPU mode.",
    ),
    "not-supported": FakeAnswer(
        255,
        "Resetting GPU 00000000:3B:00.0 is not supported.\n",
        Outcome.UNSUPPORTED,
        PROGRAM,
        "is not supported.",
    ),
    "unstable": FakeAnswer(
        255,
        "GPU Reset couldn't run due to problem with internal state of GPU 00000000:3B:00.0. Please reboot your"
        " system.\n",
        Outcome.FAILED,
        PROGRAM,
        "Please reboot your system.",
    ),
    "lost-text": FakeAnswer(
        255,
        "GPU is lost.  Reboot the system to recover this GPU\n",
        Outcome.FAILED,
        PROGRAM,
        "Reboot the system to recover this GPU",
    ),
    "strange": FakeAnswer(255, "Error encountered during reset of GPU 0: Unknown Error\n", Outcome.UNKNOWN, PROGRAM),
    "bad-argument": FakeAnswer(2, "Option --nonsense is not recognized.\n", Outcome.STOPPED, MANUAL),
    "unsupported": FakeAnswer(3, "", Outcome.UNSUPPORTED, MANUAL),
    "permission": FakeAnswer(4, "", Outcome.STOPPED, MANUAL),
    "not-found": FakeAnswer(6, "No devices were found\n", Outcome.FAILED, MANUAL),
    "power": FakeAnswer(8, "", Outcome.BROKEN, MANUAL),
    "no-driver": FakeAnswer(
        9,
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        Outcome.STOPPED,
        PROGRAM,
        "couldn't communicate with the NVIDIA driver.",
    ),
    "interrupt": FakeAnswer(10, "", Outcome.FAILED, MANUAL),
    "no-library": FakeAnswer(
        12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", Outcome.STOPPED, PROGRAM
    ),
    "no-function": FakeAnswer(13, "", Outcome.UNSUPPORTED, MANUAL),
    "inforom": FakeAnswer(14, "", Outcome.BROKEN, MANUAL),
    "off-the-bus": FakeAnswer(15, "", Outcome.FAILED, MANUAL),
    "nvml-in-use": FakeAnswer(19, "", Outcome.IN_USE, "NVML's code for a GPU in use"),
    "hang": FakeAnswer(
        0, "", Outcome.UNKNOWN, "an unkillable wait in the driver, as far as a script can wait", hangs=True
    ),
}
