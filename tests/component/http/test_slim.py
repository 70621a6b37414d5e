"""The slim import of aiohttp behaves like the whole one, and leaves no trace for whoever needs the whole."""

import subprocess
import sys

import pytest

SLIM_THEN_WHOLE = """
import sys
from nodeagent.edge.http import slim
assert "aiohttp.client" not in sys.modules, "the client half was loaded"
import aiohttp
from aiohttp import web
assert aiohttp.ClientSession and web.Application
assert slim.Server is web.Server and slim.Response is web.Response and slim.RequestHandler is web.RequestHandler
"""

WHOLE_FIRST = """
from aiohttp import web
from nodeagent.edge.http import slim
assert slim.Server is web.Server and slim.BaseRequest is web.BaseRequest
"""

UNWILLING = """
import importlib, sys
real = importlib.import_module
def refuse(name, package=None):
    if name == "aiohttp.web_server" and "aiohttp.web" not in sys.modules:
        raise ImportError(name)
    return real(name, package)
importlib.import_module = refuse
from nodeagent.edge.http import slim
importlib.import_module = real
from aiohttp import web
assert slim.Server is web.Server
"""


@pytest.mark.long
@pytest.mark.parametrize("program", [SLIM_THEN_WHOLE, WHOLE_FIRST, UNWILLING])
def test_both_ways_lead_to_the_same_classes(program: str) -> None:
    """Slim first, whole first, or an aiohttp that refuses: the classes are aiohttp's own, and there is one of each."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
