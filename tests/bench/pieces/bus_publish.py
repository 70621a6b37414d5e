"""How long one publish to eight watchers takes: `python -m tests.bench.pieces.bus_publish`; at most 10 µs."""

import sys
import time
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import SystemClock

WATCHERS = 8
PUBLISHES = 20_000


@dataclass(frozen=True, slots=True)
class Sample:
    number: int


async def measure() -> list[float]:
    """Seconds of each publish, sorted; every watcher is asleep before each."""
    bus = Bus(SystemClock())
    durations: list[float] = []

    async def watch(client: str) -> None:
        with bus.watch(Sample, client=client) as changes:
            async for _change in changes:
                pass

    async with anyio.create_task_group() as tasks:
        for number in range(WATCHERS):
            tasks.start_soon(watch, f"watcher {number}")
        for number in range(PUBLISHES):
            for _ in range(4):
                await anyio.lowlevel.checkpoint()
            sample = Sample(number)
            began = time.perf_counter()
            bus.publish_state(sample, source="bench")
            durations.append(time.perf_counter() - began)
        tasks.cancel_scope.cancel()
    return sorted(durations)


def main() -> None:
    """Print the percentiles in microseconds."""
    durations = anyio.run(measure)
    shown = {share: durations[int(len(durations) * share)] * 1e6 for share in (0.5, 0.9, 0.99)}
    sys.stdout.write(" ".join(f"p{share * 100:.0f}={micros:.1f}us" for share, micros in shown.items()) + "\n")


if __name__ == "__main__":
    main()
