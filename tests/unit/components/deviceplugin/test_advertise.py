"""Which list the kubelet is sent, and when."""

import pytest
from msgspec.structs import replace

from nodeagent.components.deviceplugin.advertise import (
    View,
    explain_loss,
    explain_unfitness,
    find_named,
    plan_list,
)
from nodeagent.config.schema import Settings
from nodeagent.config.sections.containers import CdiSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.config.sections.sharing import SharedResource, SharingSettings, TimeSlicing
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceId, DeviceUuid
from nodeagent.model.mig import GpuChange, MigState
from nodeagent.model.plugin import AdvertisedDevice
from nodeagent.model.runtime import CdiSpecFile, CdiState
from nodeagent.rules.offer.devices import Resource
from nodeagent.rules.offer.resources import plan_resources
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, mig_uuid

INVENTORY = make_inventory([make_gpu(0, numa_node=1), make_gpu(1)])


def report(**verdicts: Verdict) -> HealthReport:
    return HealthReport(
        generation=1,
        devices=tuple(
            DeviceHealth(
                device=gpu_uuid(int(name[1:])), gpu=gpu_uuid(int(name[1:])), verdict=verdict, since_seconds=0.0
            )
            for name, verdict in verdicts.items()
        ),
    )


def resource(inventory: Inventory = INVENTORY, settings: Settings | None = None) -> Resource:
    (only,) = plan_resources(inventory, settings or Settings()).resources
    return only


@pytest.mark.parametrize(
    ("verdict", "healthy"),
    [
        (Verdict.HEALTHY, True),
        (Verdict.SUSPECT, True),
        (Verdict.UNHEALTHY, False),
        (Verdict.UNKNOWN, False),
    ],
)
def test_verdicts_become_the_two_words_of_the_kubelet(verdict: Verdict, healthy: bool) -> None:
    """Suspect works and is handed out; without evidence nothing is."""
    listed = plan_list(resource(), View(INVENTORY, report(g0=verdict, g1=Verdict.HEALTHY)))
    assert listed == (
        AdvertisedDevice(id=DeviceId(gpu_uuid(0)), healthy=healthy, numa_node=1),
        AdvertisedDevice(id=DeviceId(gpu_uuid(1)), healthy=True),
    )


def test_a_device_that_nobody_judged_is_not_offered() -> None:
    """A report that does not mention a device says nothing good about it."""
    assert [device.healthy for device in plan_list(resource(), View(INVENTORY, report(g0=Verdict.HEALTHY)))] == [
        True,
        False,
    ]


def test_without_any_judge_devices_that_answer_are_offered() -> None:
    """Where health is not looked after, a lost GPU is still not offered."""
    inventory = make_inventory([make_gpu(0, lost="fell off the bus"), make_gpu(1)])
    assert [device.healthy for device in plan_list(resource(inventory), View(inventory, None))] == [False, True]


def test_all_shares_and_mig_devices_of_a_bad_gpu_and_nothing_else() -> None:
    """Every share of a lost GPU is unhealthy, every share of the other is not."""
    inventory = make_inventory([make_gpu(0, mig=["1g.10gb", "1g.10gb"], lost="xid 79"), make_gpu(1, mig=["1g.10gb"])])
    settings = Settings(
        device_plugin=DevicePluginSettings(mig_strategy="mixed"),
        sharing=SharingSettings(timeSlicing=TimeSlicing(resources=(SharedResource(name="mig-1g.10gb", replicas=2),))),
    )
    listed = plan_list(resource(inventory, settings), View(inventory, None))
    assert [device.healthy for device in listed] == [False] * 4 + [True] * 2


def test_one_bad_mig_device_spares_its_siblings() -> None:
    inventory = make_inventory([make_gpu(0, mig=["1g.10gb", "1g.10gb"])])
    verdicts = [(mig_uuid(0, 0), Verdict.UNHEALTHY), (mig_uuid(0, 1), Verdict.HEALTHY)]
    health = HealthReport(
        generation=1,
        devices=tuple(
            DeviceHealth(device=device, gpu=gpu_uuid(0), verdict=verdict, since_seconds=0.0)
            for device, verdict in verdicts
        ),
    )
    settings = Settings(device_plugin=DevicePluginSettings(mig_strategy="mixed"))
    listed = plan_list(resource(inventory, settings), View(inventory, health))
    assert [device.healthy for device in listed] == [False, True]


def test_blocked_node_offers_nothing_but_shows_all() -> None:
    """What the whole node lacks makes each device unhealthy, with that reason."""
    view = View(INVENTORY, None, blocked="no channel")
    assert not any(device.healthy for device in plan_list(resource(), view))
    assert explain_unfitness(resource().devices[0], view) == "no channel"


def test_what_a_change_of_layout_takes_away_is_given_to_nobody_new() -> None:
    """Whoever has it keeps it; other GPUs, and what stays of this one, are offered as before."""
    change = GpuChange(gpu=gpu_uuid(0), index=0, wanted="7 x 1g.10gb", doing="waits for ns/a (c)")
    view = View(INVENTORY, None, mig=MigState(changes=(change,)))
    assert [device.healthy for device in plan_list(resource(), view)] == [False, True]
    told = "its GPU is being cut otherwise (7 x 1g.10gb): waits for ns/a (c)"
    assert explain_unfitness(resource().devices[0], view) == told
    assert not explain_loss(gpu_uuid(0), view)
    staying = MigState(changes=(replace(change, keeps=(gpu_uuid(0),)),))
    assert not explain_unfitness(resource().devices[0], View(INVENTORY, None, mig=staying))


def test_a_device_that_no_specification_names_is_not_offered() -> None:
    """A container that asked for it could not be created: a fresh MIG device waits until its name is written."""
    files = (
        CdiSpecFile(path="/a", kind="k8s.device-plugin.nvidia.com/gpu", version="0.5.0", devices=(gpu_uuid(0),)),
        CdiSpecFile(path="/b", kind="nvidia.com/gpu", version="0.5.0", devices=(gpu_uuid(1),)),
    )
    named = find_named(CdiState(generation=1, files=files), Settings())
    listed = plan_list(resource(), View(INVENTORY, None, named=named))
    assert [device.healthy for device in listed] == [True, False]
    assert "no CDI specification names it" in explain_unfitness(
        resource().devices[1], View(INVENTORY, None, named=named)
    )
    assert not explain_loss(gpu_uuid(1), View(INVENTORY, None, named=named))


def test_a_gpu_that_has_no_name_because_of_mig_says_what_to_do() -> None:
    """Nothing is to be waited for: its devices are made, or MIG is switched off."""
    bare = make_inventory([make_gpu(0, mig=[]), make_gpu(1)])
    reason = explain_unfitness(resource().devices[0], View(bare, None, named=frozenset()))
    assert reason == "MIG is on and it has no MIG device: create some, or switch MIG off"


def test_names_matter_only_where_containers_are_told_by_name() -> None:
    """With another strategy, without our specifications, and before anybody says which there are, none is needed."""
    state = CdiState(generation=1)
    by_variable = Settings(device_plugin=DevicePluginSettings(device_list_strategy=("envvar",)))
    without = Settings(cdi=CdiSettings(enabled=False))
    assert find_named(state, Settings()) == frozenset()
    assert [find_named(None, Settings()), find_named(state, by_variable), find_named(state, without)] == [None] * 3


def test_gone_devices_stay_listed_while_held() -> None:
    """A device that a container holds is shown unhealthy when the node has it no more; ids are never taken over."""
    held = [DeviceId("GPU-gone"), DeviceId(gpu_uuid(0))]
    listed = plan_list(resource(), View(INVENTORY, None), held)
    assert [(device.id, device.healthy) for device in listed] == [
        (gpu_uuid(0), True),
        (gpu_uuid(1), True),
        ("GPU-gone", False),
    ]


@pytest.mark.parametrize(
    ("reason", "words"),
    [("row remapping failed", "row remapping failed"), ("", "its health is unhealthy")],
)
def test_unfitness_has_a_reason(reason: str, words: str) -> None:
    """A refusal can say why, in the verdict's words where it has some."""
    device: DeviceUuid = gpu_uuid(0)
    verdict = DeviceHealth(device=device, gpu=gpu_uuid(0), verdict=Verdict.UNHEALTHY, since_seconds=0.0, reason=reason)
    view = View(INVENTORY, HealthReport(generation=1, devices=(verdict,)))
    assert words in explain_unfitness(resource().devices[0], view)


def test_vanished_gpu_is_unfit() -> None:
    """A device of a plan older than the inventory is not handed out."""
    assert "not on this node" in explain_unfitness(resource().devices[0], View(make_inventory([]), None))


@pytest.mark.parametrize(
    ("inventory", "verdict", "may_start"),
    [
        (INVENTORY, Verdict.HEALTHY, True),
        (INVENTORY, Verdict.UNKNOWN, True),
        (INVENTORY, Verdict.UNHEALTHY, False),
        (INVENTORY, None, True),
        (make_inventory([make_gpu(0, lost="xid 79")]), Verdict.HEALTHY, False),
        (make_inventory([make_gpu(1)]), None, False),
    ],
)
def test_a_container_may_start_again_on_what_is_not_broken(
    inventory: Inventory, verdict: Verdict | None, *, may_start: bool
) -> None:
    """A device that waits for its verdict keeps its container; one that is broken or gone does not."""
    health = None if verdict is None else report(g0=verdict)
    assert (not explain_loss(gpu_uuid(0), View(inventory, health))) is may_start


def test_a_cordoned_gpu_stays_in_the_list_and_is_unhealthy() -> None:
    """The node's capacity stays, what is allocatable is one less, and a running container is not disturbed."""
    view = View(INVENTORY, report(g0=Verdict.HEALTHY, g1=Verdict.HEALTHY), cordoned={gpu_uuid(1): "cordoned by ann"})
    assert [device.healthy for device in plan_list(resource(), view)] == [True, False]
    second = resource().devices[1]
    assert explain_unfitness(second, view) == "cordoned by ann"
    assert explain_loss(second.uuid, view) == ""


def test_the_mig_devices_of_a_cordoned_gpu_are_unhealthy_alike() -> None:
    inventory = make_inventory([make_gpu(0, mig=["1g.10gb", "1g.10gb"]), make_gpu(1)])
    (only,) = plan_resources(inventory, Settings(device_plugin=DevicePluginSettings(mig_strategy="mixed"))).resources[
        1:
    ]
    assert {device.healthy for device in plan_list(only, View(inventory, None, cordoned={gpu_uuid(0): "x"}))} == {False}


def test_of_a_gpu_to_be_proved_one_device_is_healthy() -> None:
    """The first free replica; held ones stay as they are, and other GPUs too."""
    settings = Settings(
        sharing=SharingSettings(timeSlicing=TimeSlicing(resources=(SharedResource(name="nvidia.com/gpu", replicas=3),)))
    )
    shared, view = resource(INVENTORY, settings), View(INVENTORY, None, trials=frozenset({gpu_uuid(0)}))
    listed = plan_list(shared, view)
    assert [device.healthy for device in listed] == [True, False, False, True, True, True]
    listed = plan_list(shared, view, held=[listed[0].id])
    assert [device.healthy for device in listed] == [True, True, False, True, True, True]


def test_of_a_cut_gpu_to_be_proved_the_first_mig_device_is_healthy() -> None:
    """Whatever the resources; as long as it is held, no other takes its place."""
    inventory = make_inventory([make_gpu(0, mig=["2g.20gb", "1g.10gb", "1g.10gb"]), make_gpu(1)])
    settings = Settings(device_plugin=DevicePluginSettings(mig_strategy="mixed"))
    view = View(inventory, None, trials=frozenset({gpu_uuid(0)}))
    lists = {each.name: plan_list(each, view) for each in plan_resources(inventory, settings).resources}
    healthy = [device.id for each in lists.values() for device in each if device.healthy]
    assert sorted(healthy) == sorted([gpu_uuid(1), inventory.gpus[0].mig_devices[0].uuid])
    (first,) = (each for each in plan_resources(inventory, settings).resources if "2g" in each.name)
    assert plan_list(first, view, held=[lists[first.name][0].id]) == lists[first.name]


def test_a_whole_gpu_to_be_proved_is_healthy() -> None:
    view = View(INVENTORY, None, trials=frozenset({gpu_uuid(0)}))
    assert [device.healthy for device in plan_list(resource(), view)] == [True, True]
