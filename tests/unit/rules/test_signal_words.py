"""The words of events on pods: other programs parse the words, so each change of a word is a change for clusters."""

from typing import Any

import pytest

from nodeagent.model.allocation import PodIdentity
from nodeagent.model.events import GpuFaultReported
from nodeagent.model.ids import PciAddress
from nodeagent.rules.signals import Severity, render_fault
from tests.support.gpus import gpu_uuid

POD = PodIdentity(namespace="ml", name="train-0", uid="uid-1")
GPU = gpu_uuid(3)
ADDRESS = PciAddress("0000:13:00.0")
ON_GPU: dict[str, Any] = {"gpu": GPU, "index": 3}


@pytest.mark.parametrize(
    ("number", "name", "severity", "place", "reason", "note"),
    [
        (
            79,
            "the GPU fell off the bus",
            Severity.CRITICAL,
            ON_GPU,
            "GPUXidError",
            (
                f"[gpu-health] [CRITICAL] Xid 79 (the GPU fell off the bus) on GPU 3 {GPU}."
                f" xid=79 severity=critical gpu_uuid={GPU} gpu_index=3 pci=0000:13:00.0 node=node-1"
            ),
        ),
        (
            31,
            "MMU page fault",
            Severity.USER,
            ON_GPU,
            "GPUXidError",
            (
                f"[gpu-health] [USER] Xid 31 (MMU page fault) on GPU 3 {GPU}."
                f" xid=31 severity=user gpu_uuid={GPU} gpu_index=3 pci=0000:13:00.0 node=node-1"
            ),
        ),
        (
            69,
            "graphics or compute class error",
            Severity.WARN,
            ON_GPU,
            "GPUXidError",
            (
                f"[gpu-health] [WARN] Xid 69 (graphics or compute class error) on GPU 3 {GPU}."
                f" xid=69 severity=warn gpu_uuid={GPU} gpu_index=3 pci=0000:13:00.0 node=node-1"
            ),
        ),
        (
            22003,
            "the whole switch failed",
            Severity.CRITICAL,
            {},
            "GPUSXidError",
            (
                "[gpu-health] [CRITICAL] SXid 22003 on NVSwitch 0000:13:00.0."
                " sxid=22003 severity=critical pci=0000:13:00.0 node=node-1"
            ),
        ),
    ],
)
def test_the_words_are_golden(
    number: int, name: str, severity: Severity, place: dict[str, Any], reason: str, note: str
) -> None:
    """A sentence for people, and the same in keys for programs."""
    fault = GpuFaultReported(number=number, name=name, address=ADDRESS, devices=(GPU,), **place)
    event = render_fault(fault, severity, POD, "node-1")
    assert (event.reason, event.note, event.pod, event.warning) == (reason, note, POD, True)


def test_a_value_separates_nothing() -> None:
    """A blank or an equals sign would be taken for the end of a value."""
    fault = GpuFaultReported(number=13, name="n", address=ADDRESS, devices=(), **ON_GPU)
    assert render_fault(fault, Severity.USER, POD, "a b=c\td").note.endswith(" node=a_b_c_d")


def test_series_of_different_numbers_and_gpus_are_apart() -> None:
    """One event for each pod, GPU and XID."""
    faults = [
        GpuFaultReported(number=number, name="n", address=ADDRESS, devices=(), gpu=gpu, index=0)
        for number in (13, 31)
        for gpu in (GPU, gpu_uuid(4))
    ]
    assert len({render_fault(fault, Severity.USER, POD, "n").about for fault in faults}) == 4
