"""No command stands in the documentation that no test tries, unless it is said why."""

from tests.integration.documented import INSTALLING, MOVING, NOT_RUN, STATUS, find_place, list_commands
from tests.support.texts.markdown import PAGES, find_blocks


def test_every_documented_command_is_tried_somewhere() -> None:
    """A new kind of command fails here until somebody says where it runs."""
    assert [f"{block.name}: {command}" for block, command in list_commands() if find_place(command) is None] == []


def test_exceptions_are_of_commands_that_are_there() -> None:
    """An exception outlives no command; every way to install or to move is one that a test follows."""
    commands = {command for _, command in list_commands()}
    assert NOT_RUN.keys() <= commands
    assert STATUS.keys() <= commands
    assert {block.name for page in PAGES for block in find_blocks(page)} >= INSTALLING | MOVING
