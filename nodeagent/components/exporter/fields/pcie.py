"""The PCIe link."""

from nodeagent.components.exporter.catalogue.field import Entity, counter, gauge, to_mib, to_whole


def _transmit_rate(entity: Entity) -> int | None:
    """The hardware counter, or else the difference of totals."""
    profiling = entity.board.profiling
    if profiling is not None and profiling.pcie_transmit_bytes_per_second is not None:
        return int(profiling.pcie_transmit_bytes_per_second)
    return to_whole(entity.rates.pcie_transmit_bytes)


def _receive_rate(entity: Entity) -> int | None:
    profiling = entity.board.profiling
    if profiling is not None and profiling.pcie_receive_bytes_per_second is not None:
        return int(profiling.pcie_receive_bytes_per_second)
    return to_whole(entity.rates.pcie_receive_bytes)


def _to_kilobytes(rate: int | None) -> int | None:
    return None if rate is None else rate // 1000


def _bar1_free(entity: Entity) -> int | None:
    total, used = entity.board.bar1_total_bytes, entity.board.bar1_used_bytes
    return None if total is None or used is None else to_mib(total - used)


FIELDS = (
    gauge("DCGM_FI_DEV_BAR1_TOTAL", 90, "Size of the BAR1 window, MiB.", lambda e: to_mib(e.board.bar1_total_bytes)),
    gauge("DCGM_FI_DEV_BAR1_USED", 92, "Used part of the BAR1 window, MiB.", lambda e: to_mib(e.board.bar1_used_bytes)),
    gauge("DCGM_FI_DEV_BAR1_FREE", 93, "Free part of the BAR1 window, MiB.", _bar1_free),
    gauge(
        "DCGM_FI_DEV_PCIE_TX_THROUGHPUT",
        200,
        "Rate at which the GPU sends over PCIe, KB/s.",
        lambda e: _to_kilobytes(_transmit_rate(e)),
    ),
    gauge(
        "DCGM_FI_DEV_PCIE_RX_THROUGHPUT",
        201,
        "Rate at which the GPU receives over PCIe, KB/s.",
        lambda e: _to_kilobytes(_receive_rate(e)),
    ),
    counter(
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        202,
        "Packets sent again over PCIe.",
        lambda e: e.board.pcie_replay_count,
        default=True,
    ),
    gauge(
        "DCGM_FI_DEV_PCIE_MAX_LINK_GEN",
        235,
        "Fastest PCIe generation of GPU and slot together.",
        lambda e: e.gpu.pci.link_generation_max,
    ),
    gauge(
        "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH",
        236,
        "Most PCIe lanes of GPU and slot together.",
        lambda e: e.gpu.pci.link_width_max,
    ),
    gauge("DCGM_FI_DEV_PCIE_LINK_GEN", 237, "PCIe generation in use.", lambda e: e.board.pcie_generation),
    gauge("DCGM_FI_DEV_PCIE_LINK_WIDTH", 238, "PCIe lanes in use.", lambda e: e.board.pcie_width),
    gauge(
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        1009,
        "Rate at which the GPU sends over PCIe, bytes per second.",
        _transmit_rate,
        default=True,
    ),
    gauge(
        "DCGM_FI_PROF_PCIE_RX_BYTES",
        1010,
        "Rate at which the GPU receives over PCIe, bytes per second.",
        _receive_rate,
        default=True,
    ),
    counter(
        "DCGM_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS",
        1501,
        "PCIe errors that were corrected.",
        lambda e: e.board.pcie_correctable_error_count,
    ),
)
