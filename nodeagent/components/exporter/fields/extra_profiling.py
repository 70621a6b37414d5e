"""Fields read on demand: hardware counters of Hopper and later beside the usual ones."""

from collections.abc import Iterator

from nodeagent.components.exporter.catalogue.field import Field
from nodeagent.components.exporter.fields.extra_field import make_field, ratio, to_bytes
from nodeagent.components.exporter.fields.extra_links import LINKS


def _list_profiling() -> Iterator[Field]:
    """Hardware counters of Hopper and later beside the usual ones."""
    pipes = (("TENSOR_IMMA", 9), ("TENSOR_HMMA", 7), ("TENSOR_DFMA", 6), ("INT", 4))
    for offset, (name, metric) in enumerate(pipes):
        text = f"Part of the cycles in which the {name.split('_')[-1]} pipe was busy."
        reading = f"gpm/{metric}"
        yield make_field(
            f"PROF_PIPE_{name}_ACTIVE", 1013 + offset, "gauge", text, reading, ratio, decimals=True, own=True
        )
    engines = (("NVDEC", 8, 1017, 30), ("NVJPG", 8, 1025, 40), ("NVOFA", 2, 1033, 50))
    for name, count, number, metric in engines:
        for engine in range(count):
            text, reading = f"Part of the time in which {name} {engine} was busy.", f"gpm/{metric + engine}"
            yield make_field(
                f"PROF_{name}{engine}_ACTIVE", number + engine, "gauge", text, reading, ratio, decimals=True
            )
    for link in range(LINKS):
        for kind, word in enumerate(("TX", "RX")):
            name, text = f"PROF_NVLINK_L{link}_{word}_BYTES", f"Rate over link {link}, {word}, bytes per second."
            yield make_field(name, 1040 + 2 * link + kind, "gauge", text, f"gpm/{63 + 2 * link - kind}", to_bytes)
    for offset, (name, metric) in enumerate((("TX_ALL", 100), ("TX_DATA", 102), ("RX_ALL", 101), ("RX_DATA", 103))):
        text = f"Rate between GPU and CPU, {name.lower().replace('_', ' ')}, bytes per second."
        yield make_field(f"PROF_C2C_{name}_BYTES", 1076 + offset, "gauge", text, f"gpm/{metric}", to_bytes)
    for offset, name in enumerate(
        ("HOSTMEM_CACHE_HIT", "HOSTMEM_CACHE_MISS", "PEERMEM_CACHE_HIT", "PEERMEM_CACHE_MISS")
    ):
        yield make_field(
            f"PROF_{name}", 1080 + offset, "gauge", f"{name.replace('_', ' ').lower()}s.", f"gpm/{160 + offset}"
        )
    cycles = ("SM_CYCLES_ELAPSED", "SM_CYCLES_ACTIVE", "MMA_CYCLES_ACTIVE", "DMMA_CYCLES_ACTIVE", "HMMA_CYCLES_ACTIVE")
    totals = (*cycles, "IMMA_CYCLES_ACTIVE", "DFMA_CYCLES_ACTIVE", "PCIE_TX_BYTES", "PCIE_RX_BYTES")
    more = ("INT_CYCLES_ACTIVE", "FP64_CYCLES_ACTIVE", "FP32_CYCLES_ACTIVE", "FP16_CYCLES_ACTIVE")
    for offset, name in enumerate((*totals, *more)):
        text = f"{name.replace('_', ' ').capitalize()}, in all; newest drivers only."
        yield make_field(f"PROF_{name}_TOTAL", 1084 + offset, "counter", text, f"gpm/{248 + offset}")


FIELDS = (*_list_profiling(),)
