"""Last known values in place of values that could not be read: unreadable is not gone. Pure.

A GPU with an unreadable MIG mode is not whole for that reason, and a silent MIG device is not gone: otherwise the whole
GPU would be handed out, and the device's faults forgotten.
"""

from msgspec.structs import replace

from nodeagent.model.gpu import Gpu, Mig, MigDevice

_MODE, _COUNT = "mig mode", "mig device count"


def keep_unread(before: Gpu | None, now: Gpu) -> Gpu:
    """The present reading of the GPU, with the previous MIG state where MIG could not be read."""
    if before is None or before.uuid != now.uuid:
        return now
    if now.lost:
        # It went while it was read: the rest of it is not absent, it was not reached.
        return replace(before, index=now.index, lost=now.lost, unreadable=now.unreadable)
    if before.mig is None or not now.unreadable:
        return now
    unread = {one.what for one in now.unreadable}
    if now.mig is None:
        return replace(now, mig=before.mig) if _MODE in unread else now
    kept = tuple(one for one in before.mig_devices if _is_unread(one, unread) and not _is_replaced(one, now.mig))
    if not now.mig.enabled or not kept:
        return now
    devices = sorted((*now.mig.devices, *kept), key=lambda one: one.index)
    devices_max = before.mig.devices_max if _COUNT in unread else now.mig.devices_max
    return replace(now, mig=replace(now.mig, devices=tuple(devices), devices_max=devices_max))


def _is_unread(device: MigDevice, unread: set[str]) -> bool:
    what = f"mig device {device.index}"
    return not unread.isdisjoint({_COUNT, what, f"profile of {what}"})


def _is_replaced(device: MigDevice, mig: Mig) -> bool:
    """Whether the MIG device was read after all, or another device is in the same place."""
    return any(one.uuid == device.uuid or _find_place(one) == _find_place(device) for one in mig.devices)


def _find_place(device: MigDevice) -> tuple[int, int]:
    return device.gpu_instance_id, device.compute_instance_id
