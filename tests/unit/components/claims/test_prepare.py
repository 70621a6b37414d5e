"""What a claim gets on this node, and why it gets nothing."""

import pytest
from msgspec.structs import replace

from nodeagent.components.claims.prepare import (
    DEVICES_MAX,
    NodeView,
    Powers,
    answer_claim,
    check_claim,
    check_reference,
    is_late,
    list_groups,
    name_partition,
    plan_claim,
    plan_partition,
    with_uuids,
)
from nodeagent.components.claims.sharing import list_time_slices
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.claims import ClaimReference, ClaimResult, OpaqueConfig
from nodeagent.model.errors import ClaimRefused
from nodeagent.model.gpu import Gpu, Inventory, Mig, MigProfile
from nodeagent.model.ids import MigUuid
from nodeagent.model.journal import EndedClaim, GpuFraction, PreparedClaim, SharingWay
from nodeagent.model.mig import PartitionRequest
from nodeagent.model.mps import MpsLimits
from nodeagent.rules.claims.naming import list_devices
from tests.support.claims import (
    DRIVER,
    POD,
    POOL,
    behind_claims,
    gpu_config,
    make_claim,
    make_config,
    make_reference,
    make_result,
    with_minors,
)
from tests.support.gpus import gpu_uuid, make_gpu

ALL = Powers(makes_mig_devices=True, runs_mps=True, holds_shares=True, sets_turns=True)
NOTHING = Powers()


def look(*gpus: Gpu, powers: Powers = NOTHING, is_open: bool = True) -> NodeView:
    inventory = with_minors(*(gpus or (make_gpu(0), make_gpu(1))))
    return NodeView(inventory, behind_claims(inventory.gpus, is_open=is_open), DRIVER, POOL, powers)


def plan(*results: ClaimResult, view: NodeView | None = None, configs: tuple[OpaqueConfig, ...] = ()) -> PreparedClaim:
    return plan_claim(make_claim(*results, configs=configs), view or look(), 7.0)


def cuttable(index: int) -> Gpu:
    profiles = (
        MigProfile(
            name="1g.10gb", profile_id=19, slice_count=1, memory_mib=9728, multiprocessor_count=16, instances_max=7,
            placements=(0, 1, 2),
        ),
    )  # fmt: skip
    gpu = make_gpu(index)
    return replace(gpu, mig=Mig(enabled=True, pending=True, profiles=profiles), compute_capability=(9, 0))


def test_a_gpu_is_given_under_the_names_that_the_kubelet_and_the_runtime_know() -> None:
    """By the request, not by the alternative in it; it is ready as soon as it is written down."""
    claim = plan(make_result("gpu-1", "gpu/big"))
    assert (claim.uid, claim.pods, claim.is_ready, claim.since_seconds) == ("claim-1", (POD,), True, 7.0)
    (device,) = claim.devices
    assert (device.uuid, device.gpu, device.part, device.sharing) == (gpu_uuid(1), gpu_uuid(1), None, None)
    (answer,) = answer_claim(claim)
    assert (answer.requests, answer.pool, answer.device) == (("gpu",), POOL, "gpu-1")
    assert answer.cdi_names == ("k8s.gpu.nvidia.com/claim=claim-1-gpu-1",)


def test_devices_of_other_drivers_are_left_to_them() -> None:
    """A claim may have several drivers; one that has none of ours is none of ours."""
    other = make_result(driver="nic.example.com")
    assert [each.device for each in plan(other, make_result()).devices] == ["gpu-0"]
    with pytest.raises(ClaimRefused, match=r"claim ns/c1 has no device of the driver gpu.nvidia.com"):
        plan(other)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (make_result(pool="node-2"), "device gpu-0 is of pool 'node-2'; this node's is node-1"),
        (make_result("gpu-9"), "this node has no device gpu-9: the GPU is gone"),
        (make_result("../../etc/passwd"), "this node has no device ../../etc/passwd"),
        (make_result("x" * 5000), "this node has no device x{80}:"),
        (make_result(share_id="1"), "gives no shares: set `claims.shares`"),
        (make_result(share_id="../x"), "has the share id '../x', which is none"),
    ],
)
def test_what_this_node_cannot_give_is_refused_with_the_device(result: ClaimResult, said: str) -> None:
    """In words of bounded length, whatever the names are."""
    with pytest.raises(ClaimRefused, match=said):
        plan(result)


def test_a_gpu_that_is_lost_closed_or_cut_is_not_given() -> None:
    """But for a look at it, its door does not matter."""
    with pytest.raises(ClaimRefused, match="device gpu-0 is lost: fell off"):
        plan(make_result(), view=look(make_gpu(0, lost="fell off")))
    closed = look(is_open=False)
    with pytest.raises(ClaimRefused, match="device gpu-0 is not given by claims now: door claims"):
        plan(make_result(), view=closed)
    assert plan(make_result(is_admin=True), view=closed).devices[0].is_admin
    with pytest.raises(ClaimRefused, match="cut into MIG devices and cannot be had whole"):
        plan(make_result(), view=look(make_gpu(0, mig=["1g.10gb"])))


def test_a_claim_with_more_devices_than_the_api_knows_is_refused() -> None:
    """A thousand of them make no answer of megabytes."""
    with pytest.raises(ClaimRefused, match="has 1000 devices; 128 are possible"):
        plan(*(make_result(f"gpu-{number}") for number in range(1000)))
    assert DEVICES_MAX == 128


def test_a_mig_device_that_is_there_is_given_as_it_is() -> None:
    """By the name that it has in the slice."""
    view = look(make_gpu(0, mig=["1g.10gb", "2g.20gb"]))
    (first, _) = list_devices(view.inventory, {gpu_uuid(0)}, on_demand=False)
    (device,) = plan(make_result(first.name), view=view).devices
    assert first.mig is not None
    assert (device.uuid, device.gpu, device.is_made) == (first.mig.uuid, gpu_uuid(0), False)


def test_a_mig_device_is_made_where_gpus_are_cut_on_demand() -> None:
    """It has no UUID before, is not ready before, and nobody makes one to look at it."""
    view = look(cuttable(0), powers=ALL)
    name = "gpu-0-mig-1g10gb-19-2"
    claim = plan(make_result(name), view=view)
    (device,) = claim.devices
    assert (device.uuid, device.gpu, device.is_made, claim.is_ready) == ("", gpu_uuid(0), True, False)
    assert name_partition(claim, device) == f"claim-1/{name}"
    assert plan_partition(device, view.inventory) == PartitionRequest(gpu=gpu_uuid(0), profile="1g.10gb", start=2)
    ready = with_uuids(claim, {name: MigUuid("MIG-new")})
    assert (ready.devices[0].uuid, ready.is_ready) == ("MIG-new", True)
    for refused in (make_result(name, is_admin=True), make_result(name)):
        with pytest.raises(ClaimRefused, match="is not there, and is made for a claim only where"):
            plan(refused, view=view if refused.is_admin else look(cuttable(0)))
    with pytest.raises(ClaimRefused, match="no place for a MIG device"):
        plan_partition(device, Inventory(generation=1))
    with pytest.raises(ClaimRefused, match="no place for a MIG device"):
        plan_partition(replace(device, device="gpu-0"), view.inventory)


def test_containers_that_take_turns_need_nothing_but_other_turns_are_not_given() -> None:
    """The driver's own time slice is the default."""
    turns = gpu_config({"strategy": "TimeSlicing"})
    claim = plan(make_result(), configs=(make_config(turns),))
    sharing = claim.devices[0].sharing
    assert sharing is not None
    assert (sharing.way, sharing.interval, claim.is_ready) == (SharingWay.TIME_SLICING, "Default", True)
    long = gpu_config({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}})
    with pytest.raises(ClaimRefused, match=r"timeSlicingConfig.interval is 'Long': this agent leaves"):
        plan(make_result(), configs=(make_config(long),))
    assert plan(make_result(), configs=(make_config(gpu_config()),)).devices[0].sharing is None
    view = look(powers=ALL)
    asked = plan(make_result(), view=view, configs=(make_config(long),))
    assert (list(list_time_slices(asked)), asked.is_ready) == ([(gpu_uuid(0), 3)], False)
    for beside in (make_result(is_admin=True), make_result(share_id="s", consumed={"memory": "1Gi"})):
        with pytest.raises(ClaimRefused, match="gpu-0 is had beside others, and a time slice is all of the GPU's"):
            plan(beside, view=view, configs=(make_config(long),))


def test_devices_of_one_configuration_share_one_daemon() -> None:
    """With the limits that it says; those of another have their own, and those of none have none."""
    half = gpu_config({"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 50}})
    small = gpu_config({"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "1Gi"}})
    view = look(*map(make_gpu, range(4)), powers=ALL)
    configs = (make_config(half, "a"), make_config(small, "b"))
    results = [make_result(f"gpu-{index}", request) for index, request in enumerate("aabc")]
    claim = plan(*results, view=view, configs=configs)
    groups = {gpus: sharing.mps for gpus, sharing in list_groups(claim)}
    assert list(groups) == [(gpu_uuid(0), gpu_uuid(1)), (gpu_uuid(2),)]
    first, second = groups.values()
    assert first is not None
    assert second is not None
    assert (first.thread_percentage, second.memory_mib) == (50, {gpu_uuid(2): 1024})
    assert (claim.is_ready, claim.devices[3].sharing) == (False, None)


def test_mps_is_refused_where_nobody_runs_it_for_mig_devices_and_with_limits_that_make_no_sense() -> None:
    mps = make_config(gpu_config({"strategy": "MPS"}))
    with pytest.raises(ClaimRefused, match=r"config\[0\] \(FromClaim\): \"MPS\" is selected .* set `mps.claims`"):
        plan(make_result(), configs=(mps,))
    view = look(make_gpu(0, mig=["1g.10gb"]), powers=ALL)
    (device,) = list_devices(view.inventory, {gpu_uuid(0)}, on_demand=False)
    on_mig = make_config(gpu_config({"strategy": "MPS"}, kind="MigDeviceConfig"))
    with pytest.raises(ClaimRefused, match="MPS is for whole GPUs here"):
        plan(make_result(device.name), view=view, configs=(on_mig,))
    tiny = gpu_config({"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": 1}})
    with pytest.raises(ClaimRefused, match=r"sharing.mpsConfig: default.* give 1Mi at least"):
        plan(make_result(), view=look(powers=ALL), configs=(make_config(tiny),))


def test_mps_is_refused_on_a_gpu_that_others_have_too() -> None:
    """Its daemon takes the GPU for its own clients alone: whoever else has it could not begin to compute any more."""
    mps = make_config(gpu_config({"strategy": "MPS"}), source="FromClass")
    for beside in (make_result(is_admin=True), make_result(share_id="s", consumed={"memory": "1Gi"})):
        with pytest.raises(ClaimRefused, match="gpu-0 is had beside others, and MPS takes all of a GPU"):
            plan(beside, view=look(powers=ALL), configs=(mps,))


def test_a_claim_with_all_memory_of_a_shared_gpu_has_the_gpu_as_if_it_were_not_shared() -> None:
    """NVIDIA's specs with MPS ask for no memory, and get all of it; a share of the compute is no GPU."""
    view = look(replace(make_gpu(0), memory_total_bytes=(80 << 30) + 5), powers=ALL)
    mps = make_config(gpu_config({"strategy": "MPS"}))
    turns = make_config(gpu_config({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}))
    for config in (mps, turns):
        (device,) = plan(
            make_result(share_id="s", consumed={"memory": "80Gi", "cores": "0"}), view=view, configs=(config,)
        ).devices
        assert (device.part, device.share_id) == (None, "s")
        assert device.sharing is not None
        assert device.sharing.needs_whole_gpu
    for consumed in ({"memory": "80Gi", "cores": "50"}, {"memory": "79Gi"}, {"memory": "0"}):
        with pytest.raises(ClaimRefused, match="ask for all memory of the GPU, or leave MPS out"):
            plan(make_result(share_id="s", consumed=consumed), view=view, configs=(mps,))


def test_clients_of_several_users_need_a_board_that_serves_them() -> None:
    several = make_config(gpu_config({"strategy": "MPS", "mpsConfig": {"multiUser": True}}))
    (device,) = plan(make_result(), view=look(powers=ALL), configs=(several,)).devices
    assert device.sharing is not None
    assert device.sharing.mps == MpsLimits(multi_user=True)
    old = look(replace(make_gpu(0), compute_capability=(6, 1)), powers=ALL)
    with pytest.raises(ClaimRefused, match=r"mpsConfig.multiUser is true, and gpu-0 is older than Volta"):
        plan(make_result(), view=old, configs=(several,))


def test_a_share_is_as_much_as_the_scheduler_has_counted() -> None:
    """By the bare name or the driver's; memory that nobody counted is all of it, and cores none of its own."""
    gpu = replace(make_gpu(0), memory_total_bytes=80 << 30)
    view = look(gpu, powers=ALL)
    some = make_result(share_id="s1", consumed={"memory": "10Gi", f"{DRIVER}/cores": "25"})
    (device,) = plan(some, view=view).devices
    assert device.part == GpuFraction(gpu=gpu.uuid, cores=25, memory_bytes=10 << 30)
    assert device.cdi_names == ("k8s.gpu.nvidia.com/claim=claim-1-gpu-0-s1",)
    (rest,) = plan(make_result(share_id="s2"), view=view).devices
    assert rest.part == GpuFraction(gpu=gpu.uuid, cores=0, memory_bytes=80 << 30)
    (admin,) = plan(make_result(share_id="s3", is_admin=True), view=view).devices
    assert admin.part is None
    with pytest.raises(ClaimRefused, match=r"device gpu-0: consumedCapacity.memory: 'x' is no quantity"):
        plan(make_result(share_id="s1", consumed={"memory": "x"}), view=view)


def test_the_claim_must_be_the_one_that_is_meant_and_somebodys() -> None:
    """The name may be another one's by now."""
    reference = make_reference()
    assert check_claim(reference, make_claim()).name == "c1"
    for claim, said in (
        (None, r"there is no claim ns/c1"),
        (make_claim(uid="other"), "was replaced: it has the uid other now, not claim-1"),
        (make_claim(is_allocated=False), "is not allocated"),
        (make_claim(pods=()), "is reserved for no pod"),
    ):
        with pytest.raises(ClaimRefused, match=said):
            check_claim(reference, claim)


def test_a_claim_that_cannot_be_named_is_refused() -> None:
    """Its uid becomes the name of a file."""
    check_reference(make_reference())
    for uid in ("", "../x", "a/b", "x" * 64, "-", "ü"):
        with pytest.raises(ClaimRefused, match="which is none"):
            check_reference(make_reference(uid=uid))
    with pytest.raises(ClaimRefused, match="without namespace or name"):
        check_reference(ClaimReference(namespace="", name="c", uid="u"))


def test_who_comes_after_the_end_with_the_same_pods_is_late() -> None:
    ended = EndedClaim(uid="claim-1", pods=(POD,), at_seconds=1.0)
    other = PodIdentity(namespace="ns", name="next", uid="pod-2")
    assert is_late(make_claim(), ended)
    assert not is_late(make_claim(pods=(POD, other)), ended)
    assert not is_late(make_claim(), None)
