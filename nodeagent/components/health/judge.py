"""The judge: the records of all GPUs, changed by evidence and asked for the report. Knows no bus and no clock.

Owns which record an event or a poll changes, and which policy is in force.
Refuses waiting and writing: `component.py` brings evidence and publishes verdicts.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from nodeagent.components.health.decide import (
    Moment,
    XidSeen,
    clear_record,
    forget_devices,
    note_driver_down,
    note_finding,
    note_own_reset,
    note_poll,
    note_power_cycle,
    note_reset,
    note_xid,
)
from nodeagent.components.health.evidence.findings import Finding, PollResult, find_hit
from nodeagent.components.health.evidence.levels import judge_levels, judge_recovery_action
from nodeagent.components.health.evidence.sxids import PASSING, PASSING_KEPT, judge_passing, read_sxid
from nodeagent.components.health.evidence.xid_text import parse_recovery_action, read_text
from nodeagent.components.health.evidence.xids import XidClass, find_xid
from nodeagent.components.health.policy import apply_policy
from nodeagent.components.health.records import GpuRecord, ReportedVerdict, StoredVerdicts
from nodeagent.components.health.render import VerdictInputs, list_reported, render_report, takes_devices
from nodeagent.config.sections.hardware import HealthSettings
from nodeagent.config.sections.health_limits import HealthLimits
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import ControlRefused
from nodeagent.model.events import GpuFaultReported, XidReported
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.health import HealthReport, ReturnRule, Verdict
from nodeagent.model.ids import DeviceUuid, GpuUuid, PciAddress
from nodeagent.model.telemetry import GpuSample, NodeSample
from nodeagent.rules.ids import find_uuid
from nodeagent.rules.selectors import find_named

RECORDS_KEPT: Final = 64
"""GPUs that are gone are remembered, up to so many: they may come back as they went."""
RECOVERY_CHANGED: Final = 154


class Judge:
    """All verdicts of the node."""

    def __init__(self, stored: StoredVerdicts) -> None:
        self.boot_id = stored.boot_id
        self.kernel_log_sequence = stored.kernel_log_sequence
        """The newest record that was looked at."""
        self.driver_line_sequence = stored.kernel_log_sequence
        """The newest that said something: its position must not be forgotten, or it would be told again."""
        self._held_lines: dict[object, int] = {}
        self._records: dict[str, GpuRecord] = {record.gpu: record for record in stored.records}
        self._standings: dict[str, ReportedVerdict] = {standing.device: standing for standing in stored.standings}
        self._inventory = Inventory(generation=0)
        self._driver: DriverState | None = None
        self._pids: dict[str, tuple[int, ...]] = {}
        self._passing_switch_errors: deque[float] = deque(maxlen=PASSING_KEPT)

    @property
    def inventory(self) -> Inventory:
        """The GPUs that are judged."""
        return self._inventory

    @property
    def is_driver_released(self) -> bool:
        """Whether the driver is released on purpose, so that verdicts stay unchanged."""
        return self._driver is not None and self._driver.phase is DriverPhase.RELEASED

    @property
    def is_driver_away(self) -> bool:
        """Whether the driver's own condition explains unknown GPUs."""
        # The driver's library works without the nodes that only containers need.
        return self._driver is not None and self._driver.phase not in {DriverPhase.READY, DriverPhase.NODES_MISSING}

    @property
    def covered(self) -> frozenset[str]:
        """GPUs that are unfit because of the driver, now or until a moment ago."""
        is_down = self._driver is not None and takes_devices(self._driver.phase)
        return frozenset(
            gpu.uuid for gpu in self._inventory.gpus if is_down or self.find_record(gpu.uuid).driver_was_down
        )

    @property
    def driver_branch(self) -> int | None:
        """The driver's major version; `None` where unknown."""
        major = self._driver.driver_version.partition(".")[0] if self._driver is not None else ""
        return int(major) if major.isdecimal() else None

    def find_record(self, uuid: str) -> GpuRecord:
        """The record of a GPU; an empty record for a new GPU."""
        return self._records.get(uuid) or GpuRecord(gpu=GpuUuid(uuid))

    def hold_line(self, key: object) -> None:
        """The newest line of the kernel log is yet to be judged."""
        if self.kernel_log_sequence is not None:
            self._held_lines.setdefault(key, self.kernel_log_sequence)

    def release_line(self, key: object) -> None:
        """The line is judged, with all lines of the same key."""
        self._held_lines.pop(key, None)

    def _before_held(self, sequence: int | None) -> int | None:
        """The log position for the store: an agent that ends now has not reported the lines that are held."""
        return None if sequence is None else min((sequence, *(held - 1 for held in self._held_lines.values())))

    def note_inventory(self, inventory: Inventory) -> None:
        """Take the inventory; a GPU that was gone from the bus and comes back was power-cycled."""
        self._inventory = inventory
        present = {gpu.uuid: gpu for gpu in inventory.gpus}
        for uuid, record in self._records.items():
            gpu = present.get(GpuUuid(uuid))
            if gpu is None:
                self._records[uuid] = note_power_cycle(record)
            elif not gpu.lost:
                self._records[uuid] = forget_devices(record, frozenset(device.uuid for device in gpu.mig_devices))
        gone = [uuid for uuid in self._records if uuid not in present]
        for uuid in gone[: max(0, len(gone) - RECORDS_KEPT)]:
            del self._records[uuid]

    def note_driver(self, state: DriverState) -> None:
        """Take the driver's state; a driver that was unloaded counts as a reset."""
        before, self._driver = self._driver, state
        if takes_devices(state.phase):
            self._change_all(note_driver_down)
        was_unloaded = state.phase is DriverPhase.NOT_LOADED
        if was_unloaded or (before is not None and state.ready and _has_other_version(before, state)):
            self._change_all(note_reset)

    def note_xid(
        self,
        reported: XidReported,
        now: Moment,
        settings: HealthSettings,
        *,
        holders: AllocationTable | None = None,
        is_counted: bool = True,
        is_old: bool = False,
    ) -> bool:
        """Take an XID; whether the GPU is known."""
        gpu = self._inventory.find_gpu(reported.gpu)
        if gpu is None:
            return False
        entry = find_xid(reported.xid)
        ours = apply_policy(entry, settings)
        reading = read_text(reported.xid, reported.message, driver_branch=self.driver_branch) if ours is entry else None
        record = self.find_record(gpu.uuid)
        for device in find_hit(gpu, ours.scope, reported.gpu_instance_id, reported.compute_instance_id):
            seen = XidSeen(
                entry=ours,
                device=device,
                reading=reading,
                holder=find_holder(holders, device),
                pids=self._pids.get(gpu.uuid, ()),
                is_counted=is_counted,
                is_old=is_old,
            )
            record = note_xid(record, seen, now)
        self._records[gpu.uuid] = record
        action = parse_recovery_action(reported.message) if reported.xid == RECOVERY_CHANGED else None
        finding = judge_recovery_action(action) if action is not None and not is_old else None
        if finding is not None:
            self.note_finding(gpu.uuid, finding, now)
        return True

    def note_finding(self, uuid: str, finding: Finding, now: Moment, *, is_correctable: bool = True) -> None:
        """Take the level of an event; unknown GPUs have no levels."""
        gpu = self._inventory.find_gpu(uuid)
        if gpu is not None:
            record = self.find_record(gpu.uuid)
            self._records[gpu.uuid] = note_finding(record, finding, now, is_correctable=is_correctable)

    def note_back(self, uuid: str) -> None:
        """Take the report that a GPU was power-cycled."""
        gpu = self._inventory.find_gpu(uuid)
        if gpu is not None:
            self._records[gpu.uuid] = note_power_cycle(self.find_record(gpu.uuid))

    def note_own_reset(self, uuid: str) -> None:
        """Take the report that the agent has reset a GPU."""
        gpu = self._inventory.find_gpu(uuid)
        if gpu is not None:
            self._records[gpu.uuid] = note_own_reset(self.find_record(gpu.uuid))

    def note_switch_error(
        self, number: int, now: Moment, limits: HealthLimits, *, is_fatal: bool, is_old: bool
    ) -> Verdict:
        """Take an NVSwitch error, which hits every GPU with NVLink; the resulting verdict."""
        reading = read_sxid(number, is_fatal=is_fatal)
        if number in PASSING and not is_old:
            self._passing_switch_errors.append(now.at)
            reading = judge_passing(tuple(self._passing_switch_errors), now.at, limits) or reading
        if reading.verdict is Verdict.HEALTHY:
            return reading.verdict
        finding = Finding(
            key=f"sxid-{number}",
            verdict=reading.verdict,
            rule=ReturnRule.LEVELS_CLEAN if is_old else reading.rule,
            quiet_seconds=reading.quiet_seconds,
            remedy=reading.remedy,
            reason=f"NVSwitch error {number}: {reading.meaning}",
        )
        for gpu in self._list_linked():
            self.note_finding(gpu.uuid, finding, now, is_correctable=reading.rule is not ReturnRule.POWER_CYCLE)
        return reading.verdict

    def describe_fault(self, reported: XidReported) -> GpuFaultReported | None:
        """The fault in an XID; `None` for a mere notice, and for an XID of an unknown GPU."""
        gpu, entry = self._inventory.find_gpu(reported.gpu), find_xid(reported.xid)
        if gpu is None or entry.xid_class is XidClass.NOTICE:
            return None
        hit = find_hit(gpu, entry.scope, reported.gpu_instance_id, reported.compute_instance_id)
        return GpuFaultReported(
            number=reported.xid,
            name=entry.name,
            address=gpu.pci.address,
            # A fault of all of the GPU is a fault of the GPU's MIG devices.
            devices=gpu.device_uuids if gpu.uuid in hit else hit,
            gpu=gpu.uuid,
            index=gpu.index,
        )

    def describe_switch_fault(self, number: int, switch: PciAddress, *, is_fatal: bool) -> GpuFaultReported:
        """The fault in an NVSwitch error, which hits every GPU with NVLink."""
        devices: list[DeviceUuid] = [device for gpu in self._list_linked() for device in gpu.device_uuids]
        return GpuFaultReported(
            number=number,
            name=read_sxid(number, is_fatal=is_fatal).meaning,
            address=switch,
            devices=tuple(devices),
            is_fatal=is_fatal,
        )

    def _list_linked(self) -> list[Gpu]:
        gpus = self._inventory.gpus
        return [gpu for gpu in gpus if gpu.nvlinks or self.find_record(gpu.uuid).levels.links_expected]

    def note_sample(self, sample: NodeSample, now: Moment, settings: HealthSettings, *, is_extra: bool = False) -> None:
        """Poll every GPU through the newest sample."""
        samples = {one.uuid: one for one in sample.gpus}
        has_switches = bool(self._inventory.switches)
        linked = frozenset(gpu.pci.address for gpu in self._inventory.gpus if _has_links(gpu, samples.get(gpu.uuid)))
        for gpu in self._inventory.gpus:
            record = self.find_record(gpu.uuid)
            poll = judge_levels(
                gpu,
                samples.get(gpu.uuid),
                record.levels,
                now.at,
                settings,
                has_switches=has_switches,
                unlinked=record.levels.links_to.keys() - linked,
            )
            self._pids[gpu.uuid] = poll.pids
            self._records[gpu.uuid] = note_poll(record, replace(poll, is_extra=is_extra), now, settings)

    def note_silence(self, now: Moment, settings: HealthSettings) -> None:
        """A poll was due and got no reading."""
        for gpu in self._inventory.gpus:
            record = self.find_record(gpu.uuid)
            poll = PollResult(memory=record.levels, answered=False, is_clean=False)
            self._records[gpu.uuid] = note_poll(record, poll, now, settings)

    def clear(self, name: str, now: Moment, who: str, reason: str) -> tuple[Gpu, tuple[str, ...]]:
        """Take a GPU back on a person's word: the GPU, and the keys of its forgotten faults.

        Raises:
            ControlRefused: No such GPU, or a GPU without a fault.
        """
        gpu = find_named(self._inventory, name)
        if gpu is None:
            raise ControlRefused(f"no GPU {name}: name it by index, UUID or PCI address, see `nodeagent gpu list`")
        if not self.find_record(gpu.uuid).faults:
            raise ControlRefused(f"nothing is held against GPU {gpu.index}, there is nothing to clear")
        record = clear_record(self.find_record(gpu.uuid), now, who, reason)
        self._records[gpu.uuid] = record
        return gpu, record.clearings[-1].cleared

    def report(self, *, unknown_after: int, watched: bool, wall: float) -> HealthReport:
        """The verdicts now; the next report counts `since` from here."""
        inputs = VerdictInputs(driver=self._driver, unknown_after=unknown_after, watched=watched)
        report = render_report(self._inventory, self._records, self._standings, inputs, wall=wall)
        self._standings = {standing.device: standing for standing in list_reported(report)}
        return report

    def collect(self, at: float) -> StoredVerdicts:
        """The verdicts for the store."""
        return StoredVerdicts(
            boot_id=self.boot_id,
            saved_at=at,
            records=tuple(self._records[uuid] for uuid in sorted(self._records)),
            standings=tuple(self._standings.values()),
            kernel_log_sequence=self._before_held(self.kernel_log_sequence),
        )

    def fingerprint(self) -> object:
        """Equal while no change has to be durable before publishing."""
        return (
            self._before_held(self.driver_line_sequence),
            tuple(self._standings.values()),
            tuple((uuid, _summarise(record)) for uuid, record in self._records.items()),
        )

    def _change_all(self, change: Callable[[GpuRecord], GpuRecord]) -> None:
        for gpu in self._inventory.gpus:
            self._records[gpu.uuid] = change(self.find_record(gpu.uuid))


def find_holder(table: AllocationTable | None, device: str) -> str:
    """The pod that holds a device, as namespace and name; empty for a free device or an unknown holder."""
    for allocation in table.allocations if table is not None else ():
        if allocation.pod is not None and any(find_uuid(one) == device for one in allocation.devices):
            return f"{allocation.pod.namespace}/{allocation.pod.name}"
    return ""


def _has_other_version(before: DriverState, after: DriverState) -> bool:
    return bool(before.driver_version) and before.driver_version != after.driver_version


def _summarise(record: GpuRecord) -> object:
    faults = tuple(
        (fault.key, fault.device, fault.verdict, fault.rule, fault.reset_seen, fault.power_cycle_seen)
        for fault in record.faults
    )
    return faults, record.accepted, record.clearings, record.returns


def _has_links(gpu: Gpu, sample: GpuSample | None) -> bool:
    """Whether a GPU could be at the other end of links: MIG mode and a lost GPU have no links."""
    return not (gpu.mig_enabled or gpu.lost or (sample is not None and sample.lost))
