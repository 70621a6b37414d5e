"""The account of what pods cannot get: its words, its numbers, its conditions."""

from msgspec.structs import replace

from nodeagent.components.deviceplugin.advertise import View
from nodeagent.components.deviceplugin.offer_summary import (
    decide_conditions,
    find_claimed,
    find_parted,
    list_offered,
    plan_summary,
)
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import GpusSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.model.fractions import FractionOffers
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, Offering
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, OfferSummary
from nodeagent.model.slices import PublishedSlices
from nodeagent.rules.offer.resources import plan_resources
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, make_node

NONE = Settings()
MIXED = Settings(device_plugin=DevicePluginSettings(mig_strategy="mixed"))


def account_for(
    *gpus: Gpu, settings: Settings = NONE, blocked: str = "", without: frozenset[str] = frozenset()
) -> OfferSummary:
    """The account where the kubelet knows everything that is fit, but for `without`."""
    inventory = make_inventory(gpus)
    return judge(inventory, settings, blocked=blocked, without=without)


def judge(
    inventory: Inventory, settings: Settings, *, blocked: str = "", without: frozenset[str] = frozenset()
) -> OfferSummary:
    plan = plan_resources(inventory, settings)
    view = View(inventory, None, blocked)
    planned = {device.uuid for resource in plan.resources for device in resource.devices}
    return plan_summary(inventory, settings, plan, view, frozenset() if blocked else frozenset(planned - without))


def details(account: OfferSummary, code: str) -> list[str]:
    return list(decide_conditions(account)[code].values())


def test_nothing_is_left_over_of_a_whole_node() -> None:
    """Eight GPUs, eight offered, no condition."""
    account = judge(make_node(), NONE)
    assert (account.gpus, account.gpus_offered, account.devices_offered, account.unoffered) == (8, 8, 8, ())
    assert not any(decide_conditions(account).values())
    assert not any(decide_conditions(judge(make_inventory([]), NONE)).values())


def test_only_what_is_registered_and_healthy_is_offered() -> None:
    """A share counts for its device, once."""

    def list_one(name: str, *ids: tuple[str, bool], registered: bool = True) -> AdvertisedResource:
        devices = tuple(AdvertisedDevice(id=DeviceId(id_), healthy=healthy) for id_, healthy in ids)
        return AdvertisedResource(name=ResourceName(name), socket="s", registered=registered, devices=devices)

    first = list_one("nvidia.com/gpu", ("GPU-a::0", True), ("GPU-a::1", True), ("GPU-b", False))
    assert list_offered([first, list_one("nvidia.com/other", ("GPU-c", True), registered=False)]) == {"GPU-a"}


def test_an_exclusion_is_information_that_names_its_selector() -> None:
    """It stands per GPU, and the others are offered."""
    settings = Settings(gpus=GpusSettings(exclude=("0", "NVIDIA X*")))
    account = account_for(make_gpu(0), make_gpu(1), settings=settings)
    assert details(account, "gpu-excluded") == ["GPU 0: `gpus.exclude` names it by '0'"]
    assert (account.gpus_offered, account.gpus_excluded, account.troubled) == (1, 1, ())
    settings = Settings(gpus=GpusSettings(include=("1", "2")))
    account = account_for(make_gpu(0), make_gpu(1), make_gpu(2, name="DGX Display"), settings=settings)
    assert details(account, "gpu-excluded") == [
        "GPU 0: `gpus.include` is '1', '2' and does not name it",
        "GPU 2: a DGX Display is no GPU to work with",
    ]


def test_an_include_that_means_nothing_is_an_error_and_no_wish() -> None:
    """All GPUs are named, so that the slip is seen; nothing is offered."""
    account = account_for(make_gpu(0), make_gpu(1), settings=Settings(gpus=GpusSettings(include=("nope",))))
    assert details(account, "gpu-include-empty") == ["GPU 0, GPU 1: `gpus.include` is 'nope' and does not name it"]
    assert (account.devices_offered, account.gpus_excluded, len(account.troubled)) == (0, 0, 2)
    assert details(account, "nothing-offered") == [
        "0 of 2 GPUs offered: GPU 0, GPU 1: `gpus.include` is 'nope' and does not name it"
    ]


def test_all_excluded_is_nothing_offered() -> None:
    """Wanted or not, a pod waits for ever: a node that shall offer nothing switches the device plugin off."""
    account = account_for(make_gpu(0), settings=Settings(gpus=GpusSettings(exclude=("*",))))
    assert details(account, "nothing-offered")
    assert account.troubled == ()


def test_mig_devices_behind_a_whole_gpu_are_told_by_gpu() -> None:
    """With the strategy none pods get the GPU; that its parts are not offered is one line."""
    account = account_for(make_gpu(0, mig=["1g.10gb", "1g.10gb"]), make_gpu(1, mig=["3g.40gb"]), make_gpu(2))
    assert details(account, "mig-not-offered") == [
        "GPU 0: 2 MIG devices: `device_plugin.mig_strategy` is none: pods get the GPU as a whole",
        "GPU 1: 1 MIG device: `device_plugin.mig_strategy` is none: pods get the GPU as a whole",
    ]
    assert (account.gpus_offered, account.devices_offered) == (3, 3)
    assert not account_for(make_gpu(0, mig=["1g.10gb"]), settings=MIXED).unoffered


def test_a_gpu_that_fails_is_told_once_for_all_its_parts() -> None:
    """One part alone stands under its own name."""
    cut = make_gpu(0, mig=["1g.10gb", "3g.40gb"])
    account = account_for(replace(cut, lost="fell off"), settings=MIXED)
    assert list(decide_conditions(account)["gpu-not-offered"]) == [gpu_uuid(0)]
    part = cut.mig_devices[1].uuid
    account = account_for(cut, settings=MIXED, without=frozenset({part}))
    assert decide_conditions(account)["gpu-not-offered"] == {
        part: "GPU 0:1 (3g.40gb): the kubelet has not been told of it (yet)"
    }
    assert (account.gpus_offered, account.devices_offered) == (0, 1)


def test_a_cut_gpu_that_no_container_can_be_given_is_no_offer() -> None:
    """CDI names its parts alone: under the strategy none pods get neither, and the reason says what to set."""
    inventory = make_inventory([make_gpu(0, mig=["1g.10gb"]), make_gpu(1)])
    named = frozenset({gpu_uuid(1), inventory.gpus[0].mig_devices[0].uuid})
    view = View(inventory, None, named=named)
    account = plan_summary(inventory, NONE, plan_resources(inventory, NONE), view, frozenset({gpu_uuid(1)}))
    assert (account.gpus_offered, len(account.unoffered)) == (1, 1)
    assert "set `device_plugin.mig_strategy` to single or mixed" in details(account, "gpu-not-offered")[0]


def test_what_cannot_be_planned_says_why() -> None:
    """The plan's own word on the device, or on the resource whose name cannot be."""
    account = account_for(make_gpu(0, mig=[]), settings=MIXED)
    assert account.unoffered[0].reason.startswith("MIG is on but")
    account = account_for(make_gpu(0, mig=["1c.2g.20gb"]), settings=MIXED)
    assert "smaller than its GPU instance" in account.unoffered[0].reason
    single = Settings(device_plugin=DevicePluginSettings(mig_strategy="single"))
    account = account_for(make_gpu(0, mig=["1g.10gb", "3g.40gb"]), settings=single)
    assert "devices of one kind" in account.unoffered[0].reason
    long = Settings(device_plugin=DevicePluginSettings(resource_prefix=f"{'a' * 60}.example.com"))
    account = account_for(make_gpu(0), settings=long)
    assert account.unoffered[0].reason.endswith("give it a shorter one")


def test_many_of_one_kind_are_counted() -> None:
    """Eight names, then how many more."""
    gpus = [make_gpu(index) for index in range(10)]
    text = account_for(*gpus, blocked="the driver is not ready").describe()
    assert text.startswith("0 of 10 GPUs offered: GPU 0, GPU 1,")
    assert text.endswith("GPU 7 and 2 more (`nodeagent status --json` lists them): the driver is not ready")


CORES, BLOCKS = ResourceName("x.com/cores"), ResourceName("x.com/blocks")


def stand(name: ResourceName, *, registered: bool = True, devices: int = 1) -> AdvertisedResource:
    ids = tuple(AdvertisedDevice(id=DeviceId(f"{name}-{number}"), healthy=True) for number in range(devices))
    return AdvertisedResource(name=name, socket="s", registered=registered, devices=ids)


def test_a_gpu_in_parts_is_offered_when_the_kubelet_counts_all_that_is_asked_for() -> None:
    """Cores without memory are nothing that a pod could be given."""
    parts = FractionOffers(resources=(CORES, BLOCKS), unfit={gpu_uuid(0): "", gpu_uuid(1): "ill"})
    told = find_parted(parts, {CORES: stand(CORES), BLOCKS: stand(BLOCKS)})
    assert told == {gpu_uuid(0): "", gpu_uuid(1): "ill"}
    for standing in (
        {},
        {CORES: stand(CORES)},
        {CORES: stand(CORES), BLOCKS: stand(BLOCKS, registered=False)},
        {CORES: stand(CORES), BLOCKS: stand(BLOCKS, devices=0)},
    ):
        untold = find_parted(parts, standing)
        assert "has not been told" in untold[gpu_uuid(0)]
        assert untold[gpu_uuid(1)] == "ill"
    assert "has not been told" in find_parted(FractionOffers(unfit={gpu_uuid(0): ""}), {})[gpu_uuid(0)]


def behind_claims(index: int) -> Offering:
    gpu = make_gpu(index)
    door = GpuAllocationMode(
        gpu=gpu.uuid,
        index=index,
        address=gpu.pci.address,
        door=AllocationMode.CLAIMS,
        wanted=AllocationMode.CLAIMS,
        reason="a rule",
        is_open=True,
    )
    return Offering(doors=(door,))


def test_a_gpu_behind_the_door_of_claims_is_offered_when_schedulers_know_of_it() -> None:
    """What they were told stays told while the API server is away; a GPU that is gone is said to be so."""
    view = View(make_inventory([make_gpu(0)]), None)
    told = PublishedSlices(driver="d", pool="n", generation=1, slices=1, devices=1)
    away = replace(told, problem="no answer")
    assert find_claimed(behind_claims(0), told, view) == find_claimed(behind_claims(0), away, view) == {gpu_uuid(0): ""}
    assert "have not been told" in find_claimed(behind_claims(0), None, view)[gpu_uuid(0)]
    refused = PublishedSlices(driver="d", pool="n", problem="forbidden")
    assert find_claimed(behind_claims(0), refused, view) == {gpu_uuid(0): "forbidden"}
    assert "not on this node" in find_claimed(behind_claims(1), told, view)[gpu_uuid(1)]
    assert find_claimed(None, told, view) == {}


def test_a_node_whose_gpus_are_all_behind_claims_offers_them() -> None:
    inventory = make_inventory([make_gpu(0)])
    plan = plan_resources(inventory, NONE)
    account = plan_summary(inventory, NONE, plan, View(inventory, None), frozenset(), {gpu_uuid(0): ""})
    assert (account.devices_offered, account.unoffered) == (1, ())
    assert not any(decide_conditions(account).values())


def test_gpus_in_parts_are_in_the_account() -> None:
    """Each is offered or explained, beside the whole ones; one that is excluded is that first."""
    inventory = make_inventory([make_gpu(index) for index in range(4)])
    settings = Settings(gpus=GpusSettings(exclude=("3",)))
    plan = plan_resources(inventory, settings)
    closed = {gpu_uuid(index): "door fractions (test)" for index in (1, 2, 3)}
    account = plan_summary(
        inventory, settings, plan, View(inventory, None, "", None, closed), frozenset({gpu_uuid(0)}),
        {gpu_uuid(1): "", gpu_uuid(2): "ill"},
    )  # fmt: skip
    assert (account.gpus, account.devices_offered, account.gpus_offered) == (4, 2, 2)
    assert details(account, "gpu-not-offered") == ["GPU 2: ill"]
    assert details(account, "gpu-door") == []
    assert len(details(account, "gpu-excluded")) == 1


def test_a_cordoned_gpu_is_in_the_account_and_no_trouble() -> None:
    """Whichever door it has: `gpu-cordoned` tells of it, and nothing else."""
    inventory = make_inventory([make_gpu(index) for index in range(3)])
    plan = plan_resources(inventory, NONE)
    cordoned = {gpu_uuid(index): "cordoned by ann: fan" for index in (1, 2)}
    view = View(inventory, None, cordoned=cordoned)
    account = plan_summary(inventory, NONE, plan, view, frozenset({gpu_uuid(0)}), {gpu_uuid(2): "cordoned"})
    assert (account.gpus, account.gpus_offered, account.gpus_cordoned) == (3, 1, 2)
    assert account.troubled == ()
    assert not any(decide_conditions(account).values())
