"""The agent fixture itself, tried with a stand-in command, so that a failing scenario is never the fixture's fault."""

import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ProcessDied
from tests.integration.conftest import MakeAgent

STAND_IN = """
import http.server, signal, sys, yaml
settings = yaml.safe_load(open(sys.argv[sys.argv.index("--config") + 1]))
host, port = settings["http"]["listen"].split(":")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"ready": true}')
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
http.server.HTTPServer((host, int(port)), Handler).serve_forever()
"""


def test_the_agent_gets_this_cluster_and_stops_cleanly(node: Cluster, make_agent: MakeAgent) -> None:
    """Its configuration names the kubelet's real directories, it becomes ready, and a stop gives its exit status."""
    agent = make_agent(command=(sys.executable, "-c", STAND_IN), settings={"health": {"poll_seconds": 1}})
    settings = yaml.safe_load(agent.config_file.read_text())
    assert (Path(settings["kubelet"]["device_plugins_dir"]) / "kubelet.sock").is_socket()
    assert Path(settings["kubelet"]["pod_resources_socket"]).is_socket()
    assert settings["health"] == {"poll_seconds": 1}
    assert agent.get_json("/readyz") == {"ready": True}
    assert agent.stop() == 0


def test_an_agent_that_ends_is_told_with_its_last_words(make_agent: MakeAgent) -> None:
    """Waiting for an agent that has exited fails at once, and shows what it said."""
    with pytest.raises(ProcessDied, match="cannot go on"):
        make_agent(command=(sys.executable, "-c", "raise SystemExit('cannot go on')"))
