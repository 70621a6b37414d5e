"""What NVML answers where no driver is loaded: the fake without a state, and NVIDIA's library of 535 and 550."""

import shutil

import pytest

from nodeagent.edge.nvml import errors
from tests.contract.libraries import Library

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="the fake is C"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

UNINITIALIZED, DRIVER_NOT_LOADED = 1, 9
AT_ANY_TIME = {"nvmlErrorString", "nvmlInitWithFlags", "nvmlInit_v2", "nvmlShutdown", "nvmlSystemGetNVMLVersion"}
UNKNOWN = "Unknown Error"
WORDS = (
    "Success",
    "Uninitialized",
    "Invalid Argument",
    "Not Supported",
    "Insufficient Permissions",
    "Already Initialized",
    "Not Found",
    "Insufficient Size",
    "Insufficient External Power",
    "Driver Not Loaded",
    "Timeout",
    "Interrupt Request Issue",
    "NVML Shared Library Not Found",
    "Function Not Found",
    "Corrupted infoROM",
    "GPU is lost",
    "GPU requires reset",
    "GPU access blocked by the operating system",
    "Driver/library version mismatch",
    "In use by another client",
    "Insufficient Memory",
    "No data",
    "vGPU ECC not supported",
    "Insufficient Resources",
    "Invalid Frequency",
    "Argument version mismatch",
    "Requested functionality has been deprecated",
    "System is not in ready state",
    "No supported GPUs were found",
    "Resource not in correct state to perform requested operation",
)
"""By code, as 550 says them."""
NEWER_CODES = {"535": range(28, 30)}
"""Codes that came after a library."""


def test_without_a_driver_no_start_succeeds_and_every_end_does(library: Library) -> None:
    """A start that failed leaves nothing to be ended; flags are looked at later, if at all."""
    said = library.ask("start")
    failed = DRIVER_NOT_LOADED
    assert said == {
        "end": [0, 0],
        "start twice": [failed, failed, 0, 0, 0],
        "flags": [failed] * 5,
        "start, end, start": [failed, 0, failed],
    }


@pytest.mark.long
def test_before_a_start_nothing_else_is_answered(library: Library) -> None:
    """Every function that the worker or another client of the fake calls, and whatever the arguments are."""
    said = {name: codes for name, codes in library.ask("before").items() if name not in AT_ANY_TIME}
    there = {name: codes for name, codes in said.items() if codes is not None}
    assert {name: codes for name, codes in there.items() if codes != [UNINITIALIZED] * 3} == {}
    assert len(there) > 120


def test_the_version_of_the_library_is_told_at_any_time(library: Library) -> None:
    said = library.ask("version")
    assert (said["code"], said["enough"]) == (0, 0)
    assert set(said["too little"]) == {errors.INSUFFICIENT_SIZE}
    assert said["nowhere"] == errors.INVALID_ARGUMENT
    major, _, driver = said["text"].partition(".")
    assert major.isdecimal()
    assert all(part.isdecimal() for part in driver.split("."))


def test_every_code_has_the_same_words(library: Library) -> None:
    """A code that a library does not know is an unknown error."""
    said = library.ask("strings")
    newer = NEWER_CODES.get(library.name, range(0))
    words = {code: WORDS[code] if code < len(WORDS) and code not in newer else UNKNOWN for code in map(int, said)}
    assert {int(code): text for code, text in said.items()} == words


def test_the_worker_says_that_the_driver_is_not_loaded(library: Library) -> None:
    said = library.ask("worker")
    failure = said["failure"]
    assert (failure["code"], failure["library_path"]) == (DRIVER_NOT_LOADED, str(library.path))
    assert failure["message"] == f"nvmlInitWithFlags: {errors.describe_code(DRIVER_NOT_LOADED)}"
