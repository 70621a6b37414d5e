"""Finding the handler for a path."""

import json

from nodeagent.edge.http.messages import Answer, Request, Response
from nodeagent.edge.http.routes import Match, Route, Routes


async def _nothing(_request: Request) -> Answer:
    return Response(b"")


ROUTES = Routes(
    [
        Route("GET", "/", _nothing),
        Route("GET", "/gpus", _nothing),
        Route("GET", "/gpus/{name}", _nothing),
        Route("POST", "/reload", _nothing),
    ]
)


def test_exact_paths_and_their_head() -> None:
    """A GET route answers HEAD as well, because probes use it."""
    for method in ("GET", "HEAD"):
        found = ROUTES.find(method, "/gpus")
        assert isinstance(found, Match)
        assert found.arguments == {}


def test_pattern_takes_one_segment() -> None:
    """A name is one segment: neither empty nor several."""
    found = ROUTES.find("GET", "/gpus/GPU-1")
    assert isinstance(found, Match)
    assert found.arguments == {"name": "GPU-1"}
    for path in ("/gpus/", "/gpus/a/b", "/nodes/a"):
        refused = ROUTES.find("GET", path)
        assert isinstance(refused, Response)
        assert refused.status == 404


def test_wrong_method_names_the_right_one() -> None:
    """A script that used the wrong verb is told which one to use."""
    refused = ROUTES.find("DELETE", "/reload")
    assert isinstance(refused, Response)
    assert refused.status == 405
    assert refused.headers["Allow"] == "POST"
    assert json.loads(refused.body)["detail"] == "use POST"


def test_unknown_path_is_a_problem_document() -> None:
    """Errors are JSON problem details, whatever was in the path."""
    refused = ROUTES.find("GET", '/"<script>')
    assert isinstance(refused, Response)
    assert json.loads(refused.body)["status"] == 404
    assert refused.content_type == "application/problem+json"


def test_allow_tells_all_that_is_allowed() -> None:
    """HEAD is, wherever GET is."""
    for path in ("/", "/gpus/GPU-1"):
        refused = ROUTES.find("POST", path)
        assert isinstance(refused, Response)
        assert refused.headers["Allow"] == "GET, HEAD"
        for method in refused.headers["Allow"].split(", "):
            assert isinstance(ROUTES.find(method, path), Match)
