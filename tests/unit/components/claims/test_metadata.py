"""What containers read about the devices of their claims, and where."""

import json
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from nodeagent.components.claims.metadata import (
    VERSIONS,
    describe_claimed,
    find_pod_claim_name,
    list_requests,
    locate_in_container,
    render_metadata,
    wants_metadata,
)
from nodeagent.components.claims.prepare import NodeView, Powers, plan_claim, with_uuids
from nodeagent.model.claims import ClaimResult
from nodeagent.model.cluster import ClusterNode
from nodeagent.model.ids import MigUuid, PciAddress
from nodeagent.model.journal import PreparedClaim
from nodeagent.model.slices import Version
from nodeagent.rules.claims.attributes import DeviceFacts
from tests.support.claims import DRIVER, POOL, behind_claims, make_claim, make_result, with_minors
from tests.support.files.golden import check_golden
from tests.support.gpus import gpu_uuid, make_gpu
from tests.unit.components.claims.test_prepare import cuttable

INVENTORY = with_minors(make_gpu(0, numa_node=1), cuttable(1), replace(make_gpu(2), memory_total_bytes=80 << 30))
POWERS = Powers(makes_mig_devices=True, holds_shares=True)
FACTS = DeviceFacts(driver_version="580.65.06", cuda_version=(13, 0), roots={PciAddress("0000:10:00.0"): "pci0000:00"})
SHARE: dict[str, Any] = {"share_id": "s1", "consumed": {"memory": "10Gi", "cores": "30"}}


def prepare(*results: ClaimResult, template: str = "") -> PreparedClaim:
    view = NodeView(INVENTORY, behind_claims(INVENTORY.gpus), DRIVER, POOL, POWERS, has_metadata=True)
    return plan_claim(make_claim(*results, pod_claim_name=template), view, 7.0)


def render(claim: PreparedClaim, request: str, before: bytes = b"", facts: DeviceFacts = FACTS) -> bytes:
    devices = [(each, describe_claimed(each, INVENTORY, facts)) for each in list_requests(claim)[request]]
    return render_metadata(claim, request, devices, DRIVER, before)


def read(content: bytes) -> list[Any]:
    return [json.loads(line) for line in content.splitlines()]


@pytest.mark.parametrize(
    ("choice", "version", "wanted"),
    [
        ("auto", "v1.37.2", True),
        ("auto", "v1.38.0-rc.1+k3s1", True),
        ("auto", "v2.0.0", True),
        ("auto", "v1.36.4", False),
        ("auto", "v1.4.0", False),
        ("auto", "unknown", False),
        ("true", "v1.33.1", True),
        ("false", "v1.37.2", False),
    ],
)
def test_files_come_with_the_versions_that_have_readers(
    choice: Literal["auto", "true", "false"], version: str, *, wanted: bool
) -> None:
    """Unless somebody decides otherwise."""
    assert wants_metadata(choice, ClusterNode(name="node-1", uid="1", kubelet_version=version)) is wanted


def test_a_node_that_is_not_known_is_an_old_one() -> None:
    assert not wants_metadata("auto", None)


@pytest.mark.parametrize(("template", "path"), [("", "resourceclaims/c1"), ("gpus", "resourceclaimtemplates/gpus")])
def test_a_container_finds_the_file_without_asking_anybody(template: str, path: str) -> None:
    """By the name of the claim, or by the pod's own name for one from a template: its claim's name is made up."""
    claim = prepare(make_result(), template=template)
    place = f"/var/run/kubernetes.io/dra-device-attributes/{path}/gpu/{DRIVER}-metadata.json"
    assert locate_in_container(claim, "gpu", DRIVER) == place


@pytest.mark.parametrize("name", ["../../etc", "Gpus", "a" * 64, "gpus\n", ""])
def test_a_name_that_no_pod_can_have_is_none(name: str) -> None:
    """Whoever makes a claim writes its annotations: no path is made of what is no name."""
    assert find_pod_claim_name(make_claim(make_result(), pod_claim_name=name)) == ""


def test_the_same_is_said_in_each_version_the_newest_first() -> None:
    """A reader takes the first that it knows."""
    documents = read(render(prepare(make_result(), template="gpus"), "gpu"))
    assert tuple(each.pop("apiVersion") for each in documents) == VERSIONS
    assert documents[0] == documents[1]
    assert documents[0]["podClaimName"] == "gpus"
    assert documents[0]["metadata"] == {"name": "c1", "namespace": "ns", "uid": "claim-1", "generation": 1}
    assert "podClaimName" not in read(render(prepare(make_result()), "gpu"))[0]


def test_a_reader_of_one_device_finds_one_device() -> None:
    """As KubeVirt's, which takes the PCI address from the only device of the only file of its request."""
    claim = prepare(make_result("gpu-0", "first"), make_result("gpu-2", "second"))
    for request, device in (("first", INVENTORY.gpus[0]), ("second", INVENTORY.gpus[2])):
        (entry,) = read(render(claim, request))[0]["requests"]
        (told,) = entry["devices"]
        assert (entry["name"], told["driver"], told["pool"]) == (request, DRIVER, POOL)
        assert told["attributes"]["resource.kubernetes.io/pciBusID"] == {"string": device.pci.address}


def test_an_alternative_is_named_and_its_request_has_the_file() -> None:
    """Containers name the request, whatever the scheduler chose."""
    claim = prepare(make_result("gpu-0", "gpu/big"))
    assert list(list_requests(claim)) == ["gpu"]
    assert [each["name"] for each in read(render(claim, "gpu"))[0]["requests"]] == ["gpu/big"]


def test_attributes_are_those_of_the_slice_in_the_form_of_the_slice() -> None:
    told = read(render(prepare(make_result()), "gpu"))[0]["requests"][0]["devices"][0]["attributes"]
    assert told["driverVersion"] == {"version": "580.65.6"}
    assert told["resource.kubernetes.io/numaNode"] == {"int": 1}
    assert told["resource.kubernetes.io/pcieRoot"] == {"string": "pci0000:00"}
    assert told["uuid"] == {"string": gpu_uuid(0)}


def test_a_truth_value_is_no_number() -> None:
    (device,) = prepare(make_result()).devices
    content = render_metadata(prepare(make_result()), "gpu", [(device, {"yes": True, "v": Version(text="1.0.0")})], "d")
    assert read(content)[0]["requests"][0]["devices"][0]["attributes"] == {
        "yes": {"bool": True},
        "v": {"version": "1.0.0"},
    }


def test_a_mig_device_that_was_made_for_the_claim_has_its_uuid() -> None:
    """In the slice it has none: another is made for each claim."""
    name = "gpu-1-mig-1g10gb-19-2"
    claim = with_uuids(prepare(make_result(name)), {name: MigUuid("MIG-new")})
    told = describe_claimed(claim.devices[0], INVENTORY, FACTS)
    assert (told["type"], told["uuid"], told["parentUUID"]) == ("mig", "MIG-new", gpu_uuid(1))


def test_a_device_that_is_gone_keeps_its_uuid() -> None:
    (device,) = prepare(make_result("gpu-2")).devices
    assert describe_claimed(device, replace(INVENTORY, gpus=()), FACTS) == {"uuid": gpu_uuid(2)}


def test_a_share_has_its_amounts_under_a_name_of_ours() -> None:
    """The format has no field for them."""
    told = describe_claimed(prepare(make_result("gpu-2", **SHARE)).devices[0], INVENTORY, FACTS)
    assert (told["nodeagent.io/shareID"], told["nodeagent.io/shareCores"]) == ("s1", 30)
    assert told["nodeagent.io/shareMemoryBytes"] == 10 << 30


def test_two_shares_of_one_gpu_are_two_devices_of_the_request() -> None:
    claim = prepare(make_result("gpu-2", **SHARE), make_result("gpu-2", **{**SHARE, "share_id": "s2"}))
    (entry,) = read(render(claim, "gpu"))[0]["requests"]
    assert [one["attributes"]["nodeagent.io/shareID"]["string"] for one in entry["devices"]] == ["s1", "s2"]


def test_a_file_that_says_the_same_is_the_same_and_another_is_of_the_next_generation() -> None:
    """A reader sees by the number that something has changed."""
    claim = prepare(make_result())
    first = render(claim, "gpu")
    assert render(claim, "gpu", first) == first
    second = render(claim, "gpu", first, DeviceFacts())
    assert [each["metadata"]["generation"] for each in read(second)] == [2, 2]
    assert render(claim, "gpu", second, DeviceFacts()) == second


@pytest.mark.parametrize("before", [b"", b"\0\0\0", b"{}\n", b"[]\n", b'{"metadata":{"generation":null}}\n', b"\xff"])
def test_a_file_that_is_none_is_written_from_the_beginning(before: bytes) -> None:
    """As after a power cut."""
    claim = prepare(make_result())
    assert render(claim, "gpu", before) == render(claim, "gpu")


@pytest.mark.parametrize("name", ["template", "named"])
def test_files_are_as_in_the_golden_files(name: str) -> None:
    results = (
        make_result("gpu-0", "whole"),
        make_result("gpu-1-mig-1g10gb-19-2", "part/small"),
        make_result("gpu-2", "share", **SHARE),
    )
    claim = prepare(*results, template="gpus" if name == "template" else "")
    claim = with_uuids(claim, {"gpu-1-mig-1g10gb-19-2": MigUuid("MIG-new")})
    files = [
        f"# {locate_in_container(claim, request, DRIVER)}\n" + render(claim, request).decode()
        for request in list_requests(claim)
    ]
    check_golden(f"metadata/{name}.txt", "".join(files))
