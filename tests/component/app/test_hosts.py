"""Under which names a whole agent answers, and what HEAD of a stream is."""

import http.client
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.programs.agent_process import PATIENCE_SECONDS, AgentProcess, running_simulation

FOREIGN = "metrics.example.com"


def ask(agent: AgentProcess, method: str, path: str, host: str) -> http.client.HTTPResponse:
    address, port = agent.url.removeprefix("http://").rstrip("/").rsplit(":", 1)
    connection = http.client.HTTPConnection(address, int(port), timeout=PATIENCE_SECONDS)
    with closing(connection):
        connection.request(method, path, headers={"Host": host})
        answer = connection.getresponse()
        answer.read()
        return answer


@pytest.mark.slow
def test_a_name_is_foreign_until_it_is_given(short_dir: Path) -> None:
    """A reload is enough; addresses and localhost are known at all times, on every path."""
    config = short_dir / "config.yaml"
    config.write_text("{}\n")
    with running_simulation(short_dir, "--config", str(config)) as agent:
        for path in ("/", "/metrics", "/livez", "/api/v1/state", "/nothing"):
            assert ask(agent, "GET", path, FOREIGN).status == 421
        assert ask(agent, "GET", "/metrics", "192.0.2.9:9400").status == 200
        config.write_text(f"http: {{allowed_hosts: [{FOREIGN}]}}\n")
        assert agent.post("/api/v1/reload", {})[0] == 200
        assert ask(agent, "GET", "/metrics", FOREIGN).status == 200
        assert ask(agent, "GET", "/metrics", "localhost").status == 200
        assert ask(agent, "GET", "/metrics", "other.example.com").status == 421


@pytest.mark.long
def test_a_head_of_a_stream_ends_and_allow_tells_the_truth(short_dir: Path) -> None:
    """Each path with its own methods; every answer says whose it is."""
    with running_simulation(short_dir) as agent:
        for path in ("/api/v1/events", "/live", "/metrics", "/", "/api/v1/state"):
            head = ask(agent, "HEAD", path, "localhost")
            assert (head.status, head.headers["Server"]) == (200, "nodeagent")
            refused = ask(agent, "DELETE", path, "localhost")
            assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")
        assert ask(agent, "HEAD", "/api/v1/events", "localhost").headers["Content-Type"] == "text/event-stream"
