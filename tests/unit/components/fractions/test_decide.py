"""What can be given in parts now: names, ids, account, limits."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.fractions.decide import (
    explain_unfitness,
    list_resources,
    plan_limits,
    plan_lists,
    plan_summary,
    plan_view,
    publish_view,
)
from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.fractions import FractionLimit
from nodeagent.model.gpu import Gpu
from nodeagent.model.health import Verdict
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import GpuFraction
from nodeagent.model.offering import AllocationMode, Offering
from nodeagent.rules.fractions.profiles import MIB, CoresProfile, CountedProfile, plan_profile
from nodeagent.rules.fractions.published import read_published
from nodeagent.rules.placement.place import Demand, place
from tests.support.fractions import (
    make_bound,
    make_health,
    make_offering,
    make_parted,
    make_promise,
    make_table,
    make_view,
    part,
)
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.journals import CORE, MEMORY
from tests.support.placement import GIB

SHARE = ResourceName("nvidia.com/gpu")
ON = FractionsSettings(enabled=True)


def count_ids(resource: ResourceName, **fractions: Any) -> tuple[int, int]:
    devices = plan_lists(make_view(**fractions), make_table())[resource]
    return len(devices), sum(device.healthy for device in devices)


def test_the_profile_carries_the_configured_names() -> None:
    """Cluster operators choose names and sizes; both profiles can be asked for."""
    settings = replace(ON, core_resource="x.com/core", memory_resource="x.com/mem", block_mib=512)
    profile = plan_profile(settings)
    assert isinstance(profile, CoresProfile)
    assert (profile.core, profile.memory, profile.block_bytes) == ("x.com/core", "x.com/mem", 512 * MIB)
    assert list_resources(profile) == ("x.com/core", "x.com/mem")
    shares = plan_profile(replace(ON, profile="hami", share_resource="x.com/gpu", shares_per_gpu=4))
    assert shares == CountedProfile(share=ResourceName("x.com/gpu"), shares_per_gpu=4)
    assert list_resources(shares) == ("x.com/gpu",)


def test_the_kubelet_counts_parts_of_the_gpus_behind_the_door() -> None:
    """Two GPUs of 32 GiB; a whole one beside them is not counted."""
    assert count_ids(CORE) == (200, 200)
    assert count_ids(MEMORY) == (2 * 128, 2 * 128)
    assert count_ids(SHARE, profile="hami", shares_per_gpu=7) == (14, 14)
    inventory = make_parted(2)
    view = plan_view(inventory, make_offering(inventory, {0: (AllocationMode.WHOLE, True)}), make_health(inventory), ON)
    assert [gpu.uuid for gpu in view.gpus] == [gpu_uuid(1)]
    assert {name: len(ids) for name, ids in plan_lists(view, make_table()).items()} == {CORE: 100, MEMORY: 128}


def test_more_memory_is_promised_than_there_is_where_somebody_wants_that() -> None:
    """Ids, capacities and the largest request follow the ratio."""
    assert count_ids(MEMORY, memory_overcommit_ratio=1.5) == (384, 384)
    view = make_view(memory_overcommit_ratio=1.5)
    assert view.largest_bytes == 48 * GIB
    assert view.capacities == (part(0, 100, 48), part(1, 100, 48))


def test_without_gpus_behind_the_door_there_is_nothing_to_ask_for() -> None:
    inventory = make_parted(1)
    view = plan_view(inventory, make_offering(inventory, {0: (AllocationMode.NONE, False)}), None, ON)
    assert (view.gpus, view.largest_bytes, plan_lists(view, make_table())) == ((), 0, {})


@pytest.mark.parametrize(
    ("gpu", "verdict", "why"),
    [
        (make_gpu(0), Verdict.HEALTHY, ""),
        (make_gpu(0), Verdict.SUSPECT, ""),
        (make_gpu(0), Verdict.UNHEALTHY, "xid 79"),
        (make_gpu(0, lost="fell off the bus"), Verdict.HEALTHY, "GPU 0 is lost: fell off the bus"),
        (make_gpu(0, mig=["1g.10gb"]), Verdict.HEALTHY, "MIG is on"),
    ],
)
def test_a_gpu_that_does_not_work_gives_nothing(gpu: Gpu, verdict: Verdict, why: str) -> None:
    found = explain_unfitness(gpu, make_health(make_inventory([gpu]), {0: verdict}, "xid 79"))
    assert found == why or (why and why in found)


def test_health_that_is_not_known_or_says_no_reason_is_told_as_that() -> None:
    gpu = make_gpu(0)
    assert explain_unfitness(gpu, None) == "its health is not known yet"
    assert "unknown" in explain_unfitness(gpu, make_health(make_inventory([gpu]), {0: Verdict.UNKNOWN}))


def test_ids_follow_the_health_of_their_gpu_and_the_door() -> None:
    """One GPU ill: half of the ids; a door that is closed for new ones: the same; a driver that is away: all."""
    inventory = make_parted(2)
    ill = plan_view(inventory, make_offering(inventory), make_health(inventory, {1: Verdict.UNHEALTHY}, "ill"), ON)
    closed = plan_view(
        inventory, make_offering(inventory, {1: (AllocationMode.FRACTIONS, False)}), make_health(inventory), ON
    )
    (first, second) = make_offering(inventory).doors
    cordon = Cordon(gpu=second.gpu, source=CordonSource.COMMAND, named="1", reason="fan", who="ann")
    kept_back = Offering(doors=(first, replace(second, is_open=False, cordons=(cordon,))))
    cordoned = plan_view(inventory, kept_back, make_health(inventory), ON)
    assert (cordoned.unfit[gpu_uuid(1)], cordoned.held) == ("cordoned by ann: fan", {gpu_uuid(1): "cordon"})
    away = plan_view(
        inventory,
        make_offering(inventory),
        make_health(inventory),
        ON,
        {gpu.uuid: "no driver" for gpu in inventory.gpus},
    )
    assert ill.unfit == {gpu_uuid(0): "", gpu_uuid(1): "ill"}
    assert closed.unfit[gpu_uuid(1)] == "door fractions (test)"
    assert set(away.unfit.values()) == {"no driver"}
    assert (ill.held, closed.held) == ({gpu_uuid(1): "unhealthy"}, {gpu_uuid(1): "door"})
    assert set(away.held.values()) == {"node"}
    for view, healthy in ((ill, 100), (closed, 100), (cordoned, 100), (away, 0)):
        cores = plan_lists(view, make_table())[CORE]
        assert (len(cores), sum(device.healthy for device in cores)) == (200, healthy)


def test_a_gpu_to_be_proved_has_room_for_one_container() -> None:
    """Those from before the pause do not count."""
    inventory = make_parted(2)
    (first, second) = make_offering(inventory).doors
    cordon = Cordon(gpu=first.gpu, source=CordonSource.BRAKE, named="0", until_seconds=50.0)
    offering = Offering(doors=(replace(first, trial=cordon), second))
    view = plan_view(inventory, offering, make_health(inventory), ON)

    def find_withheld(since_seconds: float) -> list[str]:
        bound = replace(
            make_bound(2, (1,), GpuFraction(gpu=gpu_uuid(0), cores=10, memory_bytes=MIB)), since_seconds=since_seconds
        )
        return [room.withheld for room in plan_summary(view, make_table((), [bound])).rooms]

    assert find_withheld(49.0) == ["", ""]
    assert find_withheld(50.0) == ["a single pod tries the GPU, after the brake", ""]


def test_schedulers_hear_in_a_word_why_a_gpu_is_held_back() -> None:
    """MIG, whichever door such a GPU has, and lost rather than cut; and what another door has."""
    gpus = [make_gpu(0, mig=["1g.10gb"]), make_gpu(1, mig=["1g.10gb"]), make_gpu(2), make_gpu(3)]
    gpus.append(make_gpu(4, mig=["1g.10gb"], lost="fell off the bus"))
    inventory = make_inventory(gpus)
    doors = {1: (AllocationMode.NONE, False), 2: (AllocationMode.WHOLE, True)}
    view = plan_view(inventory, make_offering(inventory, doors), make_health(inventory), ON)
    words = {0: "mig", 1: "mig", 2: "elsewhere", 4: "unhealthy"}
    assert view.held == {gpu_uuid(index): word for index, word in words.items()}
    assert [gpu.held for gpu in read_published(publish_view(view)).gpus] == ["mig", "mig", "elsewhere", "", "unhealthy"]


def test_ids_that_somebody_holds_stay_when_their_gpu_is_gone() -> None:
    """Unhealthy, also where nothing else of the resource is left; what is on offer is not told twice."""
    view = make_view(make_parted(1))
    living = [device.id for device in plan_lists(view, make_table())[CORE]]
    table = make_table([make_promise(1, ["core-n0-gdeadbeef-0", living[0]]), make_promise(2, "m", MEMORY)])
    lists = plan_lists(view, table)
    told = Counter(device.id for device in lists[CORE])
    assert (told[DeviceId("core-n0-gdeadbeef-0")], told[living[0]], max(told.values())) == (1, 1, 1)
    assert [device.healthy for device in lists[CORE]] == [True] * 100 + [False]
    inventory = make_parted(1)
    nothing = plan_view(inventory, make_offering(inventory, {0: (AllocationMode.WHOLE, True)}), None, ON)
    assert [(device.id, device.healthy) for device in plan_lists(nothing, table)[MEMORY]] == [("m", False)]


def test_the_account_has_what_is_bound_and_withholds_what_cannot_be_given() -> None:
    """A GPU that goes through another door is in nobody's way and takes nobody in."""
    inventory = make_parted(3)
    doors = {1: (AllocationMode.FRACTIONS, False), 2: (AllocationMode.WHOLE, True)}
    view = plan_view(inventory, make_offering(inventory, doors), make_health(inventory), ON)
    table = make_table(bindings=[make_bound(7, [1], part(0, 30, 8)), make_bound(8, [2], part(0, 20, 4))])
    first, second, third = plan_summary(view, table).rooms
    assert (first.free_cores, first.free_bytes, first.users, first.withheld) == (50, 20 * GIB, 2, "")
    assert second.withheld == "door fractions (test)"
    assert third.withheld == "it is not given in parts"
    assert plan_summary(view, table, [7]).rooms[0].free_cores == 80


def test_shares_of_one_gpu_are_counted() -> None:
    """The third of two shares has no room, whatever is free."""
    view = make_view(make_parted(1), profile="hami", shares_per_gpu=2)
    table = make_table(bindings=[make_bound(number, [number], part(0, 10, 1)) for number in (1, 2)])
    assert not place(plan_summary(view, table), Demand(cores=10, memory_bytes=GIB)).shares


def test_a_container_is_held_to_its_part_and_to_nothing_where_it_has_all() -> None:
    """Memory of the whole GPU, and compute that is not counted or all of it, are no limits."""
    capacities = make_view(make_parted(2)).capacities
    some = make_bound(1, [1], part(0, 30, 8))
    assert plan_limits(some, capacities, compute=True) == (
        FractionLimit(gpu=gpu_uuid(0), memory_bytes=8 * GIB, cores=30, cores_max=30),
    )
    assert plan_limits(replace(some, core_limit=80), capacities, compute=True)[0].cores_max == 80
    both = make_bound(1, [1], part(0, 100, 32), part(1, 0, 4))
    assert plan_limits(both, capacities, compute=True) == (
        FractionLimit(gpu=gpu_uuid(0)),
        FractionLimit(gpu=gpu_uuid(1), memory_bytes=4 * GIB),
    )
    assert plan_limits(some, (), compute=True)[0].memory_bytes == 8 * GIB
    (unlimited,) = plan_limits(some, capacities, compute=False)
    assert unlimited == FractionLimit(gpu=gpu_uuid(0), memory_bytes=8 * GIB)


def test_the_node_says_what_its_gpus_are_and_not_what_is_given_of_them() -> None:
    """What is given stands on the pods; without GPUs that are given in parts there is nothing to say."""
    published = read_published(publish_view(make_view()))
    assert [gpu.uuid for gpu in published.gpus] == [gpu.uuid for gpu in make_view().inventory.gpus]
    assert all(not room.users for room in published.space.rooms)
    assert publish_view(replace(make_view(), gpus=())) == ""


def test_what_is_held_by_other_names_is_not_offered_by_these() -> None:
    """Such as promises of a profile that was in force before."""
    view = make_view()
    held = make_table([make_promise(1, "ab", ResourceName("other.example/shares"))])
    assert plan_lists(view, held) == plan_lists(view, make_table())
