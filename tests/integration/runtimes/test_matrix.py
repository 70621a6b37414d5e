"""Every configuration on real releases of containerd: planned, proved, written, started, and reverted to the byte.

Either CRI comes up with `runc`, our class and everything it had before, or the reason is named and nothing is written.
"""

import json
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.integration.cluster.layout import CHECKOUT
from tests.integration.runtimes.configuration import CRI2, Configuration
from tests.integration.runtimes.configurations import CONFIGURATIONS
from tests.integration.runtimes.matrix import Node, Program, find_faults
from tests.integration.runtimes.packages import fetch_package
from tests.integration.runtimes.releases import BUILD_SECONDS, RELEASES, build, find_cluster_program
from tests.integration.runtimes.support import run

pytestmark = pytest.mark.timeout(BUILD_SECONDS)


def find_debian_program() -> Path:
    """The containerd of this distribution."""
    return fetch_package("containerd") / "usr/bin/containerd"


PROGRAMS = (
    pytest.param(find_debian_program, id="debian"),
    pytest.param(find_cluster_program, id="cluster"),
    *(pytest.param(partial(build, each), id=each.version, marks=pytest.mark.nightly) for each in RELEASES),
)


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Program:
    find = request.param
    return Program.of(find())


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda each: each.name)
def test_a_node_has_what_was_asked_for_or_stays_as_it_is(
    program: Program, configuration: Configuration, short_dir: Path
) -> None:
    """By the daemon's own word, and without a byte too many after the revert."""
    node = Node(program, configuration, short_dir)
    try:
        assert find_faults(node) == []
    finally:
        node.close()


def test_each_configuration_has_a_name_of_its_own() -> None:
    assert len({each.name for each in CONFIGURATIONS}) == len(CONFIGURATIONS) >= 60


BUSY = f"""root = "/var/lib/containerd"
state = "/run/containerd"
version = 2
[grpc]
address = "/run/containerd/containerd.sock"
[ttrpc]
address = "/run/containerd/containerd.sock.ttrpc"
[debug]
address = "/run/containerd/debug.sock"
[metrics]
address = "127.0.0.1:10257"
{CRI2}]
stream_server_port = "10010"
{CRI2}.cni]
conf_dir = "/srv/cni/net.d"
[plugins."io.containerd.internal.v1.opt"]
path = "/opt/containerd"
"""


def test_a_trial_touches_nothing_of_the_node(program: Program, short_dir: Path) -> None:
    """No socket, port, directory or file that the real daemon has or would make, whatever its files name."""
    (short_dir / "config.toml").write_text(BUSY)
    command = (
        sys.executable,
        "-m",
        "tests.integration.runtimes.alone",
        str(program.path),
        str(short_dir / "config.toml"),
    )
    alone = ("unshare", "--mount", "--net", "--propagation", "private")
    assert json.loads(run(*alone, *command, cwd=CHECKOUT)) == {"ready": True, "said": "", "touched": []}
