"""Frame buffer, of the board or of the instance."""

from nodeagent.components.exporter.catalogue.field import Entity, gauge, to_mib


def _used_share(entity: Entity) -> float | None:
    share = entity.share
    if share.memory_total_bytes is None or share.memory_used_bytes is None:
        return None
    usable = share.memory_total_bytes - (share.memory_reserved_bytes or 0)
    return share.memory_used_bytes / usable if usable > 0 else None


FIELDS = (
    gauge("DCGM_FI_DEV_FB_TOTAL", 250, "Memory of the device, MiB.", lambda e: to_mib(e.share.memory_total_bytes)),
    gauge("DCGM_FI_DEV_FB_FREE", 251, "Free memory, MiB.", lambda e: to_mib(e.share.memory_free_bytes), default=True),
    gauge(
        "DCGM_FI_DEV_FB_USED",
        252,
        "Used memory without what the driver reserves, MiB.",
        lambda e: to_mib(e.share.memory_used_bytes),
        default=True,
    ),
    gauge(
        "DCGM_FI_DEV_FB_RESERVED",
        253,
        "Memory that driver and firmware keep, MiB.",
        lambda e: to_mib(e.share.memory_reserved_bytes),
        default=True,
    ),
    gauge(
        "DCGM_FI_DEV_FB_USED_PERCENT",
        254,
        "Used part of the usable memory, from 0 to 1 in spite of the name.",
        _used_share,
        decimals=True,
    ),
)
