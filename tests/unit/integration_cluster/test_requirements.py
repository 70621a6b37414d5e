"""What a machine must have, named when it is not there."""

import struct
from collections.abc import Callable

import pytest

from tests.integration.cluster.errors import RequirementsMissing
from tests.integration.cluster.making.requirements import PACKAGES, SCENARIOS, Missing, find_missing, is_static_elf

WANTED = PACKAGES | SCENARIOS
EVERYTHING = {"go", *WANTED}


def make_elf(*program_headers: int, order: str = "<") -> bytes:
    """A 64-bit ELF file with program headers of these types and nothing else."""
    identity = b"\x7fELF\x02" + (b"\x01" if order == "<" else b"\x02")
    head = identity.ljust(0x20, b"\0") + struct.pack(order + "Q", 64)
    head = head.ljust(0x36, b"\0") + struct.pack(order + "HH", 56, len(program_headers))
    return head.ljust(64, b"\0") + b"".join(struct.pack(order + "I", kind).ljust(56, b"\0") for kind in program_headers)


def finder(*absent: str) -> Callable[[str], str | None]:
    return lambda name: f"/bin/{name}" if name in EVERYTHING - {*absent} else None


def test_a_complete_machine_misses_nothing() -> None:
    """With every program and root, there is nothing to say."""
    assert find_missing(WANTED, finder(), is_root=True, read=lambda _: make_elf(1)) == Missing((), ())
    assert Missing((), ()).command == ""


def test_the_cluster_alone_wants_less_than_the_scenarios() -> None:
    """A bench or one scenario on the cluster is not kept from running by a Prometheus that it does not use."""
    missing = find_missing(PACKAGES, finder(*SCENARIOS), is_root=True, read=lambda _: make_elf(1))
    assert missing == Missing((), ())


def test_a_package_of_another_processor_is_installed_with_its_architecture() -> None:
    """A machine that has only its own architecture's list of packages knows no such package."""
    command = Missing(("the compiler",), ("gcc", "musl-dev:arm64")).command
    assert command == ("dpkg --add-architecture arm64 && apt-get update && apt-get install --yes gcc musl-dev:arm64")


@pytest.mark.parametrize("absent", sorted(EVERYTHING))
def test_each_missing_program_is_named_alone(absent: str) -> None:
    """One thing missing gives one entry, which says how to get it."""
    missing = find_missing(WANTED, finder(absent), is_root=True, read=lambda _: make_elf(1))
    assert ["install" in entry for entry in missing.words] == [True]
    assert " ".join(missing.packages) == WANTED.get(absent, "")


def test_everything_missing_is_named_at_once() -> None:
    """Nobody has to come back for the next one; the error is one line and means exit status 4."""
    missing = find_missing(WANTED, lambda _: None, is_root=False, read=lambda _: b"")
    assert len(missing.words) == 1 + len(EVERYTHING)
    for package in " ".join(WANTED.values()).split():
        assert package in missing.command.split()
    error = RequirementsMissing(missing.words)
    assert error.exit_status == 4
    assert "\n" not in str(error)


def test_a_busybox_that_needs_a_loader_is_refused() -> None:
    """The image holds nothing but busybox, so a dynamically linked one cannot start in it."""
    missing = find_missing(WANTED, finder(), is_root=True, read=lambda _: make_elf(1, 3))
    assert missing == Missing(("a static busybox (apt-get install busybox-static)",), ("busybox-static",))


@pytest.mark.parametrize("order", ["<", ">"])
def test_static_programs_are_told_from_dynamic_ones(order: str) -> None:
    """The loader's program header decides, in either byte order; other files are no programs."""
    assert is_static_elf(make_elf(1, 4, order=order))
    assert not is_static_elf(make_elf(1, 3, order=order))
    assert not is_static_elf(b"#!/bin/sh\n")
