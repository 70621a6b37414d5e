"""What is never loaded by an agent: kubernetes_asyncio, a child process's 38 MB, and the simulator."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nodeagent
from tests.bench.around.api_server import api_server
from tests.bench.around.node import bench_node, find_free_port
from tests.bench.whole.memory import list_everything
from tests.fakes.apiserver import NODE

CHILD = "nodeagent.edge.kube.kubeconfig.child"
AGENT = """
import atexit, sys
place = sys.argv[1]

def note():
    with open(place, "w") as file:
        file.write("\\n".join(sys.modules))

atexit.register(note)
from nodeagent.cli.main import Streams, run_command_line
sys.exit(run_command_line(sys.argv[2:], Streams(sys.stdout, sys.stderr)))
"""


@pytest.mark.long
def test_an_agent_with_everything_on_has_neither(tmp_path: Path) -> None:
    """By a kubeconfig, with labels written to the API server: what the agent had loaded when it ended."""
    place = tmp_path / "modules"
    with api_server() as api, bench_node() as node:
        kubeconfig = api.server.write_kubeconfig(node.directory / "kubeconfig")
        settings = ["kubernetes.enabled=true", f"kubernetes.kubeconfig={kubeconfig}", f"node.name={NODE}"]
        settings += list_everything(node)
        words = ["run", *node.list_settings(find_free_port())]
        words += [word for setting in settings for word in ("--set", setting)]
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(place), *words],
            env={name: value for name, value in os.environ.items() if not name.startswith("COV")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            node.kubelet.wait("registered")
            api.wait_for(lambda: bool(api.server.writes), "a write of the agent")
        finally:
            agent.terminate()
            agent.wait(30)
    loaded = place.read_text().split()
    assert "nodeagent.edge.kube.client" in loaded
    assert [name for name in loaded if name.split(".")[0] in ("kubernetes_asyncio", "nodeagent_sim")] == []


@pytest.mark.long
def test_nobody_imports_what_the_child_runs() -> None:
    """The fences let it have the library; whoever imported it would have the library too."""
    root = Path(nodeagent.__file__).parent
    importers = []
    for path in root.rglob("*.py"):
        for each in ast.walk(ast.parse(path.read_text())):
            names = [each.module or ""] if isinstance(each, ast.ImportFrom) else []
            names += [alias.name for alias in each.names] if isinstance(each, ast.Import) else []
            importers += [str(path.relative_to(root)) for name in names if name == CHILD]
    assert importers == []
