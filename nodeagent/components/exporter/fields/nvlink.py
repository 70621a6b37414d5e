"""NVLink of the whole GPU, all links together."""

from nodeagent.components.exporter.catalogue.field import Entity, counter, gauge, to_whole


def _to_thousands(kib_per_second: float | None) -> int | None:
    """The unit of DCGM's bandwidth fields: KiB a second over a thousand, cut."""
    return None if kib_per_second is None else int(kib_per_second / 1000)


def _profiled_transmit(entity: Entity) -> int | None:
    profiling = entity.board.profiling
    return to_whole(profiling.nvlink_transmit_bytes_per_second) if profiling is not None else None


def _profiled_receive(entity: Entity) -> int | None:
    profiling = entity.board.profiling
    return to_whole(profiling.nvlink_receive_bytes_per_second) if profiling is not None else None


FIFTH_GENERATION = (
    counter(
        "DCGM_FI_DEV_NVLINK_COUNT_RX_MALFORMED_PACKET_ERRORS",
        1204,
        "Malformed packets received over NVLink 5.",
        lambda e: e.board.nvlink_malformed_packet_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_COUNT_RX_BUFFER_OVERRUN_ERRORS",
        1205,
        "Packets lost to full buffers on NVLink 5.",
        lambda e: e.board.nvlink_buffer_overrun_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_COUNT_RX_ERRORS",
        1206,
        "Packets received with errors over NVLink 5.",
        lambda e: e.board.nvlink_receive_error_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_COUNT_RX_REMOTE_ERRORS",
        1207,
        "Packets marked as bad by the far end of NVLink 5.",
        lambda e: e.board.nvlink_remote_error_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_COUNT_RX_GENERAL_ERRORS",
        1208,
        "Packets with wrong headers received over NVLink 5.",
        lambda e: e.board.nvlink_general_error_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
        1209,
        "Times that too many errors came in a row on NVLink 5.",
        lambda e: e.board.nvlink_integrity_error_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_COUNT_TX_DISCARDS",
        1210,
        "Packets given up before they were sent over NVLink 5.",
        lambda e: e.board.nvlink_transmit_discard_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS",
        1211,
        "Recoveries of NVLink 5 that succeeded.",
        lambda e: e.board.nvlink_recovered_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
        1212,
        "Recoveries of NVLink 5 that failed.",
        lambda e: e.board.nvlink_recovery_failed_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS",
        1213,
        "Recoveries of NVLink 5 that were tried.",
        lambda e: e.board.nvlink_recovery_event_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS",
        1214,
        "Symbols received with errors over NVLink 5.",
        lambda e: e.board.nvlink_symbol_error_count,
    ),
    gauge(
        "DCGM_FI_DEV_NVLINK_COUNT_SYMBOL_BER_FLOAT",
        1216,
        "Symbol error rate of the worst NVLink 5.",
        lambda e: e.board.nvlink_symbol_ber,
        decimals=True,
    ),
    gauge(
        "DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER_FLOAT",
        1218,
        "Bit error rate of the worst NVLink 5 after error correction.",
        lambda e: e.board.nvlink_effective_ber,
        decimals=True,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS",
        1219,
        "Errors on NVLink 5 that error correction left.",
        lambda e: e.board.nvlink_effective_error_count,
    ),
)
"""Counters that take the place of those before, from Blackwell on; over all links."""

FIELDS = (
    counter(
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        409,
        "Flow-control CRC errors on NVLink.",
        lambda e: e.board.nvlink_crc_flit_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        419,
        "Data CRC errors on NVLink.",
        lambda e: e.board.nvlink_crc_data_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        429,
        "Packets sent again over NVLink.",
        lambda e: e.board.nvlink_replay_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        439,
        "Recoveries of NVLinks.",
        lambda e: e.board.nvlink_recovery_count,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        449,
        "Payload over all NVLinks, both directions, about MB/s; a rate in spite of its type.",
        lambda e: _to_thousands(e.rates.nvlink_kib),
        default=True,
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_TOTAL",
        843,
        "Payload sent over all NVLinks, about MB/s; a rate in spite of its type.",
        lambda e: _to_thousands(e.rates.nvlink_transmit_kib),
    ),
    counter(
        "DCGM_FI_DEV_NVLINK_RX_BANDWIDTH_TOTAL",
        897,
        "Payload received over all NVLinks, about MB/s; a rate in spite of its type.",
        lambda e: _to_thousands(e.rates.nvlink_receive_kib),
    ),
    gauge(
        "DCGM_FI_PROF_NVLINK_TX_BYTES",
        1011,
        "Rate at which the GPU sends over NVLink, bytes per second.",
        _profiled_transmit,
    ),
    gauge(
        "DCGM_FI_PROF_NVLINK_RX_BYTES",
        1012,
        "Rate at which the GPU receives over NVLink, bytes per second.",
        _profiled_receive,
    ),
    *FIFTH_GENERATION,
)
