"""What is offered: MIG strategies, names, filters and sharing."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import GpusSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.config.sections.sharing import (
    Mps,
    ResourcePattern,
    ResourcesSettings,
    SharedResource,
    SharingSettings,
    TimeSlicing,
)
from nodeagent.model.allocation import Allocation
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.ids import DeviceId, GpuUuid, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, PluginState
from nodeagent.rules.offer.devices import PluginDevice, ResourcePlan
from nodeagent.rules.offer.resources import list_free, plan_offer, plan_resources
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, mig_uuid

Layout = dict[str, int]

A100 = "NVIDIA A100-SXM4-40GB"


def plan(*gpus: Gpu, settings: Settings | None = None) -> ResourcePlan:
    return plan_resources(make_inventory(gpus), settings or Settings())


def layout(plan: ResourcePlan) -> Layout:
    return {str(resource.name): len(resource.devices) for resource in plan.resources}


def with_strategy(strategy: Any, **others: Any) -> Settings:
    return Settings(device_plugin=DevicePluginSettings(mig_strategy=strategy), **others)


def sliced(*entries: Mapping[str, Any], **section: Any) -> Settings:
    resources = tuple(SharedResource(**entry) for entry in entries)
    return Settings(sharing=SharingSettings(timeSlicing=TimeSlicing(resources=resources, **section)))


WHOLE = make_gpu(0)
ALSO_WHOLE = make_gpu(1)
CUT = make_gpu(1, mig=["1g.10gb", "1g.10gb"])
CUT_TOO = make_gpu(2, mig=["1g.10gb", "1g.10gb", "1g.10gb"])
CUT_OTHERWISE = make_gpu(2, mig=["1g.10gb", "2g.20gb"])
UNCUT = make_gpu(3, mig=[])
SMALL_COMPUTE = make_gpu(4, mig=["1c.2g.20gb", "1c.2g.20gb"])


@pytest.mark.parametrize(
    ("strategy", "gpus", "offered", "problems"),
    [
        ("none", (WHOLE, ALSO_WHOLE), {"nvidia.com/gpu": 2}, 0),
        ("none", (WHOLE, CUT, UNCUT), {"nvidia.com/gpu": 3}, 0),
        ("single", (WHOLE, ALSO_WHOLE), {"nvidia.com/gpu": 2}, 0),
        ("single", (CUT, CUT_TOO), {"nvidia.com/gpu": 5}, 0),
        ("single", (CUT, UNCUT), {"nvidia.com/gpu": 2}, 1),
        ("single", (SMALL_COMPUTE,), {"nvidia.com/gpu": 2}, 0),
        ("mixed", (WHOLE, ALSO_WHOLE), {"nvidia.com/gpu": 2}, 0),
        ("mixed", (WHOLE, CUT), {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 2}, 0),
        ("mixed", (CUT_OTHERWISE,), {"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-2g.20gb": 1}, 0),
        ("mixed", (WHOLE, UNCUT), {"nvidia.com/gpu": 1}, 1),
        ("mixed", (CUT, SMALL_COMPUTE), {"nvidia.com/mig-1g.10gb": 2}, 2),
    ],
)  # fmt: skip
def test_mig_strategy_decides_what_is_offered(
    strategy: str, gpus: tuple[Gpu, ...], offered: Layout, problems: int
) -> None:
    """Each strategy offers what is valid under it and names the rest as problems."""
    planned = plan(*gpus, settings=with_strategy(strategy))
    assert (offered, problems) == (layout(planned), len(planned.problems))
    assert not any(device.withheld for resource in planned.resources for device in resource.devices)


@pytest.mark.parametrize("gpus", [(WHOLE, CUT), (CUT, CUT_OTHERWISE)])
def test_single_withholds_devices_of_several_kinds(gpus: tuple[Gpu, ...]) -> None:
    """A pod that asks for one device must not get now a GPU and now a slice: all are shown, none is handed out."""
    planned = plan(*gpus, settings=with_strategy("single"))
    (resource,) = planned.resources
    assert all("one kind" in device.withheld for device in resource.devices)
    assert [problem.subject for problem in planned.problems] == ["device_plugin.mig_strategy"]


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ("1g.10gb+me", "nvidia.com/mig-1g.10gb.me"),
        ("1g.24gb-me", "nvidia.com/mig-1g.24gb-me"),
        ("2g.48gb+gfx", "nvidia.com/mig-2g.48gb.gfx"),
        ("1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all"),
    ],
)
def test_profile_suffixes_become_resource_names(profile: str, name: str) -> None:
    """A plus sign, which no resource name may have, becomes a dot."""
    assert {name: 1} == layout(plan(make_gpu(0, mig=[profile]), settings=with_strategy("mixed")))


def test_devices_carry_what_containers_are_given_by() -> None:
    """A MIG device knows its indexes and instances; a GPU its minor number and its NUMA node."""
    planned = plan(make_gpu(0, numa_node=1), make_gpu(1, mig=["1g.10gb"]), settings=with_strategy("mixed"))
    (whole,), (slice_,) = (resource.devices for resource in planned.resources)
    assert whole == PluginDevice(
        id=DeviceId(gpu_uuid(0)), uuid=gpu_uuid(0), gpu=gpu_uuid(0), index="0", minor=0, numa_node=1
    )
    assert slice_ == PluginDevice(
        id=DeviceId(mig_uuid(1, 0)),
        uuid=mig_uuid(1, 0),
        gpu=gpu_uuid(1),
        index="1:0",
        minor=1,
        gpu_instance_id=7,
        compute_instance_id=0,
    )


@pytest.mark.parametrize("numa_node", [None, -1])
def test_unknown_numa_node_is_left_out(numa_node: int | None) -> None:
    """The kernel's minus one is not node zero."""
    (resource,) = plan(make_gpu(0, numa_node=numa_node)).resources
    assert resource.devices[0].numa_node is None


def test_display_adapters_are_not_offered() -> None:
    """The display adapter of a workstation is skipped and the others keep their indexes."""
    (resource,) = plan(make_gpu(0, name="NVIDIA DGX Display"), make_gpu(1)).resources
    assert [device.index for device in resource.devices] == ["1"]


@pytest.mark.parametrize(
    ("include", "exclude", "indexes"),
    [
        ((), (), "012"),
        (("0", gpu_uuid(2)), (), "02"),
        (("NVIDIA A100*",), (), "2"),
        (("00000000:11:00.0",), (), "1"),
        (("1x:00.0",), (), ""),
        ((), ("*H100*",), "2"),
        (("*",), ("1", "11:00.0"), "02"),
        (("7",), (), ""),
    ],
)
def test_filter_selects_by_index_uuid_address_and_model(
    include: tuple[str, ...], exclude: tuple[str, ...], indexes: str
) -> None:
    """Included and not excluded, however the GPU is named."""
    settings = Settings(gpus=GpusSettings(include=include, exclude=exclude))
    planned = plan(make_gpu(0), make_gpu(1), make_gpu(2, name=A100), settings=settings)
    assert indexes == "".join(device.index for resource in planned.resources for device in resource.devices)


def test_patterns_rename_by_model_and_profile() -> None:
    """The first pattern that fits names the resource; without one the default name stays."""
    settings = with_strategy(
        "mixed",
        resources=ResourcesSettings(
            gpus=(ResourcePattern(pattern="*A100*", name="nvidia.com/a100"),),
            mig=(ResourcePattern(pattern="1g.*", name="small"), ResourcePattern(pattern="*", name="example.org/large")),
        ),
    )
    planned = plan(make_gpu(0), make_gpu(1, name=A100), make_gpu(2, mig=["1g.10gb", "2g.20gb"]), settings=settings)
    assert layout(planned) == {
        "example.org/large": 1, "nvidia.com/a100": 1, "nvidia.com/gpu": 1, "nvidia.com/small": 1,
    }  # fmt: skip


def test_patterns_name_mig_devices_under_single() -> None:
    """A MIG pattern counts under `single` too, where the default is the name of a whole GPU."""
    patterns = ResourcesSettings(mig=(ResourcePattern(pattern="1g.*", name="small"),))
    assert layout(plan(CUT, settings=with_strategy("single", resources=patterns))) == {"nvidia.com/small": 2}


def test_prefix_replaces_nvidias_domain_only() -> None:
    """A pasted configuration with NVIDIA's domain follows the prefix; another domain is meant as written."""
    settings = Settings(
        device_plugin=DevicePluginSettings(resource_prefix="example.org"),
        resources=ResourcesSettings(gpus=(ResourcePattern(pattern="*A100*", name="other.net/gpu"),)),
        sharing=SharingSettings(
            timeSlicing=TimeSlicing(resources=(SharedResource(name="nvidia.com/gpu", replicas=2),))
        ),
    )
    planned = plan(make_gpu(0), make_gpu(1, name=A100), settings=settings)
    assert layout(planned) == {"example.org/gpu": 2, "other.net/gpu": 1}
    assert [resource.socket for resource in planned.resources] == ["example.org-gpu.sock", "other.net-gpu.sock"]


def test_time_slicing_offers_each_device_several_times() -> None:
    """Every share has its number behind the UUID, the first being zero."""
    (resource,) = plan(WHOLE, ALSO_WHOLE, settings=sliced({"name": "gpu", "replicas": 3})).resources
    assert [f"{gpu_uuid(gpu)}::{share}" for gpu in (0, 1) for share in (0, 1, 2)] == [
        device.id for device in resource.devices
    ]
    assert resource.name == "nvidia.com/gpu"
    assert not resource.one_share_each


def test_shared_resources_are_renamed_where_asked() -> None:
    """`renameByDefault` adds a suffix, an entry's own name wins over it, and a limit on shares is carried along."""
    gpu, mig = {"name": "gpu", "replicas": 2}, {"name": "nvidia.com/mig-1g.10gb", "replicas": 2, "rename": "slice"}
    settings = sliced(gpu, mig, renameByDefault=True, failRequestsGreaterThanOne=True)
    settings = Settings(device_plugin=DevicePluginSettings(mig_strategy="mixed"), sharing=settings.sharing)
    planned = plan(WHOLE, CUT, settings=settings)
    assert layout(planned) == {"nvidia.com/gpu.shared": 2, "nvidia.com/slice": 4}
    assert all(resource.one_share_each for resource in planned.resources)


@pytest.mark.parametrize(
    ("devices", "shared"),
    [
        ("all", [0, 1, 2]),
        (2, [0, 1]),
        (("1", "2"), [1, 2]),
        ((gpu_uuid(2),), [2]),
        (("9",), []),
    ],
)
def test_sharing_can_be_limited_to_some_devices(devices: Any, shared: list[int]) -> None:
    """A count takes the first ones, a list the named ones; the others stay whole in the resource of old."""
    settings = sliced({"name": "gpu", "replicas": 2, "rename": "shared", "devices": devices})
    planned = plan(WHOLE, ALSO_WHOLE, make_gpu(2), settings=settings)
    resource = planned.find("nvidia.com/shared")
    assert [index for index in shared for _ in range(2)] == [
        int(device.index) for device in (resource.devices if resource else ())
    ]
    whole = planned.find("nvidia.com/gpu")
    assert 3 - len(shared) == len(whole.devices if whole else ())


@pytest.mark.parametrize(
    ("selector", "shared"),
    [
        ("1:1", [mig_uuid(1, 1)]),
        (mig_uuid(1, 0), [mig_uuid(1, 0)]),
        (f"MIG-{gpu_uuid(1)}/8/0", [mig_uuid(1, 1)]),
        ("1", [mig_uuid(1, 0), mig_uuid(1, 1)]),
        ("2:0", []),
    ],
)
def test_mig_devices_are_selected_by_all_their_names(selector: str, shared: list[str]) -> None:
    """Index pair, UUID, the old form of UUID, and the GPU around them."""
    entry = {"name": "mig-1g.10gb", "replicas": 2, "rename": "shared", "devices": (selector,)}
    settings = with_strategy("mixed", sharing=sliced(entry).sharing)
    resource = plan(CUT, settings=settings).find("nvidia.com/shared")
    assert shared == [device.uuid for device in (resource.devices if resource else ()) if device.replica == 0]


def test_models_are_shared_each_in_their_own_way() -> None:
    """The first entry whose model fits counts, so that one node can share its GPUs by model."""
    settings = sliced(
        {"name": "gpu", "replicas": 2, "models": ("*A100*",)},
        {"name": "gpu", "replicas": 4, "models": ("*H100*",), "devices": 1},
    )
    (resource,) = plan(make_gpu(0), make_gpu(1, name=A100), make_gpu(2), settings=settings).resources
    assert [device.index for device in resource.devices] == ["0", "0", "0", "0", "1", "1", "2"]


def test_mps_wins_over_time_slicing() -> None:
    """As in NVIDIA's device plugin; a share is a fixed part, so a container has one unless something else is said."""
    shared, fewer = (SharedResource(name="gpu", replicas=4),), (SharedResource(name="gpu", replicas=2),)
    settings = Settings(sharing=SharingSettings(mps=Mps(resources=fewer), timeSlicing=TimeSlicing(resources=shared)))
    (resource,) = plan(WHOLE, settings=settings).resources
    assert [device.by_mps for device in resource.devices] == [True, True]
    assert resource.one_share_each
    (offered,) = plan_offer((WHOLE,), settings).devices
    assert offered.strategy == "mps"


@pytest.mark.parametrize(
    ("gpu", "replicas", "strategy", "said"),
    [
        (CUT, 2, "single", "MPS does not share MIG devices"),
        (CUT, 2, "none", "MPS does not share MIG devices"),
        (replace(WHOLE, compute_capability=(7, 0)), 17, "none", "16 clients of this GPU at most"),
        (WHOLE, 49, "none", "48 clients of this GPU at most"),
    ],
)
def test_what_mps_cannot_share_is_withheld_with_its_reason(gpu: Gpu, replicas: int, strategy: str, said: str) -> None:
    """It stays in the list, unhealthy, rather than being given out as something else."""
    shared = (SharedResource(name="gpu", replicas=replicas),)
    settings = with_strategy(strategy, sharing=SharingSettings(mps=Mps(resources=shared)))
    devices = [device for resource in plan(gpu, settings=settings).resources for device in resource.devices]
    assert devices
    assert all(said in device.withheld for device in devices)


def test_entry_for_an_absent_resource_is_skipped() -> None:
    """One configuration serves many kinds of nodes."""
    assert layout(plan(WHOLE, settings=sliced({"name": "mig-1g.5gb", "replicas": 2}))) == {"nvidia.com/gpu": 1}


def test_too_long_name_is_a_problem_of_that_resource() -> None:
    """A name that the kubelet would refuse is reported, and the other resources are served."""
    patterns = ResourcesSettings(mig=(ResourcePattern(pattern="1g.*", name="x" * 63),))
    planned = plan(WHOLE, CUT, settings=with_strategy("mixed", resources=patterns))
    assert layout(planned) == {"nvidia.com/gpu": 1}
    assert ["longer than 63" in problem.reason for problem in planned.problems] == [True]


def test_doubled_uuids_are_not_offered() -> None:
    """Two GPUs that cannot be told apart are both left out, the others are served."""
    twin = make_gpu(0)
    planned = plan_resources(Inventory(generation=1, gpus=(WHOLE, twin, ALSO_WHOLE)), Settings())
    assert layout(planned) == {"nvidia.com/gpu": 1}
    assert len(planned.problems) == 2


def test_a_gpu_without_uuid_is_not_offered_and_the_reason_says_so() -> None:
    """Two of them are not called doubles of one another."""
    nameless = [replace(make_gpu(number), uuid=GpuUuid("")) for number in (2, 3)]
    planned = plan_resources(Inventory(generation=1, gpus=(WHOLE, *nameless)), Settings())
    assert layout(planned) == {"nvidia.com/gpu": 1}
    assert {problem.reason for problem in planned.problems} == {
        "the driver names no UUID: no container can be given it"
    }


def test_no_gpu_is_no_resource() -> None:
    """A node without GPUs offers nothing, and that is no problem."""
    assert ResourcePlan() == plan()


def test_what_is_held_or_sick_is_not_free() -> None:
    """Nor what the kubelet does not know."""
    devices = tuple(AdvertisedDevice(id=DeviceId(name), healthy=name != "sick") for name in ("free", "held", "sick"))
    known = AdvertisedResource(name=ResourceName("a"), socket="s", registered=True, devices=devices)
    away = replace(known, registered=False, devices=(AdvertisedDevice(id=DeviceId("away"), healthy=True),))
    held = Allocation(number=1, resource=ResourceName("a"), devices=(DeviceId("held"),), since_seconds=0.0)
    assert list_free(PluginState(resources=(known, away)), [held]) == {"free"}
