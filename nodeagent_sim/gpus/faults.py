"""Faults on demand: the list of faults, and the effects of each fault on the world.

Owns the words that people type and the sentence in reply. A fault changes the hardware; the events that the driver
reports about the fault are returned as values, for `source` to deliver.
Refuses waiting: a hung call is a fact about the world here, and `source` waits.
"""

import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from nodeagent.model.errors import FaultUnknown
from nodeagent.model.events import GpuEventReported, XidReported
from nodeagent.model.mig import WriteKind
from nodeagent.model.ports import GpuEvent
from nodeagent.model.repairs import ToolAnswer
from nodeagent_sim.gpus.gpu_state import GpuFaults, GpuState
from nodeagent_sim.gpus.sample import knows_recovery_action
from nodeagent_sim.gpus.world import World
from nodeagent_sim.gpus.xid_effects import RECOVERY_NONE, XID_EFFECTS, XidEffect

CALLS = ("evidence", "inventory", "sample", "partition", "reset")
"""Calls that can hang; `all` means every call."""
FOR_EVER = math.inf
FILLER = frozenset({"on", "gpu", "for", "to"})
"""Words for reading only, without meaning: `xid 79 on gpu 3`."""
XID_RECOVERY_ACTION_CHANGED = 154
XID_MAX = 10_000
SMI_LOST, SMI_ELSE = 15, 255
"""Exit codes of nvidia-smi: the GPU is lost, and all else."""
SECONDS_MAX = 1e6
COUNT_MAX = 10**9
PERCENT_OVER, PERCENT_MAX = 150, 1000
"""Percent of a fraction's memory."""


class Outcome(Struct, frozen=True):
    """The effect in a sentence, and the events that the driver reports."""

    sentence: str
    events: tuple[GpuEvent, ...] = ()


Handler = Callable[[World, list[str]], Outcome]


class Fault(Struct, frozen=True):
    """One kind of misbehaviour."""

    usage: str
    fewest: int
    most: int
    apply: Handler


def list_faults() -> tuple[str, ...]:
    """Each fault with its arguments."""
    return tuple(fault.usage for fault in FAULTS.values())


def apply_fault(world: World, name: str, arguments: Sequence[str]) -> Outcome:
    """Apply a fault to the world.

    Raises:
        FaultUnknown: No such fault.
        GpuUnknown: No such GPU.
        ValueError: An argument makes no sense; the world is unchanged.
    """
    fault = FAULTS.get(name)
    if fault is None:
        raise FaultUnknown(name, tuple(FAULTS))
    words = [word for word in arguments if word.lower() not in FILLER]
    if not fault.fewest <= len(words) <= fault.most:
        raise ValueError(f"{name} was given {len(words)} arguments, its form is: {fault.usage}")
    return fault.apply(world, words)


def _xid(world: World, words: list[str]) -> Outcome:
    number = _parse_count(words[0], "XID", most=XID_MAX)
    gpu = _find_plugged(world, words[1])
    instances = [_parse_count(word, "MIG instance id", most=255, fewest=0) for word in words[2:]]
    gpu_instance, compute_instance = (*instances, None, None)[:2]
    if gpu_instance is not None and all(
        tenant.instance is None or tenant.instance.gpu_instance_id != gpu_instance for tenant in gpu.tenants
    ):
        raise ValueError(f"GPU {gpu.seat.index} has no MIG GPU instance {gpu_instance}")
    reported = XidReported(gpu=gpu.uuid, xid=number, gpu_instance_id=gpu_instance, compute_instance_id=compute_instance)
    follow_ups = _apply_effect(world, gpu, XID_EFFECTS.get(number, XidEffect()), gpu_instance)
    where = "" if gpu_instance is None else f", GPU instance {gpu_instance}"
    return Outcome(f"reported XID {number} on GPU {gpu.seat.index}{where}", (reported, *follow_ups))


def _apply_effect(world: World, gpu: GpuState, effect: XidEffect, gpu_instance: int | None) -> tuple[GpuEvent, ...]:
    faults = gpu.faults
    gpu.record_errors(corrected=effect.corrected, uncorrected=effect.uncorrected)
    gpu.ecc.remapped_uncorrectable += effect.remap_pending
    faults.remap_pending = faults.remap_pending or effect.remap_pending
    faults.remap_failed = faults.remap_failed or effect.remap_failed
    faults.lost = faults.lost or effect.lost
    if effect.link_down and gpu.seat.model.nvlink is not None:
        gpu.nvlink_errors += 1
        faults.links_down.add(min(set(range(gpu.seat.model.nvlink.links)) - faults.links_down, default=0))
    for tenant in gpu.workers:
        if effect.ends_jobs and (
            gpu_instance is None or (tenant.instance and tenant.instance.gpu_instance_id == gpu_instance)
        ):
            tenant.end_job()
    events = _change_recovery(world, gpu, max(effect.recovery_action, faults.recovery_action))
    return (*events, GpuEventReported(gpu=gpu.uuid, kind="gpu_lost")) if effect.lost else events


def _change_recovery(world: World, gpu: GpuState, action: int) -> tuple[GpuEvent, ...]:
    """The driver reports new advice twice: as an XID of its own, and as an event with the new value."""
    if gpu.faults.recovery_action == action:
        return ()
    gpu.faults.recovery_action = action
    if not knows_recovery_action(world):
        return ()
    return (
        XidReported(gpu=gpu.uuid, xid=XID_RECOVERY_ACTION_CHANGED),
        GpuEventReported(gpu=gpu.uuid, kind="recovery_action", data=action),
    )


def _lost(world: World, words: list[str]) -> Outcome:
    gpu = _find_plugged(world, words[0])
    gpu.faults.lost = "does not answer on the bus"
    return Outcome(f"GPU {gpu.seat.index} no longer answers", (GpuEventReported(gpu=gpu.uuid, kind="gpu_lost"),))


def _back(world: World, words: list[str]) -> Outcome:
    gpu = _find_plugged(world, words[0])
    if not gpu.faults.lost:
        raise ValueError(f"GPU {gpu.seat.index} is not lost")
    return Outcome(f"GPU {gpu.seat.index} was power-cycled and answers again", _power_cycle(world, gpu))


def _power_cycle(world: World, gpu: GpuState) -> tuple[GpuEvent, ...]:
    events = _change_recovery(world, gpu, RECOVERY_NONE)
    gpu.reset()
    return (*events, GpuEventReported(gpu=gpu.uuid, kind="gpu_back"))


def _reset(world: World, words: list[str]) -> Outcome:
    gpu = _find_plugged(world, words[0])
    if gpu.faults.lost:
        raise ValueError(f"GPU {gpu.seat.index} is lost, a reset cannot reach it: use back {gpu.seat.index}")
    events = _change_recovery(world, gpu, RECOVERY_NONE)
    gpu.reset()
    return Outcome(f"reset GPU {gpu.seat.index}: its jobs ended, volatile counters are at 0", events)


def reset_gpus(world: World, gpus: Sequence[GpuState]) -> tuple[ToolAnswer, tuple[GpuEvent, ...]]:
    """Reset GPUs together, and answer as nvidia-smi does: a lost or a used GPU keeps all from a reset."""
    if any(gpu.faults.lost or gpu.faults.unplugged for gpu in gpus):
        return ToolAnswer(code=SMI_LOST, said="Unable to determine the device handle for GPU: GPU is lost."), ()
    if any(worker.pid for gpu in gpus for worker in gpu.workers):
        return ToolAnswer(code=SMI_ELSE, said="In use by another client"), ()
    events = tuple(event for gpu in gpus for event in _change_recovery(world, gpu, RECOVERY_NONE))
    for gpu in gpus:
        gpu.reset()
    return ToolAnswer(code=0, said="All done."), events


def _ecc(world: World, words: list[str]) -> Outcome:
    gpu = _find_plugged(world, words[0])
    kind = _parse_choice(words[1], "kind of error", ("corrected", "uncorrected"))
    count = _parse_count(words[2], "count", most=COUNT_MAX) if len(words) > 2 else 1
    gpu.record_errors(**{kind: count})
    return Outcome(f"counted {_say_many(count, f'{kind} memory error')} on GPU {gpu.seat.index}")


def _thermal(world: World, words: list[str]) -> Outcome:
    gpu = _find_plugged(world, words[0])
    state = _parse_choice(words[1], "thermal state", ("on", "off")) if len(words) > 1 else "on"
    if state == "on":
        gpu.overheat()
        return Outcome(f"GPU {gpu.seat.index} is at {int(gpu.temperature_celsius)} C and slows down")
    gpu.faults.thermal = False
    return Outcome(f"GPU {gpu.seat.index} cools down")


def _pcie(world: World, words: list[str]) -> Outcome:
    gpu = _find_plugged(world, words[0])
    count = _parse_count(words[1], "count", most=COUNT_MAX)
    gpu.pcie_replays += count
    return Outcome(f"counted {_say_many(count, 'PCIe replay')} on GPU {gpu.seat.index}")


def _hang(world: World, words: list[str]) -> Outcome:
    call = _parse_choice(words[0], "call", (*CALLS, "all"))
    seconds = FOR_EVER if len(words) < 2 or words[1] in {"ever", "forever"} else _parse_seconds(words[1])
    world.driver.hung_until[call] = world.now_seconds + seconds
    what = "every call" if call == "all" else f"the call {call}"
    length = "until cleared" if seconds == FOR_EVER else f"for {seconds:g} s"
    return Outcome(f"{what} into the driver hangs {length}")


def _slow(world: World, words: list[str]) -> Outcome:
    world.driver.slow_seconds = _parse_seconds(words[0])
    return Outcome(f"every call into the driver takes {world.driver.slow_seconds:g} s longer")


def _driver(world: World, words: list[str]) -> Outcome:
    what = _parse_choice(words[0], "driver", ("gone", "back", "mismatch"))
    if what == "gone":
        world.unload_driver()
        return Outcome("unloaded the driver")
    version = _parse_version(words[1]) if len(words) > 1 else ""
    if what == "back":
        world.load_driver(version or world.profile.driver.version)
        return Outcome(f"loaded driver {world.driver.module_version}")
    world.driver.library_version = version or _raise_version(world.driver.module_version)
    return Outcome(
        f"replaced the library by {world.driver.library_version}, the module is still {world.driver.module_version}"
    )


def _fabric(world: World, words: list[str]) -> Outcome:
    if world.profile.fabric is None:
        raise ValueError(f"profile {world.profile.name} has no NVLink fabric")
    state = _parse_choice(words[0], "fabric", ("pending", "ready"))
    world.driver.fabric_pending = state == "pending"
    return Outcome(f"the registration with the fabric is {state}")


def _mig(world: World, words: list[str]) -> Outcome:
    gpu = _find_plugged(world, words[0])
    layout = None if words[1:] == ["off"] else tuple(word for word in words[1:] if word != "empty")
    if layout is not None or gpu.mig_layout is not None:
        world.change_layout(gpu, layout)
    what = (
        "is whole" if layout is None else f"has the MIG devices {', '.join(layout)}" if layout else "has MIG on, empty"
    )
    return Outcome(f"GPU {gpu.seat.index} {what}", (GpuEventReported(gpu=gpu.uuid, kind="mig_layout"),))


def _mig_refuse(world: World, words: list[str]) -> Outcome:
    if words == ["none"]:
        world.driver.refused_writes.clear()
        return Outcome("the driver refuses no call that cuts a GPU")
    kind = _parse_choice(words[0], "call", tuple(WriteKind))
    times = _parse_count(words[1], "count", most=COUNT_MAX) if words[1:] else 1
    world.driver.refused_writes[kind] = times
    return Outcome(f"the driver refuses {kind} {_say_many(times, 'time')}")


def _foreign(world: World, words: list[str]) -> Outcome:
    gpu = _find_plugged(world, words[0])
    memory = gpu.seat.model.memory
    most = memory.total_mib - memory.reserved_mib
    gone = words[1:] == ["gone"]
    gpu.faults.foreign_mib = 0 if gone else _parse_count(words[1], "MiB", most=most) if words[1:] else most
    what = "has gone" if gone else f"uses {gpu.faults.foreign_mib} MiB"
    return Outcome(f"on GPU {gpu.seat.index} a program that was given nothing {what}")


def _over_limit(world: World, words: list[str]) -> Outcome:
    pod = world.crowd.find_pod(words[0])
    percent = _parse_count(words[1], "percentage", most=PERCENT_MAX) if words[1:] else PERCENT_OVER
    world.crowd.over_percent[pod] = percent
    return Outcome(f"{pod} uses {percent} % of its part of the memory")


def _no_library(world: World, words: list[str]) -> Outcome:
    pod = world.crowd.find_pod(words[0])
    world.crowd.without_library.add(pod)
    return Outcome(f"{pod} runs without the library that is to hold it")


def _unplug(world: World, words: list[str]) -> Outcome:
    gpu = _find_plugged(world, words[0])
    gpu.faults = GpuFaults(unplugged=True)
    gpu.end_jobs()
    return Outcome(f"took GPU {gpu.seat.index} out", (GpuEventReported(gpu=gpu.uuid, kind="unbind"),))


def _plug(world: World, words: list[str]) -> Outcome:
    gpu = world.find_gpu(words[0])
    if not gpu.faults.unplugged:
        raise ValueError(f"GPU {gpu.seat.index} is in its slot")
    gpu.faults.unplugged = False
    return Outcome(f"put GPU {gpu.seat.index} back", (GpuEventReported(gpu=gpu.uuid, kind="bind"),))


def _nvlink(world: World, words: list[str]) -> Outcome:
    gpu = _find_plugged(world, words[0])
    ports = gpu.seat.model.nvlink.links if gpu.seat.model.nvlink else 0
    if ports == 0:
        raise ValueError(f"GPU {gpu.seat.index} ({gpu.seat.model.name}) has no NVLink")
    state = _parse_choice(words[1], "state", ("down", "up", "errors"))
    if state == "errors":
        count = _parse_count(words[2], "count", most=COUNT_MAX) if len(words) > 2 else 1
        gpu.nvlink_errors += count
        return Outcome(f"counted {_say_many(count, 'NVLink error')} on GPU {gpu.seat.index}")
    links = {_parse_count(words[2], "link", most=ports - 1, fewest=0)} if len(words) > 2 else set(range(ports))
    down = gpu.faults.links_down
    gpu.faults.links_down = down | links if state == "down" else down - links
    which = f"link {words[2]}" if len(words) > 2 else f"all {ports} links"
    return Outcome(f"{which} of GPU {gpu.seat.index} went {state}")


def _row_remap(world: World, words: list[str]) -> Outcome:
    gpu = _find_plugged(world, words[0])
    state = _parse_choice(words[1], "state", ("pending", "failed"))
    gpu.faults.remap_pending = gpu.faults.remap_pending or state == "pending"
    gpu.faults.remap_failed = gpu.faults.remap_failed or state == "failed"
    gpu.ecc.remapped_uncorrectable += 1
    return Outcome(f"a row remap on GPU {gpu.seat.index} is {state}")


def _clear(world: World, _words: list[str]) -> Outcome:
    events: list[GpuEvent] = []
    for gpu in world.gpus:
        events.extend(_change_recovery(world, gpu, RECOVERY_NONE))
        if gpu.faults.lost:
            events.append(GpuEventReported(gpu=gpu.uuid, kind="gpu_back"))
        if gpu.faults.unplugged:
            events.append(GpuEventReported(gpu=gpu.uuid, kind="bind"))
        if gpu.mig_layout != world.profile.mig.get(gpu.seat.index):
            events.append(GpuEventReported(gpu=gpu.uuid, kind="mig_layout"))
    world.restore()
    return Outcome("took every fault back", tuple(events))


def _find_plugged(world: World, name: str) -> GpuState:
    gpu = world.find_gpu(name)
    if gpu.faults.unplugged:
        raise ValueError(f"GPU {gpu.seat.index} is out of its slot: use plug {gpu.seat.index}")
    return gpu


def _parse_count(text: str, what: str, *, most: int, fewest: int = 1) -> int:
    if not (text.isascii() and text.isdigit() and fewest <= int(text) <= most):
        raise ValueError(f"{text!r} is no {what}: expected a whole number from {fewest} to {most}")
    return int(text)


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= SECONDS_MAX:
        raise ValueError(f"{text!r} is no time: expected seconds from 0 to {SECONDS_MAX:g}")
    return seconds


def _parse_choice(text: str, what: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise ValueError(f"{text!r} is no {what}: expected {', '.join(choices)}")
    return text


def _parse_version(text: str) -> str:
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"{text!r} is no driver version: expected one such as 580.105.08")
    return text


def _say_many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _raise_version(version: str) -> str:
    """The next version of the same branch."""
    head, _, last = version.rpartition(".")
    return f"{head}.{int(last) + 1:02d}"


FAULTS: dict[str, Fault] = {
    "xid": Fault("xid NUMBER GPU [GPU-INSTANCE [COMPUTE-INSTANCE]]", 2, 4, _xid),
    "lost": Fault("lost GPU", 1, 1, _lost),
    "back": Fault("back GPU", 1, 1, _back),
    "reset": Fault("reset GPU", 1, 1, _reset),
    "ecc": Fault("ecc GPU corrected|uncorrected [COUNT]", 2, 3, _ecc),
    "row-remap": Fault("row-remap GPU pending|failed", 2, 2, _row_remap),
    "thermal": Fault("thermal GPU [on|off]", 1, 2, _thermal),
    "nvlink": Fault("nvlink GPU down|up [LINK], nvlink GPU errors [COUNT]", 2, 3, _nvlink),
    "pcie-replay": Fault("pcie-replay GPU COUNT", 2, 2, _pcie),
    "mig": Fault("mig GPU off|empty|PROFILE...", 2, 16, _mig),
    "mig-refuse": Fault(f"mig-refuse {'|'.join(WriteKind)}|none [COUNT]", 1, 2, _mig_refuse),
    "foreign": Fault("foreign GPU [MIB|gone]", 1, 2, _foreign),
    "over-limit": Fault("over-limit POD [PERCENT]", 1, 2, _over_limit),
    "no-library": Fault("no-library POD", 1, 1, _no_library),
    "unplug": Fault("unplug GPU", 1, 1, _unplug),
    "plug": Fault("plug GPU", 1, 1, _plug),
    "hang": Fault("hang evidence|inventory|sample|partition|reset|all [SECONDS|forever]", 1, 2, _hang),
    "slow": Fault("slow SECONDS", 1, 1, _slow),
    "driver": Fault("driver gone|back|mismatch [VERSION]", 1, 2, _driver),
    "fabric": Fault("fabric pending|ready", 1, 1, _fabric),
    "clear": Fault("clear", 0, 0, _clear),
}
"""Every fault, in the order of the help text."""
