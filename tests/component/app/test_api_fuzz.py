"""The API against whatever is sent to it: cases made from its own OpenAPI document, held to its own word.

Every call of the document, and paths beside it, with every method, odd parameters, headers and bodies: an answer has a
declared status and the declared form, an error is problem details, and nothing is ever a 500.
"""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from nodeagent.components.web.api.openapi import build_openapi
from tests.support.programs.agent_process import PATIENCE_SECONDS, AgentProcess, running_busy_node
from tests.support.texts.json_schema import find_breaks

DOCUMENT = build_openapi()

EXAMPLES = 250
ODD = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)
"""The same cases in every run, so that a failure in CI is one here; not shrunk, for each case is a line or two."""

PROBLEM = DOCUMENT["components"]["schemas"]["Problem"]
EVERYWHERE = {400, 404, 405, 408, 413}
PATHS = sorted(DOCUMENT["paths"])
GETS = [path for path in PATHS if "get" in DOCUMENT["paths"][path]]
POSTS = [path for path in PATHS if "post" in DOCUMENT["paths"][path]]
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


@pytest.fixture(scope="module")
def node() -> Iterator[AgentProcess]:
    """A simulated node that nobody's life depends on."""
    with running_busy_node("--pods", "1") as agent:
        yield agent


class Case(NamedTuple):
    """One request; the path as the document spells it, and as it is sent."""

    method: str
    path: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Case({self.method} {self.target!r} {self.headers} {self.body[:200]!r} of {len(self.body)} bytes)"


class Answer(NamedTuple):
    """What came back, or the beginning of what has no end."""

    status: int
    headers: Mapping[str, str]
    body: bytes


words = st.text(st.characters(codec="utf-8"), max_size=20)
values = st.one_of(
    words, st.integers().map(str), st.sampled_from(["", "true", "false", "9" * 60, "\0", "../..", "%", "²"])
)
queries = st.lists(
    st.tuples(st.one_of(st.sampled_from(["types", "since", "follow", "page"]), words), values), max_size=4
)
visible = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30).map(str.strip)
headers = st.lists(
    st.tuples(
        st.sampled_from(["Accept", "Accept-Encoding", "Last-Event-ID", "Content-Type", "Range", "X-Odd", "Cookie"]),
        st.one_of(visible, st.sampled_from(["gzip", "gzip;q=0", "application/xml", "bytes=5-1", "-1", "9" * 400])),
    ),
    max_size=3,
)
bodies = st.one_of(
    st.binary(max_size=40),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | words,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
        max_leaves=6,
    ).map(lambda value: json.dumps(value).encode()),
    st.just(b"x" * 200_000),
)


CUT_OFF = Answer(0, {}, b"")
"""A body that is far too large may end with its connection before its sender has read why."""
BODY_BYTES_MAX = 64 * 1024


def spell(path: str, name: str, query: list[tuple[str, str]]) -> str:
    """The path as it is sent, with something in place of its parameter."""
    target = path.replace("{name}", quote(name, safe="") or "-")
    return f"{target}?{urlencode(query)}" if query else target


@st.composite
def cases(draw: st.DrawFn, paths: list[str], methods: tuple[str, ...]) -> Case:
    """A request to one of these paths, or to one beside it."""
    path = draw(st.sampled_from(paths))
    target = spell(path, draw(values), draw(queries))
    beside = draw(st.sampled_from(["", "", "", "/", "/x", "%2F", ";a", "//"]))
    method = draw(st.sampled_from(methods))
    body = draw(bodies) if method not in {"GET", "HEAD", "TRACE"} else b""
    head, mark, query = target.partition("?")
    return Case(method, path if not beside else "", head + beside + mark + query, tuple(draw(headers)), body)


def ask(connected: socket.socket, case: Case) -> Answer:
    """Send it and read the answer; of a stream, which never ends, its head alone."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = connected
    with contextlib.closing(connection):
        connection.putrequest(case.method, case.target, skip_accept_encoding=True)
        for name, value in case.headers:
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(case.body)))
        connection.endheaders()
        with contextlib.suppress(ConnectionError):  # an answer may come before all of a body has gone
            connection.send(case.body)
        try:
            answer = connection.getresponse()
        except ConnectionError:
            return CUT_OFF
        sent = {name.lower(): value for name, value in answer.getheaders()}
        is_endless = sent.get("content-type") == "text/event-stream"
        with contextlib.closing(answer):
            return Answer(answer.status, sent, b"" if is_endless else answer.read())


def ask_tcp(node: AgentProcess, case: Case) -> Answer:
    host, port = node.url.removeprefix("http://").rstrip("/").rsplit(":", 1)
    return ask(socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS), case)


def ask_admin(node: AgentProcess, case: Case) -> Answer:
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(PATIENCE_SECONDS)
    connected.connect(str(node.admin_socket))
    return ask(connected, case)


def find_fault(case: Case, answer: Answer) -> str:
    """What is wrong with this answer; empty when it keeps the document's word."""
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if answer is CUT_OFF:
        return "" if len(case.body) > BODY_BYTES_MAX else "no answer"
    if case.method == "HEAD":
        return "a HEAD with a body" if answer.body else ""
    if answer.status >= 400 and not (answer.status == 503 and case.path == "/readyz"):
        return _find_fault_of_error(case, answer, kind)
    operation = DOCUMENT["paths"].get(case.path, {}).get("post" if case.method == "POST" else "get")
    if operation is None:
        # Beside the document: what is there is a page or a probe, never an error in disguise.
        return "" if answer.status == 200 else f"status {answer.status}"
    return _find_fault_of_form(operation, answer, kind)


def _find_fault_of_form(operation: Mapping[str, Any], answer: Answer, kind: str) -> str:
    declared = operation["responses"].get(str(answer.status), {}).get("content")
    if declared is None or kind not in declared:
        return f"{answer.status} {kind} is not declared"
    if kind != "application/json":
        return ""
    breaks = list(find_breaks(json.loads(answer.body), declared[kind]["schema"], DOCUMENT))
    return f"not of its form: {breaks[:3]}" if breaks else ""


def _find_fault_of_error(case: Case, answer: Answer, kind: str) -> str:
    if answer.status >= 500 and answer.status != 503:
        return f"status {answer.status}: {answer.body[:200]!r}"
    if kind == "text/html":
        return "" if answer.status == 404 and not case.target.startswith("/api/") else "an error as a page"
    operation = DOCUMENT["paths"].get(case.path, {}).get(case.method.lower(), {"responses": {}})
    declared = {int(status) for status in operation["responses"] if status.isdigit()} | EVERYWHERE
    if answer.status not in declared:
        return f"status {answer.status} is not declared"
    if kind != "application/problem+json":
        return f"an error as {kind}"
    problem = json.loads(answer.body)
    if answer.status == 405 and "allow" not in answer.headers:
        return "405 without Allow"
    breaks = list(find_breaks(problem, PROBLEM, DOCUMENT))
    return f"{breaks}" if breaks or problem["status"] != answer.status else ""


@pytest.mark.long
@ODD
@given(case=cases(PATHS, METHODS))
def test_whatever_is_sent_the_answer_is_declared(node: AgentProcess, case: Case) -> None:
    """Over TCP nothing can be changed, every status and form is in the document, and nothing fails."""
    answer = ask_tcp(node, case)
    assert find_fault(case, answer) == ""
    assert case.method in {"GET", "HEAD"} or answer.status >= 400 or answer is CUT_OFF


@pytest.mark.long
@ODD
@given(case=cases(GETS, ("GET",)))
def test_every_call_keeps_its_form_for_odd_parameters(node: AgentProcess, case: Case) -> None:
    """Names, queries and headers of any kind bring the declared answer or a problem."""
    assert find_fault(case, ask_tcp(node, case)) == ""


@pytest.mark.long
@ODD
@given(case=cases(POSTS, ("POST",)))
def test_commands_take_any_body_without_harm(node: AgentProcess, case: Case) -> None:
    """Over the admin socket a body that is none is 400, one that cannot be followed 409, one too large 413."""
    answer = ask_admin(node, case)
    assert find_fault(case, answer) == ""
    if len(case.body) > BODY_BYTES_MAX and case.path:
        # 400 where the headers are none already, such as one that may stand once and is there twice
        assert answer.status in {400, 413} or answer is CUT_OFF


@pytest.mark.parametrize("path", GETS)
@pytest.mark.parametrize("method", METHODS)
def test_every_path_has_been_asked_with_every_method(node: AgentProcess, path: str, method: str) -> None:
    case = Case(method, path, spell(path, "0", [("follow", "false")]))
    answer = ask_tcp(node, case)
    assert find_fault(case, answer) == ""
    assert answer.status == (200 if method in {"GET", "HEAD"} else 405)


@pytest.mark.parametrize(
    "sent",
    [
        b"GARBAGE\r\n\r\n",
        b"BREW /api/v1/gpus HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /x\x00y HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"b" * 10_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n",
        b"POST /api/v1/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: zz\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    ],
)
def test_bytes_that_are_no_request_get_a_problem(node: AgentProcess, sent: bytes) -> None:
    """The library's own words would be text with a piece of what was sent; readers get what they get everywhere."""
    host, port = node.url.removeprefix("http://").rstrip("/").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as connected:
        connected.sendall(sent)
        heard = b""
        with contextlib.suppress(ConnectionError):
            while chunk := connected.recv(4096):
                heard += chunk
    head, _, body = heard.partition(b"\r\n\r\n")
    assert b" 400 " in head.splitlines()[0]
    assert b"application/problem+json" in head
    assert list(find_breaks(json.loads(body), PROBLEM, DOCUMENT)) == []


def test_after_all_that_the_agent_is_well(node: AgentProcess) -> None:
    """No request has left a trace: the agent is alive, and its log knows of no failed request."""
    node.post("/api/v1/resume", {})
    assert node.get("/livez")[0] == 200
    assert node.stop() == 0
    assert node.process.stderr is not None
    assert "request_failed" not in node.process.stderr.read()
