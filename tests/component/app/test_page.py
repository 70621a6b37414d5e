"""The page and the API's document, as a running agent serves them."""

import contextlib
import gzip
import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.programs.agent_process import PATIENCE_SECONDS, AgentProcess, running_busy_node
from tests.support.texts.html import Page
from tests.support.texts.json_schema import find_breaks


@pytest.fixture(scope="module")
def node() -> Iterator[AgentProcess]:
    """One simulated node; faults are cleared by whoever injects them."""
    with running_busy_node("--pods", "2") as agent:
        yield agent


def _request(
    agent: AgentProcess, path: str, headers: dict[str, str] | None = None
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    host, port = agent.url.removeprefix("http://").rstrip("/").rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_SECONDS)
    connection.request("GET", path, headers=headers or {})
    return connection, connection.getresponse()


def test_the_page_is_whole_and_lets_nothing_else_in(node: AgentProcess) -> None:
    """Readable by everybody, within its weight, under a policy that allows what it carries and no more."""
    connection, answer = _request(node, "/")
    with contextlib.closing(connection):
        body = answer.read()
    assert len(body) < 60_000
    assert Page(body.decode()).find_faults() == []
    assert str(answer.headers["Content-Security-Policy"]).startswith("default-src 'none'; style-src 'sha256-")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"


def test_the_page_travels_compressed_where_the_reader_can(node: AgentProcess) -> None:
    """A browser gets a quarter of the bytes, and what it unpacks is the page."""
    connection, answer = _request(node, "/", {"Accept-Encoding": "gzip, br"})
    with contextlib.closing(connection):
        body = answer.read()
    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body).startswith(b"<!doctype html>")
    assert len(body) < 20_000


def test_every_link_of_the_page_leads_to_an_answer(node: AgentProcess) -> None:
    """GPUs and pods have addresses that work, and those of nobody answer 404 with a page."""
    page = Page(node.get("/")[1])
    links = {str(one["href"]).partition("#")[0] for one in page.all("a")} - {""}
    assert any(link.startswith("/gpus/") for link in links)
    assert any(link.startswith("/pods/") for link in links)
    statuses = {link: node.get(link)[0] for link in links if link not in {"/api/v1/events", "/readyz"}}
    assert set(statuses.values()) == {200}, statuses
    status, body = node.get("/gpus/nobody")
    assert status == 404
    assert "does not know it now" in body
    assert node.get("/live?page=/nothing")[0] == 404


def _read_update(answer: http.client.HTTPResponse) -> dict[str, Any]:
    while True:
        line = answer.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: "):
            update: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
            return update


def _wait_update(answer: http.client.HTTPResponse, section: str, words: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if words in _read_update(answer)["sections"].get(section, ""):
            return
    raise AssertionError(f"{section} never said {words!r}")


def test_readers_are_told_of_a_fault_and_of_its_end(node: AgentProcess) -> None:
    """What is on the page changes by itself, for every reader, and back again."""
    streams = [_request(node, "/live?page=/") for _ in range(3)]
    with contextlib.ExitStack() as stack:
        for connection, _ in streams:
            stack.enter_context(contextlib.closing(connection))
        for _, answer in streams:
            assert {"verdict", "gpus", "events"} <= set(_read_update(answer)["sections"])
        node.inject("xid", "79", "3")
        for _, answer in streams:
            _wait_update(answer, "gpus", "✗ lost")
        node.inject("clear")


def test_a_reader_who_has_the_page_gets_only_what_changed(node: AgentProcess) -> None:
    """The stream goes on from the last event after a break; whatever happened meanwhile, not every part is new."""
    connection, answer = _request(node, "/live?page=/")
    with contextlib.closing(connection):
        version = ""
        while not version:
            line = answer.readline()
            version = line.decode().removeprefix("id: ").strip() if line.startswith(b"id: ") else ""
        whole = set(_read_update(answer)["sections"])
        again, resumed = _request(node, "/live?page=/", {"Last-Event-ID": version})
        with contextlib.closing(again):
            assert set(_read_update(resumed)["sections"]) < whole


def test_every_answer_is_what_the_document_says(node: AgentProcess) -> None:
    """No field is missing, of another type, or unknown to the OpenAPI document."""
    document = node.get_json("/api/v1/openapi.json")
    uuid = node.get_json("/api/v1/gpus")["gpus"][0]["gpu"]["uuid"]
    checked = 0
    for path, methods in document["paths"].items():
        content = methods.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        schema = content.get("application/json", {}).get("schema")
        if schema is None:
            continue
        asked = path.replace("{name}", uuid) + ("?follow=false" if path.endswith("/events") else "")
        status, body = node.get(asked)
        assert status == 200, asked
        assert list(find_breaks(json.loads(body), schema, document))[:3] == [], asked
        checked += 1
    assert checked >= 12
    problem = node.get_json("/api/v1/gpus/nobody")
    assert list(find_breaks(problem, document["components"]["schemas"]["Problem"], document)) == []
    assert node.get_json("/api/v1/nothing")["status"] == 404
