"""Which of the cluster's parts exist with which settings and credentials."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from nodeagent.app.control import Control
from nodeagent.app.services import Services
from nodeagent.app.wiring.cluster import ClusterWiring
from nodeagent.config.live import LiveSettings
from nodeagent.config.load import load_settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.model.conditions import CATALOGUE

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def no_control() -> Control:
    raise AssertionError("nothing is built here")


async def identify_nobody() -> None:
    """Nobody holds a GPU."""


def read_settings(*overrides: str) -> LiveSettings:
    return LiveSettings(load_settings(environ={}, overrides=overrides).settings)


async def find_parts(live: LiveSettings, environ: Mapping[str, str]) -> tuple[list[str], set[str]]:
    clock = SystemClock()
    bus = Bus(clock)
    conditions = Conditions(bus, clock, CATALOGUE)
    side = ClusterWiring(
        Services(bus, conditions, clock, live), environ, "node-1", OrderHandlers(), no_control, identify_nobody
    )
    names = [spec.name for spec in side.specs()]
    await side.aclose()
    return names, {each.code for each in conditions.all_set()}


@pytest.fixture
def live(request: pytest.FixtureRequest) -> LiveSettings:
    """The settings that the test's parameters name, read before the loop runs."""
    return read_settings(*request.param)


@pytest.mark.parametrize(
    ("live", "environ", "parts", "codes"),
    [
        ((), {}, ["labeler"], set()),
        ((), IN_POD, ["labeler"], set()),
        (("kubernetes.enabled=true",), {}, ["labeler"], {"api-unreachable"}),
        (("kubernetes.kubeconfig=/absent",), {}, ["labeler", "cluster", "wishes", "signals", "node_conditions"], set()),
        (("kubernetes.kubeconfig=/absent", "kubernetes.enabled=false"), {}, ["labeler"], set()),
        (
            ("kubernetes.kubeconfig=/absent", "kubernetes.delete_refused_pods=[failed]"),
            {},
            ["labeler", "cluster", "wishes", "signals", "node_conditions", "refused_pods"],
            set(),
        ),
        (("kubernetes.delete_refused_pods=[failed]",), {}, ["labeler"], set()),
        (("driver.workload_validation=true",), {}, ["labeler", "workload_validation"], set()),
    ],
    indirect=["live"],
)
async def test_the_api_is_used_only_with_credentials(
    live: LiveSettings, environ: Mapping[str, str], parts: list[str], codes: set[str]
) -> None:
    """Without any, labels are still made for other sinks; only where the API is demanded is that a trouble."""
    assert await find_parts(live, environ) == (parts, codes)


@pytest.mark.parametrize("live", [()], indirect=True)
async def test_a_pod_with_a_token_uses_the_api(
    live: LiveSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service account is found where the kubelet mounts it."""
    monkeypatch.setattr("nodeagent.edge.kube.credentials.SERVICE_ACCOUNT_DIR", tmp_path)
    (tmp_path / "token").touch()
    assert await find_parts(live, IN_POD) == (["labeler", "cluster", "wishes", "signals", "node_conditions"], set())
