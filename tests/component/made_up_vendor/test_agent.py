"""The agent on GPUs of another vendor, without NVML: from the kubelet's question to a metric and a verdict."""

import base64
import json
from pathlib import Path

import anyio
import pytest

from nodeagent.edge.kubelet.proto.device_plugin_pb2 import ContainerAllocateResponse
from nodeagent_sim.kubelet.kubelet import StandInKubelet
from tests.component.made_up_vendor.program import CELSIUS, GPUS, VENDOR
from tests.support.programs.agent_process import AgentProcess, running_agent
from tests.support.wire.kubelets import NAMESPACE, PATIENCE_SECONDS, running_stand_in

RESOURCE = f"{VENDOR.public_domain}/gpu"
SETTINGS = {
    "device_plugin.resource_prefix": VENDOR.public_domain,
    "device_plugin.device_list_strategy": "cdi-cri,envvar",
    "device_plugin.pass_device_specs": "true",
    "runtime.manage": "false",
    "kubernetes.enabled": "false",
}


@pytest.mark.slow
async def test_an_agent_gives_out_gpus_of_a_vendor_that_it_does_not_know(short_dir: Path) -> None:
    """Nothing of NVML's can be imported, and no name that a container is given is NVIDIA's."""
    sets = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    sets += ["--set", f"kubelet.pod_resources_socket={short_dir / 'kubelet/pod-resources/kubelet.sock'}"]
    with running_agent(short_dir, *sets, module="tests.component.made_up_vendor.program") as agent:
        async with running_stand_in(short_dir / "kubelet") as stand_in:
            given = await get_gpu(stand_in.kubelet)
        ask_agent(agent)
    assert agent.process.returncode == 0
    uuids = {str(gpu.uuid): VENDOR.find_node(gpu.index) for gpu in GPUS}
    uuid = given.envs[VENDOR.visible_devices]
    assert [device.name for device in given.cdi_devices] == [f"{VENDOR.cdi_domain}/gpu={uuid}"]
    assert uuids[uuid] in [device.host_path for device in given.devices]
    specification = json.loads((short_dir / "cdi" / f"{VENDOR.cdi_domain}-gpu.json").read_text())
    (described,) = [device for device in specification["devices"] if device["name"] == uuid]
    assert [node["path"] for node in described["containerEdits"]["deviceNodes"]] == [uuids[uuid]]
    assert "nvidia" not in json.dumps(specification).lower() + str(given).lower()


async def get_gpu(kubelet: StandInKubelet) -> ContainerAllocateResponse:
    """What a container with one GPU is told, by the kubelet's own record."""
    with anyio.fail_after(PATIENCE_SECONDS):
        await kubelet.wait_until(lambda: RESOURCE in kubelet.offers() and kubelet.offers()[RESOURCE] == (2, 2))
    await kubelet.add_pod(NAMESPACE, "training", {RESOURCE: 1})
    (entry,) = json.loads(kubelet.checkpoint_file.read_text())["Data"]["PodDeviceEntries"]
    return ContainerAllocateResponse.FromString(base64.b64decode(entry["AllocResp"]))


def ask_agent(agent: AgentProcess) -> None:
    """A reading and a verdict of each GPU."""
    for gpu in GPUS:
        reading = f'DCGM_FI_DEV_GPU_TEMP{{gpu="{gpu.index}",UUID="{gpu.uuid}"'
        line = next(each for each in agent.wait_for("/metrics", reading).splitlines() if each.startswith(reading))
        assert line.endswith(f" {CELSIUS}")
    gpus = agent.get_json("/api/v1/gpus")["gpus"]
    verdicts = {one["gpu"]["uuid"]: [each["verdict"] for each in one["health"]] for one in gpus}
    assert verdicts == {str(gpu.uuid): ["healthy"] for gpu in GPUS}
