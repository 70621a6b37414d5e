"""kubernetes_asyncio imported slim and plain: the same behaviour, another price."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, json, sys, tempfile
from pathlib import Path
from random import Random
from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.credentials import Kubeconfig
from nodeagent.edge.kube.errors import KubeError
from nodeagent.edge.kube.library import load_library
from nodeagent.edge.kube.node import KubeNode
from nodeagent.core.clock import SystemClock
from tests.fakes.apiserver import FakeApiServer

def resident():
    return int(next(line for line in open('/proc/self/status') if line.startswith('VmRSS')).split()[1])

async def main(slim):
    async with FakeApiServer().running() as server:
        path = server.write_kubeconfig(Path(tempfile.mkdtemp()) / 'config')
        before = resident()
        client = KubeClient(Kubeconfig(path), load=lambda: load_library(slim=slim))
        node = KubeNode(client, 'node-1', SystemClock(), Random(1))
        seen = [(await node.read_node()).uid]
        await node.apply_labels(await node.read_node(), {'nvidia.com/a': '1'})
        seen.append((await node.read_node()).owned_labels)
        server.answer(403)
        try:
            await node.read_node()
        except KubeError as error:
            seen.append(str(error))
        server.token = 'other'
        try:
            await node.read_node()
        except KubeError as error:
            seen.append(str(error))
        path.write_text('nothing')
        try:
            await node.read_node()
        except KubeError as error:
            seen.append(type(error).__name__)
        await client.aclose()
        print(json.dumps({'seen': seen, 'kib': resident() - before,
                          'models': 'kubernetes_asyncio.client.models' in sys.modules}))

asyncio.run(main(sys.argv[1] == 'slim'))
"""


def run(mode: str) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.long
def test_the_slim_import_behaves_as_the_plain_one() -> None:
    """Requests, refusals and broken credentials come out alike; only the models are missing, and their memory."""
    slim, plain = run("slim"), run("plain")
    assert slim["seen"] == plain["seen"]
    assert (slim["models"], plain["models"]) == (False, True)
    assert isinstance(slim["kib"], int)
    assert slim["kib"] < 12 * 1024


@pytest.mark.long
def test_a_release_with_other_modules_is_imported_plain() -> None:
    """Where the inner modules are not as expected, the whole package is used and nothing half-made stays behind."""
    program = (
        "from nodeagent.edge.kube import library\n"
        "def fail(): raise AttributeError('moved')\n"
        "library._hollow_out = fail\n"
        "assert library.load_library().KubeConfigLoader.__name__ == 'KubeConfigLoader'\n"
        "import sys; assert 'kubernetes_asyncio.client.models' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "slim_import_failed" in done.stdout + done.stderr


AT_ONCE = """
import importlib, threading
from nodeagent.edge.kube import library
begun, ended, seen = threading.Event(), threading.Event(), []
real = importlib.import_module
def import_slowly(name):
    if not begun.is_set():
        begun.set()
        ended.wait(0.3)  # the other cannot end before this one, unless it goes on with what is hollow
    return real(name)
def load():
    try:
        seen.append(library.load_library().KubeConfigLoader.__name__)
    except Exception as error:
        seen.append(repr(error))
    ended.set()
importlib.import_module = import_slowly
first = threading.Thread(target=load)
first.start()
begun.wait()
load()
first.join()
assert seen == ['KubeConfigLoader'] * 2, seen
"""

ONCE_BROKEN = """
import importlib, sys
from nodeagent.edge.kube import library
real = importlib.import_module
def fail(name):
    importlib.import_module = real
    raise RuntimeError('deadlock detected')
importlib.import_module = fail
try:
    library.load_library()
except RuntimeError:
    assert library.load_library().KubeConfigLoader.__name__ == 'KubeConfigLoader'
    assert 'kubernetes_asyncio.client.models' not in sys.modules
else:
    raise SystemExit('nothing was raised')
"""


@pytest.mark.long
@pytest.mark.parametrize("program", [AT_ONCE, ONCE_BROKEN], ids=["two at once", "an import that failed once"])
def test_nobody_finds_it_half_made(program: str) -> None:
    """Clients load it in a thread each: none sees what another is at, nor what another left behind."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
