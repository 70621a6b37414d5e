"""What is told of devices as attributes: NVIDIA's names, nothing that is not known."""

import pytest
from msgspec.structs import replace

from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Fabric, FabricPhase, Gpu, GpuPair, PathKind
from nodeagent.model.ids import PciAddress
from nodeagent.model.proof import GpuProofs
from nodeagent.model.slices import Version
from nodeagent.rules.claims.attributes import (
    DeviceFacts,
    describe_attributes,
    group_by_nvlink,
    learn_facts,
    parse_version,
)
from nodeagent.rules.claims.naming import NamedDevice, list_devices
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, make_mig_devices
from tests.support.mig import make_mig_gpu
from tests.support.repairs import make_failed, make_passed

NOWHERE = DeviceFacts()


def full_gpu() -> Gpu:
    return replace(
        make_gpu(0, numa_node=1),
        brand="NVIDIA",
        addressing_mode="ATS",
        architecture="Hopper",
        compute_capability=(9, 0),
        fabric=Fabric(phase=FabricPhase.COMPLETED, cluster_uuid="ABCD-12", clique_id=3),
    )


def whole(gpu: Gpu) -> NamedDevice:
    return NamedDevice(name="gpu-0", gpu=gpu)


def first_part(gpu: Gpu, *, on_demand: bool = False) -> NamedDevice:
    devices = list_devices(make_inventory([gpu]), {gpu.uuid}, on_demand=on_demand)
    return next(one for one in devices if not one.is_gpu)


def test_a_gpu_has_all_that_the_driver_of_nvidia_tells_and_what_the_api_has_names_for() -> None:
    """Selectors that were written for that driver keep their meaning."""
    around = DeviceFacts(
        driver_version="550.163.01",
        cuda_version=(12, 4),
        roots={PciAddress("0000:10:00.0"): "pci0000:00"},
        groups={gpu_uuid(0): gpu_uuid(0)},
    )
    assert describe_attributes(whole(full_gpu()), around) == {
        "type": "gpu",
        "uuid": gpu_uuid(0),
        "index": 0,
        "productName": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "cudaComputeCapability": Version(text="9.0.0"),
        "driverVersion": Version(text="550.163.1"),
        "cudaDriverVersion": Version(text="12.4.0"),
        "addressingMode": "ATS",
        "nvlinkClique": "abcd-12.3",
        "nvlinkGroup": gpu_uuid(0),
        "resource.kubernetes.io/pciBusID": "0000:10:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
        "resource.kubernetes.io/numaNode": 1,
    }


def test_what_is_not_known_is_left_out() -> None:
    """A selector that asks for it then does not match, rather than match by accident."""
    attributes = describe_attributes(whole(make_gpu(0)), NOWHERE)
    assert sorted(attributes) == ["index", "productName", "resource.kubernetes.io/pciBusID", "type", "uuid"]
    no_place = replace(full_gpu(), fabric=Fabric(phase=FabricPhase.COMPLETED, cluster_uuid="0000-00"))
    assert "nvlinkClique" not in describe_attributes(whole(no_place), NOWHERE)


def test_a_numa_node_zero_is_told() -> None:
    attributes = describe_attributes(whole(make_gpu(0, numa_node=0)), NOWHERE)
    assert attributes["resource.kubernetes.io/numaNode"] == 0


def test_a_mig_device_has_its_profile_and_its_parent() -> None:
    """Its UUID only where it exists."""
    gpu = make_mig_gpu(0, "h100-sxm5-80gb", enabled=True)
    assert gpu.mig is not None
    made = replace(gpu, mig=replace(gpu.mig, devices=make_mig_devices(0, ["1g.10gb"])))
    there = describe_attributes(first_part(made), NOWHERE)
    assert (there["type"], there["parentUUID"], there["profile"]) == ("mig", gpu.uuid, "1g.10gb")
    assert there["uuid"] == made.mig_devices[0].uuid
    to_be_made = describe_attributes(first_part(gpu, on_demand=True), NOWHERE)
    assert (to_be_made["type"], to_be_made["profile"]) == ("mig", "1g.10gb")
    assert "uuid" not in to_be_made


def test_a_long_name_is_cut_between_characters() -> None:
    """The API refuses a whole slice for one value that is too long."""
    attributes = describe_attributes(whole(make_gpu(0, name="é" * 40)), NOWHERE)
    assert attributes["productName"] == "é" * 32


@pytest.mark.parametrize(
    ("text", "version"),
    [("535.54.03", "535.54.3"), ("12.4", "12.4.0"), ("580", "580.0.0"), ("590.1.2.7", "590.1.2")],
)
def test_versions_are_made_comparable(text: str, version: str) -> None:
    """Leading zeros and missing numbers are no versions to the API."""
    assert parse_version(text) == Version(text=version)


def test_no_version_is_none() -> None:
    """Before the driver was asked."""
    assert parse_version("") is None


def test_a_driver_that_is_away_is_not_another_driver() -> None:
    """What it said of itself is told on; where it is back, it says it anew."""
    ready = DriverState(phase=DriverPhase.READY, driver_version="580.65.06", cuda_version=(13, 0))
    pair = GpuPair(left=gpu_uuid(0), right=gpu_uuid(1), path=PathKind.SYSTEM, nvlink_count=4)
    roots = {PciAddress("0000:10:00.0"): "pci0000:00"}
    facts = learn_facts(NOWHERE, ready, (pair,), roots)
    assert (facts.driver_version, facts.cuda_version, facts.roots) == ("580.65.06", (13, 0), roots)
    assert facts.groups == dict.fromkeys((gpu_uuid(0), gpu_uuid(1)), gpu_uuid(0))
    for driver in (None, DriverState(phase=DriverPhase.STUCK)):
        away = learn_facts(facts, driver, (), {})
        assert away == DeviceFacts(driver_version="580.65.06", cuda_version=(13, 0))


def test_gpus_that_reach_one_another_over_nvlink_have_one_name() -> None:
    """Directly or by others; who reaches nobody has none."""

    def pair(left: int, right: int, links: int) -> GpuPair:
        return GpuPair(left=gpu_uuid(left), right=gpu_uuid(right), path=PathKind.SYSTEM, nvlink_count=links)

    groups = group_by_nvlink((pair(0, 1, 4), pair(0, 2, 0), pair(2, 3, 2), pair(1, 4, 1), pair(0, 5, 0)))
    assert groups == {
        gpu_uuid(0): gpu_uuid(0),
        gpu_uuid(1): gpu_uuid(0),
        gpu_uuid(4): gpu_uuid(0),
        gpu_uuid(2): gpu_uuid(2),
        gpu_uuid(3): gpu_uuid(2),
    }


def test_a_gpu_that_passed_a_proof_says_when_and_by_which_stage() -> None:
    """A MIG device says nothing: the GPU was proven without MIG; a failed GPU says nothing either."""
    proofs = GpuProofs(gpus={gpu_uuid(0): make_passed(1e9), gpu_uuid(1): make_failed()})
    facts = learn_facts(NOWHERE, None, (), {}, proofs)
    told = describe_attributes(whole(make_gpu(0)), facts)
    assert (told["nodeagent.io/proofLevel"], told["nodeagent.io/provenAt"]) == ("quick", "2001-09-09T01:46:40Z")
    others = (whole(make_gpu(1)), first_part(make_gpu(0, mig=["1g.10gb"])))
    assert not any("proof" in name for one in others for name in describe_attributes(one, facts))
