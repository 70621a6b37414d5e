"""Layouts and changes as metrics."""

from nodeagent.components.exporter.families.gpus import build_mig_families
from nodeagent.model.gpu import Inventory
from nodeagent.model.mig import GpuChange, MigState
from tests.support.gpus import gpu_uuid, make_gpu


def test_a_layout_and_its_change_are_shown() -> None:
    """With what each GPU is cut into; a whole GPU has no series of devices."""
    change = GpuChange(gpu=gpu_uuid(1), index=1, wanted="MIG off", doing="waits", done=3)
    state = MigState(layout="lab", origin="me", standing="pending", changes=(change,))
    inventory = Inventory(generation=1, gpus=(make_gpu(0, mig=["1g.10gb", "1g.10gb", "3g.40gb"]), make_gpu(1)))
    asked, changing, devices = build_mig_families(state, inventory)
    assert [(dict(labels), value) for labels, value in asked.samples] == [({"layout": "lab", "standing": "pending"}, 1)]
    assert [(dict(labels)["wanted"], value) for labels, value in changing.samples] == [("MIG off", 3)]
    assert [(dict(labels)["profile"], value) for labels, value in devices.samples] == [("1g.10gb", 2), ("3g.40gb", 1)]


def test_nothing_asked_for_is_nothing_shown() -> None:
    assert all(not family.samples for family in build_mig_families(MigState(), None))
