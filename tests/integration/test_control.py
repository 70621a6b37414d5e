"""Starting and removing a cluster, also where a run was cut off: nothing is left, and the next run starts clean."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster.control import Cluster, remove_cluster
from tests.integration.cluster.layout import CHECKOUT, Layout
from tests.integration.cluster.leftovers import find_leftovers
from tests.integration.cluster.processes import wait_until
from tests.integration.cluster.sysctls import read_sysctls

# As it was before each test's environment is cleaned: the caller may have chosen another cache.
ENVIRONMENT = dict(os.environ)
CONTROL = (sys.executable, "-m", "tests.integration.cluster")


@pytest.fixture
def layout() -> Iterator[Layout]:
    """Room for a second cluster beside the session's."""
    own = Layout.of_checkout()
    second = Layout(own.root.with_name(own.root.name.replace("e2e", "two")))
    remove_cluster(second)
    yield second
    remove_cluster(second)


def control(layout: Layout, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*CONTROL, command, "--json", "--root", str(layout.root)),
        cwd=CHECKOUT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_cluster_goes_up_and_down_without_a_trace(layout: Layout) -> None:
    """From the command line: up, found by status, up again at once, down; processes, mounts, sockets, cgroups gone."""
    sysctls = read_sysctls()
    up = control(layout, "up")
    assert up.returncode == 0, up.stderr
    described = json.loads(control(layout, "status").stdout)
    assert described == json.loads(up.stdout)
    assert Path(described["kubeconfig"]).exists()
    assert control(layout, "up").returncode == 0
    down = control(layout, "down")
    assert down.returncode == 0, down.stderr
    assert find_leftovers(layout) == ()
    assert control(layout, "status").returncode == 3
    assert read_sysctls() == sysctls


@pytest.mark.parametrize("milestone", ["namespace", "apiserver", "kubelet"])
def test_a_killed_start_is_cleared_away(layout: Layout, milestone: str) -> None:
    """Killed at any point of its start, a cluster is removed by `down` as if it had come up."""
    starting = subprocess.Popen(
        (*CONTROL, "up", "--root", str(layout.root)), cwd=CHECKOUT, env=ENVIRONMENT, stderr=subprocess.DEVNULL
    )
    record = layout.records / milestone
    wait_until(f"{milestone} to start", lambda: None if record.exists() else "no record", timeout_seconds=60)
    starting.send_signal(signal.SIGKILL)
    starting.wait()
    assert find_leftovers(layout) != ()
    assert control(layout, "down").returncode == 0
    assert find_leftovers(layout) == ()


def test_a_held_cluster_is_left_alone(cluster: Cluster) -> None:
    """While the session holds its cluster, nobody takes it down under the tests."""
    refused = control(cluster.layout, "down")
    assert refused.returncode == 1
    assert "is in use by process" in refused.stderr
