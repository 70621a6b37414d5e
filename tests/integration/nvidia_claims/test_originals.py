"""What NVIDIA's DRA driver 0.5.0 and ours read in claims and publish of devices, with a reason for each difference."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from nodeagent.components.claims.opaque import read_parameters
from nodeagent.components.slices.describe import MIB
from nodeagent.components.slices.plan import plan_contents
from nodeagent.config.sections.claims import BY_MEMORY
from nodeagent.edge.kube.slice_document import render_slice
from nodeagent.model.gpu import Gpu, MigAttributes
from nodeagent.model.nvidia import CLAIM_BRANDS
from nodeagent.model.slices import SlicePool
from nodeagent.rules.claims.attributes import DeviceFacts
from nodeagent.rules.claims.quantity import parse_quantity
from nodeagent.rules.mps.limits import resolve_limits
from tests.generators.claim_policy import MPS, SHARING
from tests.integration.claim_configs import GPUS, find_refusal, list_configs
from tests.integration.nvidia_claims import DRA_DRIVER
from tests.integration.nvidia_plugin.program import Original, ask_original
from tests.integration.runtimes.releases import BUILD_SECONDS
from tests.support.gpus import make_mig_devices
from tests.support.mig import make_mig_gpu
from tests.support.slices import DRIVER, make_sight

pytestmark = [
    pytest.mark.timeout(BUILD_SECONDS),
    pytest.mark.may_block("a compiler is waited for"),
]

Json = Any
DRIVER_050: Final = Original(
    *DRA_DRIVER,
    package="cmd/gpu-kubelet-plugin",
    test=Path(__file__).parent / "claims_test.go",
    function="TestClaims",
    # The other files want modules that the tests have no use for.
    files=("allocatable.go", "consumable_shares.go", "deviceinfo.go", "mig.go", "partitions.go", "types.go"),
)

EXPLAINED: Final = {
    "vfio": "VfioDeviceConfig: ours refuses it, for GPUs of virtual machines are devices of the configured classes",
    "compute domain": "ComputeDomainChannelConfig: theirs reads it for another driver, ours for none",
    "no interval": "timeSlicingConfig without an interval: theirs dies by a nil pointer, ours takes Default",
    "two ways": "MigDeviceConfig with TimeSlicing and mpsConfig: theirs drops mpsConfig in silence, ours refuses it",
    "spaces": "a limit with spaces round it: theirs drops the spaces, ours refuses the limit",
}
MORE: Final = {
    "index": "theirs published it once",
    "nvlinkGroup": "theirs has no name for the GPUs of a node that reach one another",
    "nvlinkClique": "theirs publishes it of the devices of its driver for compute domains",
    "cores": "theirs does not divide compute",
}
"""What ours publishes beside what theirs does."""


def explain(parameters: Json, ours: str, theirs: Mapping[str, Json]) -> str:
    """The explanation of a difference; empty where both take or both refuse the configuration."""
    if bool(ours) is bool(theirs["error"]):
        return ""
    kind, sharing = parameters.get("kind"), parameters.get("sharing") or {}
    if kind in {"VfioDeviceConfig", "ComputeDomainChannelConfig"}:
        return "vfio" if kind == "VfioDeviceConfig" else "compute domain"
    if theirs["error"].startswith("panic") and not sharing["timeSlicingConfig"].get("interval"):
        return "no interval"
    if kind == "MigDeviceConfig" and sharing["strategy"] == "TimeSlicing" and "mpsConfig" in sharing:
        return "two ways"
    return "spaces" if "' 1Gi' is no quantity" in ours else "unexplained"


def render_ours(parameters: Json) -> Json:
    """A configuration as the node acts on it: strategy, time slice, limits, and whether users share a server."""
    request = read_parameters(parameters, "parameters")
    mps = request.mps
    limits = resolve_limits(GPUS, mps.thread_percentage, mps.memory_bytes, dict(mps.memory_bytes_by_gpu))
    return {
        "kind": request.kind,
        "strategy": request.way.value if request.way else None,
        "interval": request.interval or None,
        "percentage": limits.thread_percentage,
        "multi_user": mps.multi_user,
        "limits": {gpu: f"{size}M" for gpu, size in limits.memory_mib.items()},
    }


def render_theirs(answer: Json) -> Json:
    config = answer["config"]
    sharing = config.get("sharing") or {}
    mps = sharing.get("mpsConfig") or {}
    is_sliced = sharing.get("strategy") == "TimeSlicing"
    return {
        "kind": config["kind"],
        "strategy": sharing.get("strategy"),
        # A MIG device has no time slice of its own: ours calls that the driver's own.
        "interval": (sharing.get("timeSlicingConfig") or {}).get("interval", "Default") if is_sliced else None,
        "percentage": mps.get("defaultActiveThreadPercentage"),
        "multi_user": mps.get("multiUser", False),
        "limits": answer.get("limits") or {},
    }


def test_configurations_are_read_as_by_the_original(tmp_path: Path) -> None:
    """The fields by name, and every field with what belongs there and what does not."""
    configs = list(list_configs())
    questions = [{"ask": "config", "parameters": each, "uuids": GPUS} for each in configs]
    kinds = [{"ask": "fields", "kind": kind} for kind in ("GpuConfig", "MigDeviceConfig")]
    gpu, mig, *answers = ask_original(DRIVER_050, [*kinds, *questions], tmp_path)
    known = {"sharing", *(f"sharing.{each}" for each in SHARING), *(f"sharing.mpsConfig.{each}" for each in MPS)}
    assert set(gpu["fields"]) == known | {"sharing.timeSlicingConfig.interval"}
    assert set(mig["fields"]) == known - {"sharing.timeSlicingConfig"}
    found = [
        (explain(each, find_refusal(each), theirs), each, theirs) for each, theirs in zip(configs, answers, strict=True)
    ]
    unexplained = [each for each in found if each[0] == "unexplained"]
    assert not unexplained, unexplained[0]
    # An explanation that explains nothing any more is to go.
    assert {each[0] for each in found if each[0]} == set(EXPLAINED)
    for _, parameters, theirs in found:
        if not find_refusal(parameters) and not theirs["error"]:
            assert render_ours(parameters) == render_theirs(theirs), parameters


BOARD: Final = replace(
    make_mig_gpu(0, "h100-sxm5-80gb", enabled=True),
    minor=0,
    numa_node=1,
    brand="NVIDIA",
    architecture="Hopper",
    compute_capability=(9, 0),
    addressing_mode="HMM",
    memory_total_bytes=81559 * MIB + 5,
)
WHOLE: Final = replace(BOARD, mig=None)
FACTS: Final = DeviceFacts(
    driver_version="580.65.06", cuda_version=(13, 0), roots={BOARD.pci.address: "pci0000:00"}, groups={BOARD.uuid: "g"}
)


def ask_device(gpu: Gpu, shares: str) -> Json:
    """The same device as a question."""
    fact = {
        "uuid": gpu.uuid,
        "minor": gpu.minor,
        "memory_bytes": gpu.memory_total_bytes,
        "product_name": gpu.name,
        "brand": CLAIM_BRANDS[gpu.brand],
        "architecture": gpu.architecture,
        "capability": "9.0",
        "driver": "580.65.6",
        "cuda": "13.0",
        "address": gpu.pci.address,
        "root": "pci0000:00",
        "numa_node": gpu.numa_node,
        "addressing": gpu.addressing_mode,
    }
    return {"ask": "device", "shares": shares, "gpu": fact}


def publish(gpu: Gpu, **choices: Json) -> Json:
    """The device as it stands in our slice."""
    (content,) = plan_contents(make_sight([gpu], choices=choices, facts=FACTS))
    document = render_slice(SlicePool(driver=DRIVER, node="n"), "s", content, (1, 1), "uid")
    return document["spec"]["devices"][0]


def in_bytes(capacity: Json) -> Json:
    """Capacities with their quantities as numbers, however they are spelled."""
    return {
        key: in_bytes(value) if isinstance(value, dict) else parse_quantity(value) for key, value in capacity.items()
    }


def test_devices_are_published_as_by_the_original(tmp_path: Path) -> None:
    """Names, attributes and capacities, whole and shared in each way."""
    ways = ("disabled", BY_MEMORY, "unlimited", "4")
    answers = ask_original(DRIVER_050, [ask_device(WHOLE, shares) for shares in ways], tmp_path)
    for shares, answer in zip(ways, answers, strict=True):
        chosen = {} if shares == "disabled" else {"shares": True, "share_by": shares}
        ours, theirs = publish(WHOLE, **chosen), answer["device"]
        assert ours["name"] == theirs["name"]
        assert ours.get("allowMultipleAllocations", False) is theirs.get("allowMultipleAllocations", False)
        for part in ("attributes", "capacity"):
            ours[part] = {key: value for key, value in ours[part].items() if key not in MORE}
        assert ours["attributes"] == theirs["attributes"]
        assert in_bytes(ours["capacity"]) == in_bytes(theirs["capacity"])


def test_a_mig_device_is_published_as_by_the_original(tmp_path: Path) -> None:
    """Engines and slots of its place included."""
    assert BOARD.mig is not None
    profile = next(one for one in BOARD.mig.profiles if one.name == "1g.10gb")
    (made,) = make_mig_devices(0, [profile.name])
    counts = MigAttributes(
        multiprocessor_count=profile.multiprocessor_count,
        gpu_instance_slice_count=profile.slice_count,
        compute_instance_slice_count=profile.slice_count,
        memory_mib=profile.memory_mib,
        shared_copy_engine_count=profile.copy_engine_count,
        shared_decoder_count=profile.decoder_count,
        shared_encoder_count=profile.encoder_count,
        shared_jpeg_count=profile.jpeg_count,
        shared_ofa_count=profile.ofa_count,
    )
    device = replace(made, placement_start=2, placement_size=profile.placement_size, attributes=counts)
    gpu = replace(BOARD, mig=replace(BOARD.mig, devices=(device,)))
    question = ask_device(gpu, "disabled") | {
        "mig": {
            "uuid": device.uuid,
            "profile": device.profile,
            "start": device.placement_start,
            "size": device.placement_size,
            "counts": {
                "Id": profile.profile_id,
                "MultiprocessorCount": profile.multiprocessor_count,
                "MemorySizeMB": profile.memory_mib,
                "CopyEngineCount": profile.copy_engine_count,
                "DecoderCount": profile.decoder_count,
                "EncoderCount": profile.encoder_count,
                "JpegCount": profile.jpeg_count,
                "OfaCount": profile.ofa_count,
            },
        }
    }
    (answer,) = ask_original(DRIVER_050, [question], tmp_path)
    ours, theirs = publish(gpu), answer["device"]
    assert ours["name"] == theirs["name"]
    assert {key: value for key, value in ours["attributes"].items() if key not in MORE} == theirs["attributes"]
    assert in_bytes(ours["capacity"]) == in_bytes(theirs["capacity"])
