"""The stand-in kubelet of the benches, in a process of its own: it says when what reached it, and admits on demand.

One JSON line a thing on standard output, each with `at` on the clock that all processes of a machine share; one JSON
line a wish on standard input; it ends with its standard input. Who makes the calls that are timed is in `callers`.
"""

import argparse
import gc
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec

from nodeagent_sim.kubelet.device_manager import Device
from nodeagent_sim.kubelet.kubelet import StandInKubelet
from tests.bench.around.callers import CALLERS, BlockingPluginClient

CALLS_EACH: Final = 2
"""Of each resource a pod's plugins are asked for Allocate and for the start."""


class Wish(msgspec.Struct):
    """Admit `rounds` pods of `size` devices, one after the other; a pause after each."""

    resource: str
    size: int
    rounds: int
    pause_seconds: float
    also: dict[str, int] = {}
    """What each pod asks for beside it; with it, the start of its container counts instead of the preference, and the
    pod stays, whose part of a GPU is not to be had anew before somebody has seen that it is gone."""
    standing: int = 0
    """How many pods like it come before the first that counts, and stay."""


def tell(event: str, at: float | None = None, **values: Any) -> None:
    line = {"event": event, "at": time.perf_counter() if at is None else at, **values}
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()


class TellingClient(BlockingPluginClient):
    """Made the moment a plugin registers; tells that, and every list."""

    def __init__(self, resource: str, socket: Path, caller: str, known: "list[TellingClient]") -> None:
        tell("registered", resource=resource)
        super().__init__(resource, socket, caller)
        known.append(self)

    async def lists(self) -> AsyncIterator[tuple[Device, ...]]:
        async for devices in super().lists():
            at = time.perf_counter()
            yield devices
            tell("list", at, resource=self.resource, devices=len(devices), healthy=sum(one.healthy for one in devices))


class Told(msgspec.Struct):
    """Milliseconds, pod by pod."""

    millis: list[float] = []
    """Of what the plugins are asked."""
    allocate_millis: list[float] = []
    """Of Allocate alone."""
    nothing_millis: list[float] = []
    """Of as many calls that ask for nothing, where starts count."""


async def admit(kubelet: StandInKubelet, request: Wish, clients: list[TellingClient]) -> Told:
    """Pods one after the other; what was garbage here is collected in between."""
    resources = {request.resource: request.size, **request.also}
    for resource, size in resources.items():
        await kubelet.wait_until(lambda: kubelet.count_free(resource) >= size)  # noqa: B023 - awaited within the turn
    for number in range(request.standing):
        await kubelet.add_pod("bench", f"standing-{number}", resources)
    told = Told()
    for number in range(request.rounds):
        kubelet.call_times.clear()
        started_before = sum(client.start_seconds for client in clients)
        gc.disable()
        await kubelet.add_pod("bench", f"pod-{number}", resources)
        gc.enable()
        allocating = sum(times.allocate_seconds for times in kubelet.call_times)
        preferring = sum(times.prefer_seconds for times in kubelet.call_times)
        starting = sum(client.start_seconds for client in clients) - started_before
        told.millis.append(1000 * (allocating + (starting if request.also else preferring)))
        told.allocate_millis.append(1000 * allocating)
        if not request.also:
            kubelet.delete_pod("bench", f"pod-{number}")
        await anyio.sleep(request.pause_seconds)  # lists and pod resources have their turn
    if request.also:
        # Afterwards: a pod is not to come to an agent that has just been busy.
        for _ in range(request.rounds):
            told.nothing_millis.append(1000 * sum(client.ask_nothing() for client in clients * CALLS_EACH))
            await anyio.sleep(request.pause_seconds)
    return told


async def run(directory: Path, caller: str) -> None:
    """Until standard input ends."""
    gc.freeze()  # what was imported is none of the collector's business while something is timed
    clients: list[TellingClient] = []
    kubelet = StandInKubelet(directory, dial=partial(TellingClient, caller=caller, known=clients))
    async with anyio.create_task_group() as tasks:
        await tasks.start(kubelet.run)
        tell("serving")
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            told = await admit(kubelet, msgspec.json.decode(line, type=Wish), clients)
            tell("admitted", **msgspec.structs.asdict(told))
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", required=True, type=Path)
    parser.add_argument("--caller", required=True, choices=CALLERS)
    options = parser.parse_args()
    anyio.run(run, options.dir, options.caller)
