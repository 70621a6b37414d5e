"""The guards as pytest runs them: a test that leaks fails at once, and no other test notices."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import tests

pytestmark = pytest.mark.long

LEAKING = """
import asyncio, subprocess, threading, time
import pytest
from hypothesis import given, settings, strategies as st

kept = []

async def test_task():
    kept.append(asyncio.create_task(asyncio.sleep(3600), name="forgotten"))

@pytest.mark.virtual_time
async def test_task_on_virtual_time():
    kept.append(asyncio.create_task(asyncio.sleep(3600), name="forgotten"))

@settings(max_examples=2)
@given(st.none())
async def test_task_of_an_example(_nothing):
    kept.append(asyncio.create_task(asyncio.sleep(3600), name="forgotten"))

async def test_child():
    kept.append(subprocess.Popen(["sleep", "60"]))

@pytest.mark.virtual_time
async def test_clock_after_a_leak():
    began = time.monotonic()
    await asyncio.sleep(86400)
    assert time.monotonic() - began < 30

@pytest.mark.may_leak("shows that the guard can be told to look away")
async def test_allowed():
    kept.append(asyncio.create_task(asyncio.sleep(3600), name="forgotten"))

async def test_next():
    assert asyncio.all_tasks() == {asyncio.current_task()}
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of each test: the message of its failure or error, empty where it passed."""
    directory = tmp_path_factory.mktemp("leaking")
    (directory / "conftest.py").write_text("from tests.conftest import *\nfrom tests.conftest import _leak_guard\n")
    (directory / "test_leaking.py").write_text(LEAKING)
    root = Path(tests.__file__).parent.parent
    places = [
        f"--config-file={root / 'pyproject.toml'}",
        f"--rootdir={directory}",
        f"--junitxml={directory / 'results.xml'}",
    ]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *places, str(directory)]
    done = subprocess.run(command, check=False, cwd=root, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1, done.stdout + done.stderr
    cases = ET.parse(directory / "results.xml").iter("testcase")
    return {case.attrib["name"]: "".join(child.attrib.get("message", "") for child in case) for case in cases}


@pytest.mark.parametrize("name", ["test_task", "test_task_on_virtual_time", "test_task_of_an_example"])
def test_a_test_that_leaves_a_task_fails(results: dict[str, str], name: str) -> None:
    """Plain, on virtual time and as an example of hypothesis."""
    assert "left behind by the test: tasks forgotten" in results[name]


def test_a_test_that_leaves_a_child_fails(results: dict[str, str]) -> None:
    assert re.search(r"left behind by the test: child process \d+", results["test_child"])


@pytest.mark.parametrize("name", ["test_clock_after_a_leak", "test_allowed", "test_next"])
def test_no_other_test_notices(results: dict[str, str], name: str) -> None:
    """Neither in its clock nor in its loop."""
    assert results[name] == ""
