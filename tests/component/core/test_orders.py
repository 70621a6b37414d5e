"""Handlers of orders: found while their component runs, and refused by the order's own words otherwise."""

import contextlib

import pytest

from nodeagent.core.life.orders import OrderHandlers


class Refused(Exception):
    """The refusal of the order under test."""


class Greet:
    """An order that takes a name."""

    path = "/greet"
    arguments = str

    def refuse(self) -> Exception:
        return Refused()


async def greet(name: str) -> str:
    return f"hello {name}"


async def test_an_order_is_carried_out_for_as_long_as_its_component_runs() -> None:
    """Before and after, and after a crash of the component, the order is refused."""
    handlers = OrderHandlers()
    with pytest.raises(Refused):
        await handlers.give(Greet(), "Ada")
    with contextlib.suppress(ZeroDivisionError), handlers.carrying_out(Greet(), greet):
        assert await handlers.give(Greet(), "Ada") == "hello Ada"
        raise ZeroDivisionError
    with pytest.raises(Refused):
        await handlers.give(Greet(), "Ada")


async def test_a_handler_may_live_as_long_as_the_process() -> None:
    """Not every order is carried out by a component that may be built anew."""
    handlers = OrderHandlers()
    handlers.add(Greet(), greet)
    assert await handlers.give(Greet(), "Ada") == "hello Ada"
