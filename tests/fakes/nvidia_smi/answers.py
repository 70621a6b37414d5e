"""The answers of the stand-in for `nvidia-smi -r`, each with the agent's class for the answer, and its source.

`tests/contract/nvidia_smi` compares each answer with its source in the driver packages of 535 and 550.
"""

from typing import Final

from msgspec import Struct

from nodeagent.model.repairs import Outcome

PROGRAM: Final = "a text in nvidia-smi of 535 and 550"
MANUAL: Final = "the manual's list of exit codes"
RUN: Final = "the program itself, run without a driver, or without its library"
NVML: Final = "nvml.h: NVML_ERROR_IN_USE"
MADE_UP: Final = "an unkillable wait in the driver, as far as a script can wait"
PEERS: Final = (1, 2, 3)


class FakeAnswer(Struct, frozen=True):
    """An exit code with its text."""

    code: int
    said: str
    outcome: Outcome | None
    source: str
    piece: str = ""
    """The part of the text that the real program has in its file."""
    manual: str = ""
    """The words of the manual page for the exit code."""
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
    "strange": FakeAnswer(
        255,
        "Error encountered during reset of GPU 0: Unknown Error\n",
        Outcome.UNKNOWN,
        PROGRAM,
        "Error encountered during reset of GPU",
    ),
    "bad-argument": FakeAnswer(
        2,
        "Option --nonsense is not recognized.\n",
        Outcome.STOPPED,
        MANUAL,
        "is not recognized.",
        manual="A supplied argument or flag is invalid",
    ),
    "unsupported": FakeAnswer(
        3, "", Outcome.UNSUPPORTED, MANUAL, manual="The requested operation is not available on target device"
    ),
    "permission": FakeAnswer(
        4, "", Outcome.STOPPED, MANUAL, manual="The current user does not have permission to access this device"
    ),
    "not-found": FakeAnswer(
        6,
        "No devices were found\n",
        Outcome.FAILED,
        MANUAL,
        "No devices were found",
        manual="A query to find an object was unsuccessful",
    ),
    "power": FakeAnswer(
        8, "", Outcome.BROKEN, MANUAL, manual="A device's external power cables are not properly attached"
    ),
    "no-driver": FakeAnswer(
        9,
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
        " Make sure that the latest NVIDIA driver is installed and running.\n\n",
        Outcome.STOPPED,
        RUN,
    ),
    "interrupt": FakeAnswer(
        10, "", Outcome.FAILED, MANUAL, manual="NVIDIA Kernel detected an interrupt issue with a GPU"
    ),
    "no-library": FakeAnswer(
        12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", Outcome.STOPPED, RUN
    ),
    "no-function": FakeAnswer(
        13, "", Outcome.UNSUPPORTED, MANUAL, manual="Local version of NVML doesn't implement this function"
    ),
    "inforom": FakeAnswer(14, "", Outcome.BROKEN, MANUAL, manual="infoROM is corrupted"),
    "off-the-bus": FakeAnswer(15, "", Outcome.FAILED, MANUAL, manual="The GPU has fallen off the bus"),
    "nvml-in-use": FakeAnswer(19, "", Outcome.IN_USE, NVML),
    "hang": FakeAnswer(0, "", Outcome.UNKNOWN, MADE_UP, hangs=True),
}
