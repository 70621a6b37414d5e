"""Slices within the limits of the API, the same for the same node."""

import pytest
from msgspec.structs import replace

from nodeagent.components.slices.plan import (
    Abilities,
    Sight,
    explain_dropped,
    judge_kept,
    judge_refused,
    list_fields,
    pack,
    plan_contents,
    summarise,
)
from nodeagent.config.sections.claims import TaintRule
from nodeagent.model.gpu import Gpu
from nodeagent.model.health import Verdict
from nodeagent.model.offering import AllocationMode
from nodeagent.model.slices import PublishedSlices, SliceContent, SliceDevice, SlicePool
from tests.support.gpus import make_gpu, make_inventory, make_mig_devices
from tests.support.mig import MIG_MODELS, make_mig_gpu
from tests.support.slices import DRIVER, make_doors, make_report, make_sight

GIB = 1 << 30
ON_DEMAND = {"on_demand": True}
SHARES = {"shares": True}
POOL = SlicePool(driver=DRIVER, node="node-1")


def boards(count: int, model: str = "h100-sxm5-80gb") -> list[Gpu]:
    return [replace(make_mig_gpu(index, model, enabled=True), compute_capability=(9, 0)) for index in range(count)]


def devices(sight: Sight) -> dict[str, SliceDevice]:
    return {one.name: one for content in plan_contents(sight) for one in content.devices}


def test_whole_gpus_are_one_slice() -> None:
    (content,) = plan_contents(make_sight([make_gpu(0), make_gpu(1)]))
    assert [one.name for one in content.devices] == ["gpu-0", "gpu-1"]
    assert content.counter_sets == ()
    assert not any(one.taints or one.consumes or one.is_shared for one in content.devices)


def test_whole_gpus_are_proven_first_where_that_is_asked_for_and_kept() -> None:
    """A MIG device is not: it is a part of a GPU that others may have."""
    first = {"proves_first": True}
    found = devices(make_sight([make_gpu(0), boards(2)[1]], choices=first | ON_DEMAND))
    assert {name for name, one in found.items() if one.is_proven_first} == {"gpu-0", "gpu-1"}
    dropped = make_sight([make_gpu(0)], choices=first, abilities=Abilities(binding=False))
    for sight in (make_sight([make_gpu(0)]), dropped):
        assert not devices(sight)["gpu-0"].is_proven_first
    written = SliceContent(devices=(SliceDevice(name="gpu-0", is_proven_first=True),))
    assert list_fields(written) == {"bindingConditions"}
    abilities = judge_kept(written, SliceContent(devices=(SliceDevice(name="gpu-0"),)), Abilities())
    assert abilities == Abilities(binding=False)
    assert "DRADeviceBindingConditions" in explain_dropped(abilities)


def test_a_node_with_nothing_to_give_says_so() -> None:
    """A pool without a slice is one of which nobody knows."""
    gpus = [make_gpu(0)]
    assert plan_contents(make_sight(gpus, offering=make_doors(gpus, AllocationMode.WHOLE))) == (SliceContent(),)
    assert plan_contents(make_sight([])) == (SliceContent(),)


def test_gpus_that_are_cut_on_demand_have_counters_in_slices_of_their_own() -> None:
    """A slice holds devices or counters, never both."""
    counters, *rest = plan_contents(make_sight(boards(2), choices=ON_DEMAND))
    assert [one.name for one in counters.counter_sets] == ["gpu-0-counter-set", "gpu-1-counter-set"]
    assert counters.devices == ()
    assert all(one.consumes is not None for content in rest for one in content.devices)
    assert all(content.counter_sets == () for content in rest)


@pytest.mark.parametrize("model", MIG_MODELS)
def test_no_limit_of_the_api_is_passed_by_sixteen_boards(model: str) -> None:
    """64 devices with counters or taints, 8 sets, 32 attributes and capacities."""
    contents = plan_contents(make_sight(boards(16, model), choices=ON_DEMAND))
    names = [one.name for content in contents for one in content.devices]
    assert len(names) == len(set(names))
    sets = {one.name for content in contents for one in content.counter_sets}
    assert len(sets) == 16
    for content in contents:
        assert len(content.devices) <= 64
        assert len(content.counter_sets) <= 8
        assert bool(content.devices) is not bool(content.counter_sets)
        for one in content.devices:
            assert len(one.attributes) + len(one.capacity) <= 32
            assert one.consumes is not None
            assert one.consumes.name in sets


def test_a_device_has_no_more_taints_than_the_api_takes() -> None:
    """One more, and the server refuses the whole slice: what the door says counts among them, and stays."""
    gpu = make_gpu(0)
    found = [(f"xid-{number}", Verdict.UNHEALTHY) for number in range(16)]
    report = make_report(make_inventory([gpu]), {gpu.uuid: found})
    (device,) = devices(make_sight([gpu], health=report, offering=make_doors([gpu], closed=[0]))).values()
    assert len(device.taints) == 16
    assert device.taints[0].key == "gpu.nvidia.com/closed"


def test_devices_of_one_gpu_stay_together() -> None:
    """So that what happens to one GPU is one write."""
    contents = [one for one in plan_contents(make_sight(boards(5), choices=ON_DEMAND)) if one.devices]
    assert [len(one.devices) for one in contents] == [52, 52, 26]


def test_a_group_that_is_larger_than_a_slice_is_split() -> None:
    """No board has so many; a slice that is refused would hide all."""
    many = [SliceDevice(name=f"d-{number}") for number in range(130)]
    assert [len(page) for page in pack([[SliceDevice(name="first")], many])] == [1, 64, 64, 2]
    assert [len(page) for page in pack([many[:64]])] == [64]


def test_a_device_that_is_made_for_its_claim_changes_no_slice() -> None:
    """Or each pod that comes and goes would be two writes, and news to every scheduler."""
    (board,) = boards(1)
    assert board.mig is not None
    made = replace(make_mig_devices(0, ["1g.10gb"])[0], placement_start=2, placement_size=1)
    busy = replace(board, mig=replace(board.mig, devices=(made,)))
    assert plan_contents(make_sight([busy], choices=ON_DEMAND)) == plan_contents(make_sight([board], choices=ON_DEMAND))


def test_a_gpu_without_mig_beside_others_is_offered_whole() -> None:
    """Counters are for those that can be cut."""
    gpus = [make_gpu(0), *boards(2)[1:]]
    found = devices(make_sight(gpus, choices=ON_DEMAND))
    assert found["gpu-0"].consumes is None
    assert found["gpu-1"].consumes is not None


def test_a_shared_gpu_may_be_allocated_several_times() -> None:
    plain = replace(make_gpu(0), memory_total_bytes=80 * GIB)
    found = devices(make_sight([plain, make_gpu(1, mig=["1g.10gb"])], choices=SHARES))
    assert found["gpu-0"].is_shared
    assert set(found["gpu-0"].capacity) == {"memory", "cores"}
    assert not found["gpu-1-mig-1g10gb-x-i7"].is_shared
    counted = devices(make_sight([plain], choices=SHARES | {"share_by": "4"}))
    assert set(counted["gpu-0"].capacity) == {"memory", "cores", "shares"}


def test_what_is_cut_on_demand_is_not_shared() -> None:
    """Two ways of dividing one GPU know nothing of one another."""
    found = devices(make_sight(boards(1), choices=ON_DEMAND | SHARES))
    assert not found["gpu-0"].is_shared


def test_taints_are_told_with_the_devices() -> None:
    gpus = [make_gpu(0), make_gpu(1), make_gpu(2)]
    inventory = make_inventory(gpus)
    sight = make_sight(
        gpus,
        health=make_report(inventory, {gpus[0].uuid: [("lost", Verdict.UNHEALTHY)]}),
        offering=make_doors(gpus, closed=[1]),
    )
    found = devices(sight)
    assert [[taint.key for taint in found[f"gpu-{index}"].taints] for index in range(3)] == [
        ["gpu.nvidia.com/lost"],
        ["gpu.nvidia.com/closed"],
        [],
    ]
    assert summarise(POOL, plan_contents(sight), 7) == PublishedSlices(
        driver=DRIVER, pool="node-1", generation=7, slices=1, devices=3, tainted=("gpu-0", "gpu-1")
    )


def test_without_taints_who_is_ill_is_left_out() -> None:
    """Where the API server drops them, pods would come to it."""
    gpus = [make_gpu(0), make_gpu(1)]
    inventory = make_inventory(gpus)
    found = {gpus[0].uuid: [("lost", Verdict.UNHEALTHY)], gpus[1].uuid: [("hot", Verdict.SUSPECT)]}
    sight = make_sight(gpus, health=make_report(inventory, found), abilities=Abilities(taints=False))
    assert {name: one.taints for name, one in devices(sight).items()} == {"gpu-1": ()}


def test_without_counters_gpus_are_offered_as_they_are() -> None:
    """Where the API server drops them, one GPU would be given several times."""
    sight = make_sight(boards(1), choices=ON_DEMAND, abilities=Abilities(counters=False))
    assert plan_contents(sight) == (SliceContent(),)


def test_without_shares_a_gpu_is_given_once() -> None:
    plain = replace(make_gpu(0), memory_total_bytes=80 * GIB)
    found = devices(make_sight([plain], choices=SHARES, abilities=Abilities(shares=False)))
    assert not found["gpu-0"].is_shared
    assert set(found["gpu-0"].capacity) == {"memory"}


def test_what_the_server_drops_is_noticed() -> None:
    """It says nothing; its answer shows it."""
    gpus = [replace(make_gpu(0), memory_total_bytes=80 * GIB)]
    ill = make_report(make_inventory(gpus), {gpus[0].uuid: [("lost", Verdict.UNHEALTHY)]})
    (written,) = plan_contents(make_sight(gpus, health=ill, choices=SHARES))
    (device,) = written.devices
    all_of_it = Abilities()

    def keep(**fields: object) -> SliceContent:
        return SliceContent(devices=(replace(device, **fields),))

    assert judge_kept(written, written, all_of_it) == all_of_it
    assert judge_kept(written, None, all_of_it) == all_of_it
    assert judge_kept(written, SliceContent(), all_of_it) == all_of_it
    assert judge_kept(written, keep(taints=()), all_of_it) == Abilities(taints=False)
    assert judge_kept(written, keep(is_shared=False), all_of_it) == Abilities(shares=False)
    counters, parts = plan_contents(make_sight(boards(1), choices=ON_DEMAND))
    assert judge_kept(counters, SliceContent(), all_of_it) == Abilities(counters=False)
    bare = SliceContent(devices=tuple(replace(one, consumes=None) for one in parts.devices))
    assert judge_kept(parts, bare, all_of_it) == Abilities(counters=False)


def test_what_the_server_refuses_is_left_out() -> None:
    """Its message names the field; a message about another field changes nothing."""
    all_of_it = Abilities()
    assert judge_refused("spec.devices[0].taints: Too many: 5: must have at most 4", all_of_it) == Abilities(
        many_taints=False
    )
    assert judge_refused("spec.sharedCounters: Forbidden", all_of_it) == Abilities(counters=False)
    assert judge_refused("spec.pool.name: Invalid value", all_of_it) == all_of_it


def test_few_taints_are_the_worst() -> None:
    """At most four, and none that only informs."""
    gpus = [make_gpu(0)]
    found = {gpus[0].uuid: [(f"finding-{number}", Verdict.UNHEALTHY) for number in range(6)]}
    health = make_report(make_inventory(gpus), found)
    rules = (TaintRule(finding="finding-0", effect="None"), TaintRule(finding="finding-5", effect="NoExecute"))
    whole = make_sight(gpus, health=health, choices={"taints": rules})
    (device,) = devices(replace(whole, abilities=Abilities(many_taints=False))).values()
    assert [(one.key[-1], one.effect) for one in device.taints] == [
        ("5", "NoExecute"),
        ("1", "NoSchedule"),
        ("2", "NoSchedule"),
        ("3", "NoSchedule"),
    ]
    (content,) = plan_contents(whole)
    assert list_fields(content) == {"taints", "many taints"}


def test_the_fields_of_a_content_are_those_that_may_be_dropped() -> None:
    counters, parts = plan_contents(make_sight(boards(1), choices=ON_DEMAND))
    (shared,) = plan_contents(make_sight([replace(make_gpu(0), memory_total_bytes=80 * GIB)], choices=SHARES))
    assert list_fields(counters) == {"sharedCounters"}
    assert list_fields(parts) == {"consumesCounters"}
    assert list_fields(shared) == {"allowMultipleAllocations"}
    assert list_fields(SliceContent()) == frozenset()


def test_it_is_said_by_the_gate_that_is_missing() -> None:
    """That is what a person can switch on."""
    said = explain_dropped(Abilities(taints=False, counters=False, shares=False))
    for gate in ("DRADeviceTaints", "DRAPartitionableDevices", "DRAConsumableCapacity"):
        assert gate in said
    assert "as its answer shows" in explain_dropped(Abilities())
