"""The faults in what the driver reports: which devices, and what is no fault."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.health.judge import Judge
from nodeagent.components.health.records import StoredVerdicts
from nodeagent.model.events import GpuFaultReported, XidReported
from nodeagent.model.gpu import Inventory, NvLink
from nodeagent.model.ids import PciAddress
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory, make_node, mig_uuid

SWITCH = PciAddress("0000:c1:00.0")


def make_judge(inventory: Inventory) -> Judge:
    judge = Judge(StoredVerdicts(boot_id="boot"))
    judge.note_inventory(inventory)
    return judge


def describe(inventory: Inventory, number: int, gpu: int = 0, **instance: Any) -> GpuFaultReported | None:
    return make_judge(inventory).describe_fault(XidReported(gpu=gpu_uuid(gpu), xid=number, **instance))


def test_a_fault_names_its_gpu() -> None:
    """As people and programs know the GPU."""
    assert describe(make_node(2), 79, gpu=1) == GpuFaultReported(
        number=79,
        name="the GPU fell off the bus",
        address=PciAddress("0000:11:00.0"),
        devices=(gpu_uuid(1),),
        gpu=gpu_uuid(1),
        index=1,
    )


@pytest.mark.parametrize(
    ("number", "instance", "devices"),
    [
        (31, {"gpu_instance_id": 8, "compute_instance_id": 0}, (mig_uuid(0, 1),)),
        (31, {}, (gpu_uuid(0), mig_uuid(0, 0), mig_uuid(0, 1))),
        (79, {"gpu_instance_id": 8, "compute_instance_id": 0}, (gpu_uuid(0), mig_uuid(0, 0), mig_uuid(0, 1))),
    ],
)
def test_a_fault_of_a_cut_gpu_hits_an_instance_or_all(
    number: int, instance: dict[str, int], devices: tuple[str, ...]
) -> None:
    """The instance that the driver names, where the number is of one instance at all."""
    fault = describe(make_inventory([make_gpu(0, mig=["1g.10gb", "1g.10gb"])]), number, **instance)
    assert fault is not None
    assert fault.devices == devices


@pytest.mark.parametrize(("number", "gpu"), [(14, 0), (154, 0), (121, 0), (79, 9)])
def test_a_notice_is_no_fault(number: int, gpu: int) -> None:
    """Nor is the XID of a GPU that the node does not have."""
    assert describe(make_node(2), number, gpu=gpu) is None


def test_a_switch_s_fault_hits_each_gpu_with_nvlink() -> None:
    """A GPU without NVLink has nothing to do with the switch."""
    linked, alone = replace(make_gpu(0), nvlinks=(NvLink(link=0, active=True),)), make_gpu(5)
    fault = make_judge(make_inventory([linked, alone])).describe_switch_fault(22003, SWITCH, is_fatal=True)
    assert fault == GpuFaultReported(
        number=22003, name="the whole switch failed", address=SWITCH, devices=(linked.uuid,), is_fatal=True
    )
