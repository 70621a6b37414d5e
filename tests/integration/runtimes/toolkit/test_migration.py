"""A node that NVIDIA's own toolkit has configured is taken over and given back, as the page on that migration says.

Its program writes the files and a real containerd judges them; neither is ours.
"""

from pathlib import Path

import pytest

from tests.integration.runtimes.configuration import CRI2, CRI3, MAIN, OFF, Configuration, full, lines
from tests.integration.runtimes.matrix import SHIM, WRAPPER, Node, Program, find_faults
from tests.integration.runtimes.releases import BUILD_SECONDS, find_cluster_program
from tests.integration.runtimes.toolkit import program as toolkit

pytestmark = [
    pytest.mark.timeout(BUILD_SECONDS),
    pytest.mark.skipif(bool(toolkit.find_obstacle()), reason=toolkit.find_obstacle() or "it can be built"),
]

MAINS = {
    "empty": "",
    "version 2": full(2, CRI2),
    "version 3": full(3, CRI3),
    "cdi off": full(3, CRI3, OFF),
}
FLAGS = {
    "default": (),
    "as default": ("--set-as-default",),
    "cdi": ("--cdi.enabled",),
    "both": ("--set-as-default", "--cdi.enabled"),
}


@pytest.fixture(scope="module")
def program() -> Path:
    return toolkit.build()


def make_node(place: Path, text: str, wants: str) -> Node:
    return Node(Program.of(find_cluster_program()), Configuration("toolkit", {MAIN: text}, wants), place)


@pytest.mark.parametrize("wants", ["cdi", "shim", "default"])
@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
@pytest.mark.parametrize("text", MAINS.values(), ids=MAINS)
def test_what_the_toolkit_wrote_is_taken_over_and_given_back(
    program: Path, short_dir: Path, text: str, flags: tuple[str, ...], wants: str
) -> None:
    """CDI is on, the class starts the shim, nothing else of containerd changes, and the revert is to the byte."""
    node = make_node(short_dir, text, wants)
    try:
        toolkit.configure(program, node.main, *flags)
        assert find_faults(node) == []
    finally:
        node.close()


@pytest.mark.parametrize("name", ["conf.d/99-nvidia.toml", "conf.d/nvidia.toml", "more/99-nvidia.toml"])
def test_its_drop_in_is_overruled_by_whatever_name(program: Path, short_dir: Path, name: str) -> None:
    """In the directory of ours and in another one."""
    node = make_node(short_dir, full(3, CRI3, OFF), "shim")
    try:
        toolkit.configure(program, node.main, f"--drop-in-config={node.main.parent / name}")
        assert find_faults(node) == []
    finally:
        node.close()


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_a_toolkit_that_comes_after_us_is_taken_over_too(
    program: Path, short_dir: Path, flags: tuple[str, ...]
) -> None:
    """It imports its whole directory behind our own file, which would then be read first."""
    node = make_node(short_dir, lines("# ours, do not reformat") + full(3, CRI3, OFF), "shim")
    try:
        assert node.configure().written
        toolkit.configure(program, node.main, *flags)
        again = node.configure()
        assert (again.refusal, again.unproved, again.written) == ("", "", True)
        served = node.serve()
        assert served.config is not None
        assert served.config["enableCDI"] is True
        assert served.runtimes["nvidia"]["options"]["BinaryName"] == SHIM
        node.unconfigure()
        theirs = node.serve()
        assert theirs.config is not None
        assert theirs.runtimes["nvidia"]["options"]["BinaryName"] == WRAPPER
        assert [path.name for path in node.main.parent.rglob("*.toml")] == [MAIN, "99-nvidia.toml"]
    finally:
        node.close()


def test_the_class_stays_whole_when_the_toolkit_goes(program: Path, short_dir: Path) -> None:
    """Its own file may be deleted once we have taken over: what ours says of the class suffices."""
    node = make_node(short_dir, full(3, CRI3), "shim")
    try:
        toolkit.configure(program, node.main)
        assert node.configure().written
        (node.main.parent / "conf.d/99-nvidia.toml").unlink()
        served = node.serve()
        assert served.config is not None, served.log
        assert served.runtimes["nvidia"]["options"] == {"BinaryName": SHIM, "SystemdCgroup": True}
        assert served.runtimes["nvidia"]["runtimeType"] == served.runtimes["runc"]["runtimeType"]
    finally:
        node.close()
