"""Orders of people are declared once, in `nodeagent/model/orders.py`, and each is carried out in one place."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from nodeagent.cli.commands import ROOT as COMMANDS
from nodeagent.cli.frame.command import Command
from nodeagent.model import orders
from nodeagent.model.offering import AllocationMode
from nodeagent.model.orders import CONFIGURED, CRASH, ORDERS, REHEARSE_UPGRADE, OrderedMode

PACKAGE = Path(orders.__file__).parents[1]
DECLARED = {id(value): name for name, value in vars(orders).items() if isinstance(value, orders.Order)}
REGISTERING = {"add", "carrying_out"}
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}


def _list_commands(command: Command) -> Iterator[Command]:
    yield command
    for one in command.subcommands:
        yield from _list_commands(one)


OF_ORDERS = [command for command in _list_commands(COMMANDS) if command.order is not None]


def _list_handled(text: str) -> Iterator[str]:
    """The names of the orders for which a source text registers handlers."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REGISTERING:
            yield from (each.id for each in node.args[:1] if isinstance(each, ast.Name))


def test_every_declared_order_is_in_the_list() -> None:
    """An order outside the list would have no route and no line in the API's index."""
    assert list(DECLARED) == [id(order) for order in ORDERS]
    assert len({order.path for order in ORDERS}) == len(ORDERS)


@pytest.mark.parametrize("name", DECLARED.values())
def test_an_order_has_one_handler(name: str) -> None:
    """Without a handler the order is always refused, and of two handlers the later would win."""
    naming = {path: text for path, text in SOURCES.items() if name in text}
    places = [path for path, text in naming.items() for handled in _list_handled(text) if handled == name]
    assert len(places) == 1, places


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.path)
def test_an_orders_path_is_written_once(order: orders.Order[Any]) -> None:
    """Whoever needs the path, the arguments or the words of an order takes the order."""
    literals = [f'"{order.path}"', f'"POST {order.path}"', f'API}}/{order.path.rpartition("/")[2]}"']
    assert [path for path, text in SOURCES.items() if any(each in text for each in literals)] == ["model/orders.py"]


@pytest.mark.parametrize("command", OF_ORDERS, ids=lambda command: command.name)
def test_a_command_offers_what_its_order_takes(command: Command) -> None:
    """An argument under another name would be parsed and never sent; the author is found by the command itself."""
    order = command.order
    assert order is not None
    names = {each.dest or each.names[0].lstrip("-").replace("-", "_") for each in command.arguments}
    assert set(order.fields) - {"who"} <= names
    assert command.summary == order.summary


def test_every_order_has_a_command_but_two() -> None:
    """To crash a component is for tests of the agent itself; the plan of an upgrade asks about budgets besides."""
    without = {id(order) for order in ORDERS} - {id(command.order) for command in OF_ORDERS}
    assert without == {id(CRASH), id(REHEARSE_UPGRADE)}


def test_every_allocation_mode_can_be_chosen() -> None:
    """A new mode that a person could not choose would be chosen by rules alone."""
    assert get_args(OrderedMode) == (*map(str, AllocationMode), CONFIGURED)
