"""Fixtures of the scenarios: one real cluster for the session, a node as new for each test, pods, agents under test.

Nothing here skips: a machine that cannot run the cluster ends the run with status 4, and a skipped scenario fails it.
"""

import shutil
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from tests.fakes.nvml.control import FakeNvml
from tests.integration.cluster.agent import COMMAND, AgentUnderTest, Settings
from tests.integration.cluster.cgroups import is_version_1
from tests.integration.cluster.commands import PROCESSES
from tests.integration.cluster.control import Cluster, find_cluster, remove_cluster, start_api_server, start_cluster
from tests.integration.cluster.errors import RequirementsMissing
from tests.integration.cluster.layout import CHECKOUT, Layout
from tests.integration.cluster.lock import hold
from tests.integration.cluster.making.build import Programs, find_programs
from tests.integration.cluster.making.requirements import require_cluster_machine
from tests.integration.cluster.node import reset_node
from tests.integration.cluster.pods import Pods
from tests.integration.cluster.versions import Versions
from tests.integration.deployment import Deployment, deployed, import_image
from tests.integration.host_driver import installed_driver
from tests.integration.unsteady import has_failures
from tests.support.programs.fake_nvml import fake

__all__ = ["fake"]

SCENARIO_SECONDS = 180  # a real kubelet takes seconds for what a fake does at once
KEPT_LOGS = CHECKOUT / "results" / "e2e"
SHOWN_LINES = 25


class MakeAgent(Protocol):
    """The type of the fixture `make_agent`."""

    def __call__(
        self,
        *arguments: str,
        gpus: str = ...,
        settings: Settings | None = ...,
        command: Sequence[str] = ...,
        api_port: int | None = ...,
        token: str | None = ...,
    ) -> AgentUnderTest: ...


_skipped = pytest.StashKey[list[str]]()
_kept_cluster = pytest.StashKey[Cluster]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--reuse-cluster",
        action="store_true",
        help="run on the cluster that is up already, and leave it up (or start one, and leave it)",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test in this folder is a scenario: marked, and given more time."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.e2e)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SCENARIO_SECONDS))


def pytest_report_header() -> list[str]:
    """The versions of the cluster, and what the kubelet is told because of this machine."""
    told = [f"cluster: {str(Versions.read()) or 'newest Kubernetes'}"]
    if is_version_1():
        told.append("cgroups: version 1 alone, which a kubelet of 1.35 and newer takes with failCgroupV1: false only")
    return told


def pytest_sessionstart(session: pytest.Session) -> None:
    session.stash[_skipped] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the ends of the cluster's logs beside a failure, and count skipped scenarios."""
    report = yield
    cluster = item.session.stash.get(_kept_cluster, None)
    if report.failed and cluster is not None:
        for name in PROCESSES:
            report.sections.append((f"end of the log of {name}", cluster.read_log(name, SHOWN_LINES)))
    if report.skipped:
        item.session.stash[_skipped].append(item.nodeid)
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A scenario that could have run and did not is a failure."""
    if session.stash[_skipped] and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The real cluster, started for this session and removed after it."""
    programs, layout = _find_programs()
    reuse = bool(request.config.getoption("--reuse-cluster"))
    with hold(layout):
        started = (find_cluster(layout) if reuse else None) or start_cluster(layout, programs)
        request.session.stash[_kept_cluster] = started
        try:
            yield started
        finally:
            if has_failures(request.session):
                shutil.copytree(layout.logs, KEPT_LOGS / layout.root.name, dirs_exist_ok=True)
            del request.session.stash[_kept_cluster]
            if not reuse:
                remove_cluster(layout)


def _find_programs() -> tuple[Programs, Layout]:
    """The cluster's programs, and the place of this checkout's cluster."""
    try:
        require_cluster_machine()
    except RequirementsMissing as error:
        pytest.exit(str(error), returncode=error.exit_status)
    return find_programs(Versions.read()), Layout.of_checkout()


@pytest.fixture(scope="module")
def api_server() -> Iterator[Cluster]:
    """An API server and its etcd alone, in a place of their own, where nothing but a test changes objects."""
    programs, whole = _find_programs()
    layout = whole.beside("api")
    with hold(layout):
        try:
            yield start_api_server(layout, programs)
        finally:
            remove_cluster(layout)


@pytest.fixture
def node(cluster: Cluster) -> Cluster:
    reset_node(cluster)
    return cluster


@pytest.fixture
def pods(node: Cluster) -> Pods:
    """Pods on that node; those a scenario leaves are deleted before the next one."""
    return Pods(node)


@pytest.fixture
def make_agent(node: Cluster) -> Iterator[MakeAgent]:
    """Starts agents under test and waits until they are ready; all are ended after the test."""
    made: list[AgentUnderTest] = []

    def make(
        *arguments: str,
        gpus: str = "simulated:t4",
        settings: Settings | None = None,
        command: Sequence[str] = COMMAND,
        api_port: int | None = None,
        token: str | None = None,
    ) -> AgentUnderTest:
        agent = AgentUnderTest(node, gpus, settings or {}, command, api_port=api_port, token=token)
        made.append(agent)
        agent.start(*arguments)
        agent.wait_ready()
        return agent

    yield make
    for agent in made:
        if agent.is_running():
            agent.stop()


@pytest.fixture(scope="module")
def tag(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of this checkout, known to containerd."""
    return import_image(cluster, tmp_path_factory.mktemp("image"))


@pytest.fixture
def driver(node: Cluster) -> Iterator[FakeNvml]:
    with installed_driver(node.layout) as fake:
        yield fake


@pytest.fixture
def deployment(node: Cluster, driver: FakeNvml, tag: str) -> Iterator[Deployment]:
    """Nothing of ours, and what it takes to install it."""
    with deployed(node, tag) as made:
        yield made
