"""What classes and claims ask of a device in NVIDIA's words, and which of it counts."""

from collections.abc import Mapping

import pytest

from nodeagent.components.claims.opaque import MpsRequest, SharingRequest, choose_config, read_configs, read_parameters
from nodeagent.model.errors import ClaimRefused
from nodeagent.model.journal import SharingWay
from tests.generators.claim_policy import MPS as MPS_FIELDS
from tests.generators.claim_policy import SHARING as SHARING_FIELDS
from tests.support.claims import DRIVER, gpu_config, make_config, make_result

MPS = SharingWay.MPS
TURNS = SharingWay.TIME_SLICING


def turns(interval: str) -> dict[str, object]:
    return gpu_config({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}})


@pytest.mark.parametrize(
    ("parameters", "sharing"),
    [
        (gpu_config(), SharingRequest("GpuConfig")),
        (gpu_config(kind="MigDeviceConfig"), SharingRequest("MigDeviceConfig")),
        (gpu_config({"strategy": "TimeSlicing"}), SharingRequest("GpuConfig", TURNS, "Default")),
        (
            gpu_config({"strategy": "TimeSlicing", "timeSlicingConfig": {}}),
            SharingRequest("GpuConfig", TURNS, "Default"),
        ),
        (turns("Long"), SharingRequest("GpuConfig", TURNS, "Long")),
        (gpu_config({"strategy": "MPS"}), SharingRequest("GpuConfig", MPS)),
        (
            gpu_config(
                {
                    "strategy": "MPS",
                    "mpsConfig": {
                        "defaultActiveThreadPercentage": 50,
                        "defaultPinnedDeviceMemoryLimit": "10Gi",
                        "defaultPerDevicePinnedMemoryLimit": {"0": 1048576},
                    },
                }
            ),
            SharingRequest("GpuConfig", MPS, mps=MpsRequest(50, 10 << 30, (("0", 1 << 20),))),
        ),
        (
            gpu_config({"strategy": "MPS", "mpsConfig": {"multiUser": True}}),
            SharingRequest("GpuConfig", MPS, mps=MpsRequest(multi_user=True)),
        ),
        (
            gpu_config({"strategy": "MPS", "mpsConfig": {"multiUser": False}}),
            SharingRequest("GpuConfig", MPS),
        ),
        (
            gpu_config({"strategy": "MPS", "mpsConfig": {}}, kind="MigDeviceConfig"),
            SharingRequest("MigDeviceConfig", MPS),
        ),
    ],
)
def test_what_nvidias_driver_reads_is_read(parameters: object, sharing: SharingRequest) -> None:
    assert read_parameters(parameters, "p") == sharing


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (None, "p is None: give a mapping"),
        ([], r"p is \[\]: give a mapping"),
        ({}, "p.apiVersion is ''"),
        ({"apiVersion": 1}, "p.apiVersion is 1: give a text"),
        ({"apiVersion": "resource.nvidia.com/v9", "kind": "GpuConfig"}, "reads resource.nvidia.com/v1beta1"),
        (gpu_config(kind="VfioDeviceConfig"), "p.kind is 'VfioDeviceConfig': this driver reads GpuConfig and Mig"),
        (gpu_config() | {"sharin": {}}, "unknown field \"p.sharin\"; did you mean 'sharing'"),
        (gpu_config() | {"x" * 500: {}}, 'unknown field "p.x{60}"'),
        (gpu_config({}), "p.sharing.strategy is '': it is TimeSlicing or MPS"),
        (gpu_config({"strategy": "x" * 500}), "p.sharing.strategy is 'x{59}…"),
        (gpu_config({"strategy": "MPS", "more": 1}), 'unknown field "p.sharing.more"'),
        (turns("Forever"), "timeSlicingConfig.interval is 'Forever': it is one of Default, Short, Medium, Long"),
        (turns("Long") | {"kind": "MigDeviceConfig"}, 'unknown field "p.sharing.timeSlicingConfig"'),
        (
            gpu_config({"strategy": "TimeSlicing", "mpsConfig": {}}),
            "cannot use MpsConfig with the 'TimeSlicing' strategy",
        ),
        (
            gpu_config({"strategy": "MPS", "timeSlicingConfig": {}}),
            "cannot use TimeSlicingConfig with the 'MPS' strategy",
        ),
    ],
)
def test_what_is_not_understood_is_refused_by_the_name_of_the_field(parameters: object, said: str) -> None:
    """Nothing is left out in silence, and nothing hostile is repeated at length."""
    with pytest.raises(ClaimRefused, match=said):
        read_parameters(parameters, "p")


@pytest.mark.parametrize(
    ("mps", "said"),
    [
        ({"defaultActiveThreadPercentage": 101}, "Percentage is 101: give 0 to 100"),
        ({"defaultActiveThreadPercentage": True}, "Percentage is True: give 0 to 100"),
        ({"defaultPinnedDeviceMemoryLimit": "10gb"}, "MemoryLimit: '10gb' is no quantity"),
        ({"defaultPinnedDeviceMemoryLimit": []}, r"MemoryLimit is \[\]: give a quantity"),
        ({"defaultPerDevicePinnedMemoryLimit": {"0": "x"}}, r"defaultPerDevicePinnedMemoryLimit.0: 'x' is no"),
        ({"multiUser": "true"}, "p.sharing.mpsConfig.multiUser is 'true': give true or false"),
        ({"percentage": 1}, 'unknown field "p.sharing.mpsConfig.percentage"'),
    ],
)
def test_limits_of_mps_are_held_to_their_form(mps: Mapping[str, object], said: str) -> None:
    with pytest.raises(ClaimRefused, match=said):
        read_parameters(gpu_config({"strategy": "MPS", "mpsConfig": mps}), "p")


def test_the_policy_for_claims_knows_no_field_that_the_reader_does_not() -> None:
    """The other way round, and the rest of the policy, is held on the real API server."""
    unset: list[object] = []
    of_mps: list[dict[str, object]] = [{"mpsConfig": {name: unset}} for name in MPS_FIELDS]
    of_sharing: list[dict[str, object]] = [{name: unset} for name in SHARING_FIELDS]
    for field in (*of_mps, *of_sharing):
        with pytest.raises(ClaimRefused, match=r"^(?!unknown field)"):
            read_parameters(gpu_config({"strategy": "MPS", **field}), "p")


def choose(request: str, *configs: tuple[object, tuple[str, ...], str], is_gpu: bool = True) -> int | None:
    read = read_configs([make_config(each, *names, source=source) for each, names, source in configs], DRIVER)
    chosen = choose_config(read, make_result(request=request), is_gpu=is_gpu)
    return None if chosen is None else chosen.place


CLASS, CLAIM = "FromClass", "FromClaim"


def test_the_claim_counts_more_than_the_class_and_the_later_more_than_the_earlier() -> None:
    """One without requests is for all of them."""
    one = gpu_config()
    assert choose("r", (one, (), CLASS), (one, (), CLASS)) == 1
    assert choose("r", (one, (), CLAIM), (one, (), CLASS)) == 0
    assert choose("r", (one, (), CLAIM), (one, ("r",), CLAIM), (one, ("other",), CLAIM)) == 1
    assert choose("r/sub", (one, ("r",), CLAIM)) == 0
    assert choose("r/sub", (one, ("r/sub",), CLAIM), (one, ("r/other",), CLAIM)) == 0
    assert choose("r") is None


def test_one_for_another_kind_of_device_is_passed_over_unless_it_names_the_request() -> None:
    """A class of GPUs may have one for MIG devices too."""
    gpu, mig = gpu_config(), gpu_config(kind="MigDeviceConfig")
    assert choose("r", (gpu, (), CLAIM), (mig, (), CLAIM)) == 0
    assert choose("r", (gpu, (), CLAIM), (mig, (), CLAIM), is_gpu=False) == 1
    with pytest.raises(ClaimRefused, match=r"cannot apply MigDeviceConfig to device gpu-0 of request r: config\[0\]"):
        choose("r", (mig, ("r",), CLAIM))


def test_those_of_other_drivers_are_not_looked_at_and_those_of_no_driver_refused() -> None:
    """The kind of a configuration may be one that came later."""
    assert read_configs([make_config({"what": "ever"}, driver="other.example.com")], DRIVER) == ()
    with pytest.raises(ClaimRefused, match=r"config\[0\] \(FromClaim\) is not opaque"):
        read_configs([make_config(driver="")], DRIVER)
    with pytest.raises(ClaimRefused, match="source is unknown"):
        read_configs([make_config(gpu_config(), source="FromAbove")], DRIVER)
