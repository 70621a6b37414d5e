"""The doctor before neighbours that answer, refuse, or are not there."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nodeagent.cli.doctor import observe
from nodeagent.cli.doctor.facts import ApiFacts
from nodeagent.config.load import load_settings
from nodeagent.config.schema import Settings
from nodeagent.model.errors import DriverUnavailable
from tests.fakes.apiserver import NODE, FakeApiServer
from tests.fakes.kube.server import VERSION


def _settings(**overrides: object) -> Settings:
    words = [f"{key.replace('__', '.')}={value}" for key, value in overrides.items()]
    return load_settings(environ={}, overrides=words).settings


async def _ask(server: FakeApiServer, tmp_path: Path) -> ApiFacts:
    kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    facts = await observe.observe_api(_settings(kubernetes__kubeconfig=kubeconfig), {})
    assert facts is not None
    assert facts.where.endswith("kubeconfig")
    return facts


async def test_missing_permissions_are_named(tmp_path: Path) -> None:
    """The API server itself is asked what this identity may do, permission by permission."""
    async with FakeApiServer().running() as server:
        for allowed in (b"true", b"false", b"false", b"true"):
            server.answer(201, body=b'{"status": {"allowed": %s}}' % allowed)
        facts = await _ask(server, tmp_path)
    assert (facts.problem, facts.denied) == ("", ("patch nodes", "patch nodes/status"))


async def test_the_versions_of_server_and_kubelet_are_read(tmp_path: Path) -> None:
    """The server's from itself, the kubelet's from the node object; a node that is not there yet has none."""
    async with FakeApiServer().running() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        settings = _settings(kubernetes__kubeconfig=kubeconfig, node__name=NODE)
        server.nodes[NODE]["status"]["nodeInfo"] = {"kubeletVersion": "v1.34.10"}
        facts = await observe.observe_api(settings, {})
        assert facts is not None
        assert (facts.server_version, facts.kubelet_version) == (VERSION, "v1.34.10")
        assert (await _ask(server, tmp_path)).kubelet_version == ""


async def test_a_version_that_may_not_be_read_is_no_fault(tmp_path: Path) -> None:
    """The rights of the agent are there all the same."""
    async with FakeApiServer().running() as server:
        for _ in observe.PERMISSIONS:
            server.answer(201, body=b'{"status": {"allowed": true}}')
        server.answer(403)
        facts = await _ask(server, tmp_path)
    assert (facts.problem, facts.denied, facts.server_version) == ("", (), "")


async def test_an_api_server_that_refuses_is_a_finding(tmp_path: Path) -> None:
    """What it said is told, and the doctor goes on."""
    async with FakeApiServer().running() as server:
        server.answer(403, times=2)
        facts = await _ask(server, tmp_path)
    assert "scripted 403" in facts.problem


async def test_an_api_server_that_is_not_wanted_is_not_asked() -> None:
    """Switched off is switched off, and without credentials nobody is bothered."""
    assert await observe.observe_api(_settings(kubernetes__enabled="false"), {}) is None
    assert await observe.observe_api(_settings(), {}) == ApiFacts()


async def _fail() -> str:
    raise DriverUnavailable("use NVML", "it is gone")


async def _hang() -> str:
    raise TimeoutError


@pytest.mark.parametrize(("part", "words"), [(_fail, "it is gone"), (_hang, "no answer within 20 s")])
async def test_a_part_that_fails_is_a_finding(part: Callable[[], Awaitable[str]], words: str) -> None:
    """One part that hangs or fails does not keep the others from being looked at."""
    found, problem = await observe.bounded(part)
    assert found is None
    assert words in problem


def test_a_profile_that_nobody_wrote_is_a_finding() -> None:
    """The doctor says so instead of ending."""
    hardware, problem = observe.find_hardware(_settings(gpus__source="simulated:nobody"))
    assert hardware is None
    assert "nobody" in problem
