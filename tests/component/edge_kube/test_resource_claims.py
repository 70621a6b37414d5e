"""Claims and their pods in the API server, as a node reads them."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent.edge.kube.errors import ApiConflict, ApiInvalid, ApiRefused, ApiUnreachable, KubeError
from nodeagent.edge.kube.resource_claims import KubeClaims, StatusForbidden
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.claims import ClaimResult, DeviceCondition, DeviceToleration, OpaqueConfig, ResourceClaim
from nodeagent.model.proof import BINDING_CONDITION, BINDING_FAILURE
from tests.component.edge_kube.harness import open_client
from tests.fakes.apiserver import FakeApiServer

GROUP = {"kind": "APIGroup", "versions": [{"version": "v1beta1"}, {"version": "v1"}]}
POD = PodIdentity(namespace="ns", name="train", uid="pod-1")
CLAIM: dict[str, Any] = {
    "metadata": {"namespace": "ns", "name": "c1", "uid": "u1"},
    "spec": {},
    "status": {
        "reservedFor": [
            {"resource": "pods", "name": "train", "uid": "pod-1"},
            {"apiGroup": "example.com", "resource": "pods", "name": "x", "uid": "x"},
            {"resource": "jobs", "name": "x", "uid": "x"},
        ],
        "allocation": {
            "devices": {
                "results": [
                    {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"},
                    {
                        "request": "part/small",
                        "driver": "gpu.nvidia.com",
                        "pool": "n",
                        "device": "gpu-1",
                        "adminAccess": True,
                        "shareID": "s1",
                        "consumedCapacity": {"memory": "10Gi"},
                    },
                ],
                "config": [
                    {
                        "source": "FromClass",
                        "requests": ["gpu"],
                        "opaque": {"driver": "gpu.nvidia.com", "parameters": {"kind": "GpuConfig"}},
                    },
                    {"source": "FromClaim"},
                ],
            }
        },
    },
}
GONE = json.dumps(
    {
        "kind": "Status",
        "message": 'resourceclaims.resource.k8s.io "c1" not found',
        "reason": "NotFound",
        "details": {"name": "c1", "group": "resource.k8s.io", "kind": "resourceclaims"},
    }
).encode()
NO_PATH = json.dumps(
    {
        "kind": "Status",
        "message": "the server could not find the requested resource",
        "reason": "NotFound",
        "details": {},
    }
).encode()


def script(server: FakeApiServer, *documents: object) -> None:
    for document in documents:
        server.answer(200, body=json.dumps(document).encode())


async def test_a_claim_from_a_template_says_what_its_pod_calls_it(tmp_path: Path) -> None:
    """By the annotation that the API server writes; its own name is made up."""
    async with open_client(tmp_path) as (server, client):
        annotations = {"annotations": {"resource.kubernetes.io/pod-claim-name": "gpus"}}
        script(server, GROUP, {**CLAIM, "metadata": {**CLAIM["metadata"], **annotations}})
        found = await KubeClaims(client).find_claim("ns", "c1")
        assert found is not None
        assert found.pod_claim_name == "gpus"


async def test_a_claim_is_read_with_all_that_a_node_needs(tmp_path: Path) -> None:
    """In the best version that the server has, which is asked for once."""
    async with open_client(tmp_path) as (server, client):
        claims = KubeClaims(client)
        script(server, GROUP, CLAIM, CLAIM)
        found = await claims.find_claim("ns", "c1")
        assert found == ResourceClaim(
            namespace="ns",
            name="c1",
            uid="u1",
            is_allocated=True,
            results=(
                ClaimResult(request="gpu", driver="gpu.nvidia.com", pool="n", device="gpu-0"),
                ClaimResult(
                    request="part/small",
                    driver="gpu.nvidia.com",
                    pool="n",
                    device="gpu-1",
                    is_admin=True,
                    share_id="s1",
                    consumed={"memory": "10Gi"},
                ),
            ),
            configs=(
                OpaqueConfig(
                    source="FromClass", requests=("gpu",), driver="gpu.nvidia.com", parameters={"kind": "GpuConfig"}
                ),
                OpaqueConfig(source="FromClaim", requests=(), driver=""),
            ),
            pods=(POD,),
        )
        await claims.find_claim("ns", "../c1?x")
        paths = [path for _, path in server.requests]
        assert paths[:2] == ["/apis/resource.k8s.io", "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c1"]
        assert paths.count("/apis/resource.k8s.io") == 1


async def test_a_claim_is_read_with_what_its_scheduler_waits_for(tmp_path: Path) -> None:
    """A condition of another share of the device, and one that is not true, count for nothing."""
    found = await read_allocated(
        tmp_path,
        {"bindingConditions": [BINDING_CONDITION], "tolerations": [{"operator": "Exists"}, {"key": "k", "value": "v"}]},
        {"device": "gpu-0", "conditions": [{"type": "a", "status": "True"}, {"type": "b", "status": "False"}]},
        {"device": "gpu-0", "shareID": "s2", "conditions": [{"type": "c", "status": "True"}]},
    )
    result = found.results[0]
    assert (result.awaited, result.reached) == ((BINDING_CONDITION,), frozenset({"a"}))
    assert result.tolerations == (DeviceToleration(), DeviceToleration(key="k", value="v"))
    assert (found.version, found.allocated_at) == ("7", "2031-05-01T08:00:00Z")


async def read_allocated(tmp_path: Path, result: dict[str, Any], *statuses: dict[str, Any]) -> ResourceClaim:
    (first, *_) = CLAIM["status"]["allocation"]["devices"]["results"]
    allocation = {"allocationTimestamp": "2031-05-01T08:00:00Z", "devices": {"results": [first | result]}}
    devices = [{"driver": first["driver"], "pool": "n", **each} for each in statuses]
    async with open_client(tmp_path) as (server, client):
        metadata = CLAIM["metadata"] | {"resourceVersion": "7"}
        script(server, GROUP, {"metadata": metadata, "status": {"allocation": allocation, "devices": devices}})
        found = await KubeClaims(client).find_claim("ns", "c1")
    assert found is not None
    return found


async def test_the_conditions_of_devices_are_written_beside_those_of_other_drivers(tmp_path: Path) -> None:
    """For the claim as it was read, and no later one."""
    network = {"driver": "nic.example.com", "pool": "n", "device": "eth1", "data": {"a": 1}}
    shared = await read_allocated(tmp_path, {"shareID": "s1"}, network, {"device": "gpu-0", "shareID": "s1"})
    whole = await read_allocated(tmp_path, {})
    kept, ours = await write(tmp_path, shared, is_proven=True)
    assert kept == network
    told = {"reason": "R", "message": "m" * 1024, "lastTransitionTime": "1970-01-01T00:00:00Z"}
    device = {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"}
    proven = {"type": BINDING_CONDITION, "status": "True", **told}
    assert ours == {**device, "shareID": "s1", "conditions": [proven]}
    failed = [proven | {"status": "False"}, {"type": BINDING_FAILURE, "status": "True", **told}]
    assert await write(tmp_path, whole, is_proven=False) == [{**device, "conditions": failed}]


async def write(tmp_path: Path, claim: ResourceClaim, *, is_proven: bool) -> list[dict[str, Any]]:
    said = DeviceCondition(result=claim.results[0], is_proven=is_proven, reason="R", message="m" * 2000)
    async with open_client(tmp_path) as (server, client):
        server.claims["c1"] = {"metadata": CLAIM["metadata"] | {"resourceVersion": "7"}, "status": {}}
        claims = KubeClaims(client)
        await claims.write_conditions(claim, [said], 0.0)
        with pytest.raises(ApiConflict):
            await claims.write_conditions(claim, [said], 0.0)
        devices: list[dict[str, Any]] = server.claims["c1"]["status"]["devices"]
        return devices


@pytest.mark.parametrize(
    ("status", "message", "raised"),
    [
        (403, "resourceclaims/status is forbidden", StatusForbidden),
        (422, 'status.devices: Forbidden: requires resource="resourceclaims/driver"', StatusForbidden),
        (422, "status.devices[0].device: Invalid value", ApiInvalid),
    ],
)
async def test_a_refused_condition_names_the_rights(
    tmp_path: Path, status: int, message: str, raised: type[ApiRefused]
) -> None:
    """The API server judges the right to a driver's devices with the claim's fields."""
    claim = await read_allocated(tmp_path, {})
    async with open_client(tmp_path) as (server, client):
        script(server, GROUP)
        server.answer(status, body=json.dumps({"kind": "Status", "message": message}).encode())
        with pytest.raises(raised) as caught:
            await KubeClaims(client).write_conditions(claim, (), 0.0)
        assert ("deploy/rbac-proof.yaml" in str(caught.value)) is (raised is StatusForbidden)


async def test_many_first_claims_ask_for_the_version_once_and_none_asks_where_it_was_learned_before(
    tmp_path: Path,
) -> None:
    """One question for each pod that waits, and no more."""
    async with open_client(tmp_path) as (server, client):
        claims = KubeClaims(client)
        script(server, GROUP, CLAIM, CLAIM, CLAIM)
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(claims.find_claim, "ns", "c1")
        assert [path for _, path in server.requests].count("/apis/resource.k8s.io") == 1
        learned = KubeClaims(client)
        script(server, GROUP, CLAIM)
        await learned.learn_version()
        before = len(server.requests)
        await learned.find_claim("ns", "c1")
        assert len(server.requests) == before + 1
        server.answer(500)
        with pytest.raises(KubeError, match="learn the version of claims: the API server answered 500"):
            await KubeClaims(client).learn_version()


async def test_an_older_server_is_asked_in_its_own_version(tmp_path: Path) -> None:
    """A claim that nobody has allocated says nothing; one without any version that we know is told."""
    async with open_client(tmp_path) as (server, client):
        script(server, {"versions": [{"version": "v1beta1"}]}, {"metadata": CLAIM["metadata"]})
        found = await KubeClaims(client).find_claim("ns", "c1")
        assert found == ResourceClaim(namespace="ns", name="c1", uid="u1", is_allocated=False)
        assert server.requests[-1][1].startswith("/apis/resource.k8s.io/v1beta1/")
        script(server, {"versions": [{"version": "v1alpha3"}]})
        with pytest.raises(ApiUnreachable, match=r"read claim ns/c1: .* it has none of resource.k8s.io v1, v1beta2"):
            await KubeClaims(client).find_claim("ns", "c1")


async def test_one_that_is_gone_is_none_and_trouble_is_told(tmp_path: Path) -> None:
    """A missing right, and an answer that makes no sense, are no missing claim."""
    async with open_client(tmp_path) as (server, client):
        claims = KubeClaims(client)
        script(server, GROUP)
        server.answer(404, body=GONE)
        assert await claims.find_claim("ns", "c1") is None
        for status in (403, 500):
            server.answer(status)
            with pytest.raises(KubeError, match=f"read claim ns/c1: the API server answered {status}"):
                await claims.find_claim("ns", "c1")
        for document in ({}, {"metadata": 7}, {**CLAIM, "status": {"allocation": {"devices": {"results": [{}]}}}}):
            script(server, document)
            with pytest.raises(ApiUnreachable, match="its answer makes no sense"):
                await claims.find_claim("ns", "c1")
        server.answer(200, body=b'{"a":' * 5000 + b"1" + b"}" * 5000)
        with pytest.raises(ApiUnreachable, match="nested deeper than anything that makes sense"):
            await claims.find_claim("ns", "c1")
        for document in ({"metadata": [7]}, {"status": 7}):
            script(server, document)
            with pytest.raises(ApiUnreachable, match=r"read pod ns/train: .* its answer makes no sense"):
                await claims.is_alive(POD)
        script(server, {"versions": [7]})
        with pytest.raises(ApiUnreachable, match="its answer makes no sense"):
            await KubeClaims(client).find_claim("ns", "c1")


@pytest.mark.parametrize("body", [b"404 page not found\n", b"<html>no such host</html>", NO_PATH])
async def test_a_server_that_does_not_know_the_path_says_nothing_of_a_claim(tmp_path: Path, body: bytes) -> None:
    """It has lost a version with an upgrade, or another one answers in its place: the version is asked for anew."""
    async with open_client(tmp_path) as (server, client):
        claims = KubeClaims(client)
        script(server, {"versions": [{"version": "v1beta2"}]}, CLAIM)
        assert await claims.find_claim("ns", "c1") is not None
        server.answer(404, body=body)
        with pytest.raises(ApiUnreachable, match=r"read claim ns/c1: .* it has no resource.k8s.io v1beta2 any more"):
            await claims.find_claim("ns", "c1")
        script(server, GROUP, CLAIM)
        assert await claims.find_claim("ns", "c1") is not None
        assert server.requests[-1][1].startswith("/apis/resource.k8s.io/v1/")


async def test_a_pod_is_alive_until_it_has_ended_is_asked_to_go_or_is_another_one(tmp_path: Path) -> None:
    known = {"metadata": {"uid": "pod-1"}, "status": {"phase": "Pending"}}
    async with open_client(tmp_path) as (server, client):
        claims = KubeClaims(client)
        for document, alive in (
            (known, True),
            ({"metadata": {"uid": "pod-1"}}, True),
            ({**known, "status": {"phase": "Succeeded"}}, False),
            ({**known, "metadata": {"uid": "pod-1", "deletionTimestamp": "now"}}, False),
            ({**known, "metadata": {"uid": "pod-2"}}, False),
            ({}, False),
        ):
            script(server, document)
            assert await claims.is_alive(POD) is alive
        assert await claims.is_alive(POD) is False
        server.answer(404, body=b"404 page not found\n")
        with pytest.raises(ApiUnreachable, match=r"read pod ns/train: .* another one answers"):
            await claims.is_alive(POD)
        server.answer(500)
        with pytest.raises(KubeError, match="read pod ns/train"):
            await claims.is_alive(POD)


async def test_a_hundred_claims_do_not_wait_for_their_turn(tmp_path: Path) -> None:
    """Pods wait for them; what others ask still comes in its turn, and a server that wants peace has it."""
    async with open_client(tmp_path) as (server, client):
        claims = KubeClaims(client)
        script(server, GROUP, *[CLAIM] * 100)
        for _ in range(100):
            assert await claims.find_claim("ns", "c1") is not None
        server.answer(429, headers={"Retry-After": "30"})
        for _ in range(2):
            with pytest.raises(KubeError):
                await claims.find_claim("ns", "c1")
        assert len(server.requests) == 102
