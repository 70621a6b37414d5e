"""The admission policy for claims on the real API server: it refuses what Prepare refuses on every node, no more."""

from collections.abc import Iterator
from typing import Any

import pytest

from nodeagent.model.nvidia import DRA_DRIVER
from tests.integration.claim_configs import find_refusal, list_configs
from tests.integration.cluster.api import Api
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.errors import ApiRefused
from tests.integration.cluster.layout import CHECKOUT
from tests.integration.cluster.processes import wait_until
from tests.support.claims import gpu_config

Json = Any
POLICY = CHECKOUT / "deploy/claim-policy.yaml"
GROUP = "/apis/resource.k8s.io/v1/namespaces/default"
BY_POLICY = "nodeagent-claim-configurations"
UNKNOWN_KIND = gpu_config(kind="Unknown")


@pytest.fixture(scope="module")
def api(api_server: Cluster) -> Iterator[Api]:
    """The API server for as long as the policy counts."""
    api_server.run("kubectl", "apply", "-f", str(POLICY))
    made = api_server.api

    def probe() -> str | None:
        return None if find_refusal_by(made, UNKNOWN_KIND) else "the claim was taken"

    wait_until("the policy to count", probe, timeout_seconds=30)
    yield made
    api_server.run("kubectl", "delete", "-f", str(POLICY))


def find_refusal_by(api: Api, parameters: Json, kind: str = "ResourceClaim", driver: str = DRA_DRIVER) -> str:
    """Why the API server takes no claim with this configuration; empty for one that it takes; nothing is stored."""
    spec: Json = {
        "devices": {
            "requests": [{"name": "gpu", "exactly": {"deviceClassName": DRA_DRIVER}}],
            "config": [{"opaque": {"driver": driver, "parameters": parameters}}],
        }
    }
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "asked"},
        "spec": spec if kind == "ResourceClaim" else {"spec": spec},
    }
    try:
        api.post(f"{GROUP}/{kind.lower()}s?dryRun=All", document)
    except ApiRefused as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_a_claim_is_refused_when_it_is_made_where_every_node_would_refuse_it(api: Api, kind: str) -> None:
    """Each field with what belongs there and what does not; the message tells the field and the remedy."""
    for parameters in list_configs():
        assert bool(find_refusal_by(api, parameters, kind)) is bool(find_refusal(parameters)), parameters
    said = find_refusal_by(api, gpu_config({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "x"}}), kind)
    assert BY_POLICY in said
    assert "timeSlicingConfig has interval alone, one of Default, Short, Medium, Long" in said


def test_configurations_of_other_drivers_are_left_to_them(api: Api) -> None:
    assert not find_refusal_by(api, UNKNOWN_KIND, driver="nic.example.com")
