"""What Allocate answers, strategy by strategy, and what it refuses."""

from typing import Any

import pytest

from nodeagent.components.deviceplugin.answer import (
    find_missing_channels,
    plan_answer,
    select_devices,
)
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.model.errors import DeviceUnknown, RequestInvalid
from nodeagent.model.ids import DeviceId, GpuUuid, MigUuid, ResourceName
from nodeagent.model.mps import MpsAccess
from nodeagent.model.plugin import ContainerAnswer, ContainerDevice, ContainerMount, HandoutFacts, MigCapability
from nodeagent.rules.offer.devices import PluginDevice, Resource

CDI = "k8s.device-plugin.nvidia.com"
MOUNTS = "/var/run/nvidia-container-devices"
GPU_A = PluginDevice(id=DeviceId("GPU-a"), uuid=GpuUuid("GPU-a"), gpu=GpuUuid("GPU-a"), index="0", minor=0)
GPU_B = PluginDevice(id=DeviceId("GPU-b"), uuid=GpuUuid("GPU-b"), gpu=GpuUuid("GPU-b"), index="1", minor=1)
GPU_TEN = PluginDevice(id=DeviceId("GPU-j"), uuid=GpuUuid("GPU-j"), gpu=GpuUuid("GPU-j"), index="10")
SLICE = PluginDevice(
    id=DeviceId("MIG-c"),
    uuid=MigUuid("MIG-c"),
    gpu=GpuUuid("GPU-b"),
    index="1:0",
    minor=1,
    gpu_instance_id=7,
    compute_instance_id=0,
)
FACTS = HandoutFacts(
    control_nodes=("/dev/nvidiactl", "/dev/nvidia-uvm"),
    dev_root="/run/nvidia/driver",
    capabilities=(
        MigCapability(gpu_minor=1, gpu_instance_id=7, compute_instance_id=0, node=67),
        MigCapability(gpu_minor=1, gpu_instance_id=7, compute_instance_id=None, node=66),
        MigCapability(gpu_minor=0, gpu_instance_id=7, compute_instance_id=None, node=3),
    ),
)


def answer(
    *devices: PluginDevice, strategy: str = "envvar", facts: HandoutFacts = FACTS, **settings: Any
) -> ContainerAnswer:
    strategies: Any = tuple(strategy.split("+"))
    return plan_answer(
        devices or (GPU_A, GPU_B), DevicePluginSettings(device_list_strategy=strategies, **settings), facts, "token"
    )


def share(device: PluginDevice, number: int) -> PluginDevice:
    return PluginDevice(
        id=DeviceId(f"{device.id}::{number}"),
        uuid=device.uuid,
        gpu=device.gpu,
        index=device.index,
        minor=device.minor,
        replica=number,
    )


def mount(name: str) -> ContainerMount:
    return ContainerMount(container_path=f"{MOUNTS}/{name}", host_path="/dev/null", read_only=False)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("envvar", ContainerAnswer(environment={"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"})),
        (
            "volume-mounts",
            ContainerAnswer(environment={"NVIDIA_VISIBLE_DEVICES": MOUNTS}, mounts=(mount("GPU-a"), mount("GPU-b"))),
        ),
        ("cdi-cri", ContainerAnswer(cdi_devices=(f"{CDI}/gpu=GPU-a", f"{CDI}/gpu=GPU-b"))),
        (
            "cdi-annotations",
            ContainerAnswer(annotations={"cdi.k8s.io/nvidia-device-plugin_token": f"{CDI}/gpu=GPU-a,{CDI}/gpu=GPU-b"}),
        ),
        (
            "envvar+cdi-cri",
            ContainerAnswer(
                environment={"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"},
                cdi_devices=(f"{CDI}/gpu=GPU-a", f"{CDI}/gpu=GPU-b"),
            ),
        ),
        (
            "volume-mounts+envvar",
            ContainerAnswer(environment={"NVIDIA_VISIBLE_DEVICES": MOUNTS}, mounts=(mount("GPU-a"), mount("GPU-b"))),
        ),
    ],
)
def test_each_strategy_answers_in_its_own_way(strategy: str, expected: ContainerAnswer) -> None:
    """Strategies add up; where two set the same variable the mounts win."""
    assert answer(strategy=strategy) == expected


def test_indexes_are_sorted_as_numbers() -> None:
    """Ten comes after one, and a MIG device after its GPU's number."""
    given = answer(GPU_TEN, SLICE, GPU_A, device_id_strategy="index")
    assert given.environment == {"NVIDIA_VISIBLE_DEVICES": "0,1:0,10"}


def test_shares_of_one_device_are_named_once() -> None:
    """Two shares of a GPU are one GPU for the container, in the order of the request."""
    given = answer(share(GPU_B, 3), share(GPU_A, 0), share(GPU_B, 1))
    assert given.environment == {"NVIDIA_VISIBLE_DEVICES": "GPU-b,GPU-a"}


def test_imex_channels_travel_with_each_strategy() -> None:
    """A variable with `envvar`, mounts with `volume-mounts`, names with CDI."""
    facts = HandoutFacts(imex_channels=(0,))
    given = answer(GPU_A, strategy="envvar+volume-mounts+cdi-cri", facts=facts)
    assert given.environment["NVIDIA_IMEX_CHANNELS"] == "0"
    assert given.mounts == (mount("GPU-a"), mount("imex/0"))
    assert given.cdi_devices == (f"{CDI}/gpu=GPU-a", f"{CDI}/imex-channel=0")
    assert "NVIDIA_IMEX_CHANNELS" not in answer(GPU_A, strategy="cdi-cri", facts=facts).environment


def test_extras_are_set_and_named_only_where_a_specification_exists() -> None:
    """The variables follow the settings, the CDI names follow what is there."""
    facts = HandoutFacts(cdi_extras=("gdrcopy", "mofed"))
    given = answer(GPU_A, strategy="cdi-cri", facts=facts, gdrcopy=True, gds=True, mofed=False)
    assert given.environment == {"NVIDIA_GDRCOPY": "enabled", "NVIDIA_GDS": "enabled"}
    assert given.cdi_devices == (f"{CDI}/gpu=GPU-a", f"{CDI}/gdrcopy=all")
    assert answer(GPU_A, mofed=True).environment["NVIDIA_MOFED"] == "enabled"


def test_device_specs_name_the_nodes_once_under_the_hosts_root() -> None:
    """Control nodes, then each GPU's node, then a MIG device's instances, GPU instance first."""
    given = answer(GPU_A, SLICE, share(GPU_A, 1), pass_device_specs=True)
    paths = ["nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", "nvidia-caps/nvidia-cap66", "nvidia-caps/nvidia-cap67"]
    assert given.devices == tuple(
        ContainerDevice(container_path=f"/dev/{path}", host_path=f"/run/nvidia/driver/dev/{path}", permissions="rw")
        for path in paths
    )


def test_device_specs_carry_channels_and_skip_what_is_unknown() -> None:
    """A GPU without a known minor number and an instance without a node are left out, channels are added."""
    orphan = PluginDevice(
        id=DeviceId("MIG-d"), uuid=MigUuid("MIG-d"), gpu=GpuUuid("GPU-a"), index="0:0", minor=0,
        gpu_instance_id=9, compute_instance_id=0,
    )  # fmt: skip
    facts = HandoutFacts(imex_channels=(3,))
    given = answer(GPU_TEN, orphan, facts=facts, pass_device_specs=True)
    assert [device.host_path for device in given.devices] == [
        "/dev/nvidia0", "/dev/nvidia-caps-imex-channels/channel3",
    ]  # fmt: skip


@pytest.mark.parametrize("strategy", ["cdi-cri", "cdi-annotations", "cdi-cri+cdi-annotations"])
def test_device_specs_are_left_out_with_cdi_alone(strategy: str) -> None:
    """CDI brings its own device nodes."""
    assert answer(strategy=strategy, pass_device_specs=True).devices == ()


RESOURCE = Resource(name=ResourceName("nvidia.com/gpu"), devices=(GPU_A, GPU_B))
SHARED = Resource(
    name=ResourceName("nvidia.com/gpu"), devices=(share(GPU_A, 0), share(GPU_A, 1), GPU_B), one_share_each=True
)


def select(resource: Resource, names: tuple[str, ...]) -> tuple[PluginDevice, ...]:
    known = {device.id: device for device in resource.devices}
    return select_devices(resource, known, [DeviceId(name) for name in names])


PREFIX = 'invalid allocation request for "nvidia.com/gpu": invalid request: '


@pytest.mark.parametrize(
    ("resource", "names", "error", "message"),
    [
        (RESOURCE, ("GPU-a", "GPU-x"), DeviceUnknown, "unknown device: GPU-x"),
        (RESOURCE, ("GPU-a::0",), DeviceUnknown, "unknown device: GPU-a::0"),
        (RESOURCE, (), RequestInvalid, "no device is asked for"),
        (RESOURCE, ("GPU-a", "GPU-a"), RequestInvalid, "device is asked for twice: GPU-a"),
        (SHARED, ("GPU-a::0", "GPU-b"), RequestInvalid, "maximum request size for shared resources is 1; found 2"),
        (SHARED, ("GPU-a::0", "GPU-x"), DeviceUnknown, "unknown device: GPU-x"),
    ],
)
def test_wrong_requests_are_refused_in_the_usual_words(
    resource: Resource, names: tuple[str, ...], error: type[Exception], message: str
) -> None:
    """Unknown ids come first; the words are those that people and tools know."""
    with pytest.raises(error) as raised:
        select(resource, names)
    assert str(raised.value) == PREFIX + message


@pytest.mark.parametrize("names", [("GPU-b", "GPU-a"), ("GPU-a",)])
def test_valid_requests_keep_their_order(names: tuple[str, ...]) -> None:
    """The devices come back as they were asked for."""
    assert tuple(device.id for device in select(RESOURCE, names)) == names


def test_one_share_and_whole_devices_pass_the_limit_on_shares() -> None:
    """The limit is about shares: one share passes, and so do whole devices without limit."""
    assert select(SHARED, ("GPU-a::1",)) == (SHARED.devices[1],)
    limited = Resource(name=ResourceName("nvidia.com/gpu"), devices=(GPU_A, GPU_B), one_share_each=True)
    assert len(select(limited, ("GPU-a", "GPU-b"))) == 2


@pytest.mark.parametrize(
    ("channels", "required", "present", "blocked"),
    [
        ((), True, (), False),
        ((0,), False, (), False),
        ((0,), True, (0,), False),
        ((0,), True, (), True),
    ],
)
def test_a_required_channel_that_is_missing_blocks(
    channels: tuple[int, ...], required: bool, present: tuple[int, ...], blocked: bool
) -> None:
    """Without the channel a container would fail much later and say less."""
    settings = DevicePluginSettings(imex_channel_ids=channels, imex_required=required)
    assert bool(find_missing_channels(settings, HandoutFacts(imex_channels=present))) is blocked


def test_what_a_daemon_asks_for_comes_before_the_mounts_of_strategies() -> None:
    """As in NVIDIA's device plugin; it is there with names of CDI alone too."""
    mps = MpsAccess(environment={"CUDA_MPS_PIPE_DIRECTORY": "/mps/r/pipe"}, mounts=(mount("pipe"),))
    settings = DevicePluginSettings(device_list_strategy=("volume-mounts",))
    given = plan_answer((GPU_A,), settings, FACTS, "", mps)
    assert given.mounts == (mount("pipe"), mount("GPU-a"))
    assert given.environment == {"NVIDIA_VISIBLE_DEVICES": MOUNTS, **mps.environment}
    by_name = plan_answer((GPU_A,), DevicePluginSettings(device_list_strategy=("cdi-cri",)), FACTS, "", mps)
    assert (by_name.environment, by_name.mounts) == (mps.environment, mps.mounts)
