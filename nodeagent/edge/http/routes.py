"""Finds the handler for a path; pure.

Unknown paths and methods get problem details (RFC 9457), because scripts read them too.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nodeagent.edge.http.messages import PROBLEM, Handler, Response
from nodeagent.edge.http.queue import RequestQueue


@dataclass(frozen=True, slots=True)
class Route:
    """A method, a path with `{name}` segments, and the handler."""

    method: str
    path: str
    handler: Handler
    at_most: Callable[[], int] | None = None
    """How many requests are served at a time; further requests get 503."""
    queue: RequestQueue | None = None
    """The queue for requests, entered once the body is read."""


@dataclass(frozen=True, slots=True)
class Match:
    """The matching route, and the values of the `{name}` segments."""

    handler: Handler
    arguments: dict[str, str]
    route: Route


class Routes:
    """A table of routes; a GET route answers HEAD as well."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: dict[tuple[str, ...], dict[str, Route]] = {}
        for route in routes:
            if "{" in route.path:
                self._patterns.setdefault(tuple(route.path.split("/")), {})[route.method] = route
            else:
                self._exact.setdefault(route.path, {})[route.method] = route

    def find(self, method: str, path: str) -> Match | Response:
        """The match, or the answer with the reason for no match."""
        methods, arguments = self._find_path(path)
        if not methods:
            return render_problem(404, f"nothing at {path}", "GET / lists what there is, GET /api/v1/ for scripts")
        route = methods.get("GET" if method == "HEAD" else method)
        if route is not None:
            return Match(route.handler, arguments, route)
        allowed = ", ".join(sorted(methods.keys() | ({"HEAD"} if "GET" in methods else set())))
        return render_problem(405, f"{path} does not take {method}", f"use {allowed}", headers={"Allow": allowed})

    def _find_path(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        if path in self._exact:
            return self._exact[path], {}
        segments = path.split("/")
        for pattern, methods in self._patterns.items():
            arguments = _match_segments(pattern, segments)
            if arguments is not None:
                return methods, arguments
        return {}, {}


def _match_segments(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    arguments = {}
    for expected, segment in zip(pattern, segments, strict=True):
        if expected.startswith("{"):
            if not segment:
                return None
            arguments[expected[1:-1]] = segment
        elif expected != segment:
            return None
    return arguments


def render_problem(status: int, title: str, detail: str = "", *, headers: dict[str, str] | None = None) -> Response:
    """An error as problem details."""
    body = {"type": "about:blank", "status": status, "title": title, "detail": detail}
    return Response(json.dumps(body).encode() + b"\n", status=status, content_type=PROBLEM, headers=headers or {})
