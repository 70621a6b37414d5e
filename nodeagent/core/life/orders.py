"""Orders of people and their handlers: a component carries its orders out for as long as it runs."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)


class OrderOf(Protocol[C_co]):
    """An order with arguments of one type, as `model.orders` has it."""

    @property
    def path(self) -> str:
        """The order's name among all orders."""
        ...

    @property
    def arguments(self) -> type[C_co]:
        """The type of the arguments."""
        ...

    def refuse(self) -> Exception:
        """The error while no component carries the order out."""
        ...


class OrderHandlers:
    """The handlers of all orders; lives as long as the process, while components are built anew after a crash."""

    def __init__(self) -> None:
        self._handlers: dict[str, Callable[[Any], Awaitable[str]]] = {}

    def add(self, order: OrderOf[C], handler: Callable[[C], Awaitable[str]]) -> None:
        """Have a handler carry the order out from now on."""
        self._handlers[order.path] = handler

    @contextmanager
    def carrying_out(self, order: OrderOf[C], handler: Callable[[C], Awaitable[str]]) -> Iterator[None]:
        """Have a handler carry the order out for as long as the block lasts."""
        self.add(order, handler)
        try:
            yield
        finally:
            del self._handlers[order.path]

    async def give(self, order: OrderOf[C], command: C) -> str:
        """Have the order carried out; the outcome in a sentence.

        Raises:
            Exception: The order's refusal without a handler, or the handler's own.
        """
        handler = self._handlers.get(order.path)
        if handler is None:
            raise order.refuse()
        return await handler(command)
