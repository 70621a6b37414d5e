"""The agent's own series about GPUs, MIG layouts and MPS daemons; pure.

Values that DCGM exporter lacks, or has in a form without sums. One series for each GPU even in MIG mode, so that sums
are right; labels `gpu` and `UUID` join with DCGM's series.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from nodeagent.components.exporter.catalogue.field import Entity
from nodeagent.components.exporter.exposition import Family, Labels, MetricType, counter, gauge, make_family
from nodeagent.components.exporter.series.xid_history import XidHistory
from nodeagent.model.gpu import Gpu, Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.mig import MigState
from nodeagent.model.mps import MpsDaemon, MpsPhase, MpsState
from nodeagent.model.offering import Offering
from nodeagent.model.proof import GIVEN_UP, GpuProofs, ProofVerdict
from nodeagent.model.telemetry import GpuSample
from nodeagent.rules.ids import render_bus_id

_Read = Callable[[GpuSample], float | None]
_Row = tuple[Labels, _Read]


def _scale(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


_READINGS: tuple[tuple[str, MetricType, str, tuple[_Row, ...]], ...] = (
    (
        "nodeagent_gpu_power_watts",
        "gauge",
        "Power the board draws.",
        (((), lambda s: _scale(s.power_milliwatts, 1e-3)),),
    ),
    (
        "nodeagent_gpu_energy_joules_total",
        "counter",
        "Energy drawn since the driver was loaded.",
        (((), lambda s: _scale(s.energy_millijoules, 1e-3)),),
    ),
    (
        "nodeagent_gpu_held_back_seconds_total",
        "counter",
        "Time slowed down by a limit.",
        (
            ((("limit", "power"),), lambda s: _scale(s.power_violation_nanoseconds, 1e-9)),
            ((("limit", "heat"),), lambda s: _scale(s.thermal_violation_nanoseconds, 1e-9)),
        ),
    ),
    (
        "nodeagent_gpu_ecc_errors_total",
        "counter",
        "Memory errors since the driver was loaded.",
        (
            ((("kind", "corrected"),), lambda s: s.ecc_corrected_volatile),
            ((("kind", "uncorrected"),), lambda s: s.ecc_uncorrected_volatile),
        ),
    ),
    (
        "nodeagent_gpu_nvlink_bytes_total",
        "counter",
        "Payload over all NVLinks.",
        (
            ((("direction", "transmit"),), lambda s: _scale(s.nvlink_transmit_kib, 1024)),
            ((("direction", "receive"),), lambda s: _scale(s.nvlink_receive_kib, 1024)),
        ),
    ),
    (
        "nodeagent_gpu_pcie_bytes_total",
        "counter",
        "Bytes over PCIe.",
        (
            ((("direction", "transmit"),), lambda s: s.pcie_transmit_bytes),
            ((("direction", "receive"),), lambda s: s.pcie_receive_bytes),
        ),
    ),
    (
        "nodeagent_gpu_recovery_action",
        "gauge",
        "What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 drain peers, 4 drain and reset.",
        (((), lambda s: s.recovery_action),),
    ),
    (
        "nodeagent_gpu_unreadable_readings",
        "gauge",
        "Readings that the driver refused in the newest sample.",
        (((), lambda s: None if s.lost else len(s.unreadable)),),
    ),
)


def build_reading_families(boards: Sequence[Entity]) -> tuple[Family, ...]:
    """Families of each sample."""
    named = [(_name(board.gpu), board.board) for board in boards]
    return tuple(
        make_family(
            name, kind, text, [((*labels, *extra), read(sample)) for labels, sample in named for extra, read in rows]
        )
        for name, kind, text, rows in _READINGS
    )


def build_standing_families(
    inventory: Inventory | None, health: HealthReport | None, xids: XidHistory, lost: frozenset[str]
) -> tuple[Family, ...]:
    """Families that hold between samples: present GPUs, lost GPUs, events."""
    gpus = inventory.gpus if inventory is not None else ()
    totals = [(gpu, total) for gpu in gpus for total in xids.totals(gpu.uuid)]
    return (
        gauge(
            "nodeagent_gpu_present",
            "Whether a GPU that is known answers; 0 for a lost one.",
            [
                ((*_name(gpu), ("pci_bus_id", render_bus_id(gpu.pci.address))), not (gpu.lost or gpu.uuid in lost))
                for gpu in gpus
            ],
        ),
        gauge("nodeagent_gpu_info", "What a GPU is; always 1.", [(_describe(gpu), 1) for gpu in gpus]),
        counter(
            "nodeagent_gpu_xid_errors_total",
            "XID errors since the agent started.",
            [((*_name(gpu), ("xid", str(xid))), count) for gpu, (xid, count, _) in totals],
        ),
        gauge(
            "nodeagent_gpu_xid_last_seen_timestamp_seconds",
            "When the newest XID error of each number came, Unix time.",
            [((*_name(gpu), ("xid", str(xid))), newest) for gpu, (xid, _, newest) in totals],
        ),
        gauge(
            "nodeagent_device_health",
            "The verdict on each GPU and MIG device; 1 for the present one.",
            _list_verdicts(inventory, health),
        ),
    )


def _list_verdicts(inventory: Inventory | None, health: HealthReport | None) -> list[tuple[Labels, float]]:
    if inventory is None or health is None:
        return []
    gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
    return [
        ((*_name(gpus[one.gpu]), ("device", str(one.device)), ("verdict", one.verdict.value)), 1)
        for one in health.devices
        if one.gpu in gpus
    ]


def _name(gpu: Gpu) -> Labels:
    return (("gpu", str(gpu.index)), ("UUID", str(gpu.uuid)))


def _describe(gpu: Gpu) -> Labels:
    capability = gpu.compute_capability
    return (
        *_name(gpu),
        ("pci_bus_id", render_bus_id(gpu.pci.address)),
        ("model", gpu.name),
        ("serial", gpu.serial),
        ("vbios_version", gpu.vbios_version),
        ("compute_capability", f"{capability[0]}.{capability[1]}" if capability else ""),
        ("mig", "on" if gpu.mig_enabled else "off"),
    )


def build_mig_families(state: MigState, inventory: Inventory | None) -> tuple[Family, ...]:
    """All families about MIG; a node without MIG has the wanted layout alone."""
    gpus = inventory.gpus if inventory is not None else ()
    cut = [(gpu, Counter(device.profile for device in gpu.mig_devices)) for gpu in gpus if gpu.mig_enabled]
    asked = (("layout", state.layout), ("standing", state.standing))
    return (
        gauge(
            "nodeagent_mig_layout_info",
            "The MIG layout that is asked for, and how it stands: pending, rebooting, success, failed; always 1.",
            [(asked, 1)] if state.layout else [],
        ),
        gauge(
            "nodeagent_mig_changing",
            "GPUs that are being cut otherwise, or wait for it; the value is the calls made so far.",
            [((("gpu", str(one.index)), ("UUID", one.gpu), ("wanted", one.wanted)), one.done) for one in state.changes],
        ),
        gauge(
            "nodeagent_mig_devices",
            "MIG devices of each profile.",
            [
                ((("gpu", str(gpu.index)), ("UUID", gpu.uuid), ("profile", profile)), count)
                for gpu, counts in cut
                for profile, count in sorted(counts.items())
            ],
        ),
    )


def build_cordon_families(offering: Offering) -> tuple[Family, ...]:
    """A series for each GPU whose allocation mode is known."""
    return (
        gauge(
            "nodeagent_gpu_cordoned",
            "1 for a GPU kept from new pods by a cordon, whoever gave it; 0 for any other.",
            [((("gpu", str(one.index)), ("UUID", str(one.gpu))), float(bool(one.cordons))) for one in offering.doors],
        ),
        gauge(
            "nodeagent_signal_brake_closings",
            "How many times in a row the brake has closed the GPU, since a pod last proved it; 0 for a GPU that works.",
            [((("gpu", str(one.index)), ("UUID", str(one.gpu))), float(one.brake_closings)) for one in offering.doors],
        ),
        gauge(
            "nodeagent_signal_brake_trial",
            "1 for a GPU that the brake opens to a single pod, which is to prove it; 0 for any other.",
            [
                ((("gpu", str(one.index)), ("UUID", str(one.gpu))), float(one.trial is not None))
                for one in offering.doors
            ],
        ),
    )


def build_proof_families(proofs: GpuProofs | None, inventory: Inventory | None) -> tuple[Family, ...]:
    """The families about idle-time proofs; no series where no GPU is proven."""
    told = proofs or GpuProofs()
    gpus = inventory.gpus if inventory is not None else ()
    known = [(gpu, told.gpus[gpu.uuid]) for gpu in gpus if gpu.uuid in told.gpus]
    ends = (*ProofVerdict, GIVEN_UP) if proofs is not None else ()
    return (
        gauge(
            "nodeagent_gpu_proven_timestamp_seconds",
            "When the GPU last passed a proof while it was free, and the stage of that proof, Unix time.",
            [
                ((*_name(gpu), ("level", one.newest_pass[0].value)), one.newest_pass[1])
                for gpu, one in known
                if one.newest_pass is not None
            ],
        ),
        gauge(
            "nodeagent_gpu_proof_failed",
            "1 for a GPU that failed its newest proof, 0 for any other GPU that was proven.",
            [(_name(gpu), float(one.verdict is ProofVerdict.FAILED)) for gpu, one in known],
        ),
        counter(
            "nodeagent_gpu_proofs_total",
            "Proofs of free GPUs since the agent started, by verdict; those given up for a pod have none.",
            [((("end", end),), told.counts.get(end, 0)) for end in ends],
        ),
    )


def build_mps_families(state: MpsState) -> tuple[Family, ...]:
    """A series for each daemon."""
    daemons = [(_label(one), one) for one in state.daemons]
    return (
        gauge(
            "nodeagent_mps_daemon_ready",
            "1 for an MPS daemon that is ready, 0 for one that waits, is started, is broken or is ended.",
            [(labels, float(one.phase is MpsPhase.READY)) for labels, one in daemons],
        ),
        counter(
            "nodeagent_mps_daemon_starts_total",
            "How often the daemon was started since the agent runs.",
            [(labels, float(one.starts)) for labels, one in daemons],
        ),
        gauge(
            "nodeagent_mps_clients",
            "Processes that work through the daemon, at the last look.",
            [(labels, float(len(one.clients))) for labels, one in daemons],
        ),
    )


def _label(daemon: MpsDaemon) -> Labels:
    return (("daemon", daemon.name), ("owner", daemon.owner))
