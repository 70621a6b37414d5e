"""An agent of an earlier version and one of this version, one after the other on one node, in both directions.

The earlier version is a commit of this repository; a clone that does not reach back to the commit has the journals of
`tests/unit/components/allocations/test_formats.py` alone, which hold every record to its bytes.
"""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.component.standby.harness import STANDBY, Node, hear, running, running_node, take_over
from tests.support.programs.agent_process import AgentProcess
from tests.support.waiting import in_thread

ROOT = Path(__file__).parents[3]
EARLIER = "8c7a513a9bfec56a3333a0bdedb64ed08cfba499"
"""The last commit before standbys, until a release has a tag."""
PACKAGES = ("nodeagent", "nodeagent_sim")


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the earlier version's packages, compiled: a start takes no longer than one of this version."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", EARLIER, *PACKAGES], capture_output=True, check=False
    )
    if archive.returncode != 0:
        pytest.skip(f"a shallow clone has no earlier version {EARLIER[:8]} to start: git fetch --unshallow")
    place = tmp_path_factory.mktemp("earlier")
    subprocess.run(["tar", "-x", "-C", str(place)], input=archive.stdout, check=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(place)], check=True)
    return place


def start_in(place: Path) -> tuple[str, ...]:
    """The words in front of a command for Python to find its packages in this directory."""
    return ("env", f"--chdir={place}")


def read_held(agent: AgentProcess) -> set[str]:
    """The devices that the agent knows to be held."""
    return {device for each in agent.get_json("/api/v1/allocations") for device in each["devices"]}


def is_from(agent: AgentProcess, place: Path) -> bool:
    """Whether the agent was started in this directory, where Python finds its packages."""
    return Path(f"/proc/{agent.process.pid}/cwd").readlink() == place


async def check_journal(node: Node, agent: AgentProcess) -> None:
    """The agent knows what the other version has given out, and gives a pod of its own another device."""
    assert await in_thread(partial(read_held, agent)) == set(node.kubelet.holders())
    codes = {each["code"] for each in await in_thread(partial(agent.get_json, "/api/v1/conditions"))}
    assert not {code for code in codes if code.startswith(("journal", "allocations"))}


@pytest.mark.long
async def test_this_version_takes_over_from_the_earlier_version(short_dir: Path, earlier: Path) -> None:
    """As a DaemonSet updates: the standby is ready beside an agent that knows of no standbys."""
    async with running_node(short_dir) as node:
        with running(short_dir, "first", front=start_in(earlier)) as first:
            await in_thread(partial(hear, first, "agent_started"))
            assert is_from(first, earlier)
            await node.wait_offered()
            with running(short_dir, "second", *STANDBY) as second:
                await in_thread(partial(hear, second, "standby_began"))
                await node.run_pod("before")
                assert await in_thread(first.stop) == 0
                await in_thread(partial(take_over, second))
                await node.wait_offered()
                await node.run_pod("after")
                assert len(node.kubelet.holders()) == 2
                await check_journal(node, second)


@pytest.mark.long
async def test_the_earlier_version_goes_on_from_this_version(short_dir: Path, earlier: Path) -> None:
    """As a DaemonSet goes back: the earlier version waits until this version has left."""
    async with running_node(short_dir) as node:
        with running(short_dir, "first") as first:
            await in_thread(partial(hear, first, "agent_started"))
            await node.wait_offered()
            await node.run_pod("before")
            with running(short_dir, "second", "--wait", "1h", front=start_in(earlier)) as second:
                await in_thread(partial(hear, second, "start_waits"))
                assert is_from(second, earlier)
                assert await in_thread(first.stop) == 0
                await in_thread(partial(hear, second, "agent_started"))
                await in_thread(partial(second.wait_for, "/readyz", "gate allocations_recovered passed"))
                await node.wait_offered()
                await node.run_pod("after")
                assert len(node.kubelet.holders()) == 2
                await check_journal(node, second)
