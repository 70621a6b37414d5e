"""What a server under test is told to do about trouble that its test does not make."""

from collections.abc import Callable
from typing import Any

from nodeagent.edge.http.routes import Routes
from nodeagent.edge.http.server import HttpServer


def fail(_request: str, error: Exception) -> None:
    """No handler here lets an exception through."""
    raise AssertionError from error


def exhausted(error: OSError) -> None:
    """Nothing here runs out of descriptors."""
    raise AssertionError from error


def make_server(routes: Routes, *, on_error: Callable[[str, Exception], None] = fail, **requests: Any) -> HttpServer:
    """A server that fails its test on trouble."""
    return HttpServer(routes, on_error=on_error, on_exhausted=exhausted, **requests)
