"""What is held to be true of a GPU where it could not be read just now: unreadable is not gone. Pure.

A GPU whose MIG mode cannot be read is not whole for that reason, and a MIG device that does not answer is not gone:
whoever took either for true would hand out the whole GPU, and forget what is held against the device.
"""

from msgspec.structs import replace

from nodeagent.model.gpu import Gpu, Mig, MigDevice

_MODE, _COUNT = "mig mode", "mig device count"


def keep_unread(before: Gpu | None, now: Gpu) -> Gpu:
    """The GPU as it was read now; what of its MIG state could not be is as it was at the reading before."""
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
    """Whether it was read after all, or another one is in its place."""
    return any(one.uuid == device.uuid or _find_place(one) == _find_place(device) for one in mig.devices)


def _find_place(device: MigDevice) -> tuple[int, int]:
    return device.gpu_instance_id, device.compute_instance_id
