"""The stand-in kubelet as a process of its own, for benches and for trying a device plugin by hand."""

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec

from nodeagent_sim.kubelet.kubelet import StandInKubelet
from nodeagent_sim.kubelet.plugin_client import PluginClient
from nodeagent_sim.kubelet.pod_script import PodScript

_EXAMPLES = """
examples:
  python -m nodeagent_sim.kubelet --dir /tmp/kubelet
      serve /tmp/kubelet/device-plugins/kubelet.sock and /tmp/kubelet/pod-resources/kubelet.sock
  python -m nodeagent_sim.kubelet --dir /tmp/kubelet --pods 4
      and let four pods at a time come and go
  python -m nodeagent_sim.kubelet --dir /tmp/kubelet --rounds 2000 --size 4
      wait for a plugin, admit 2000 pods of 4 devices, print how long the plugin took as one JSON line, end
"""


Dial = Callable[[str, Path], PluginClient]


def main(arguments: list[str] | None = None, *, dial: Dial = PluginClient) -> int:
    """Run until interrupted, or until the rounds are done."""
    options = _parse(arguments)
    try:
        anyio.run(_run, options, dial)
    except KeyboardInterrupt:
        return 130
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m nodeagent_sim.kubelet",
        description="A stand-in for the kubelet: registers device plugins, admits pods, answers podresources.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dir", required=True, type=Path, help="directory to serve under, as /var/lib/kubelet")
    parser.add_argument("--resource", default="nvidia.com/gpu", help="resource that pods ask for (%(default)s)")
    parser.add_argument("--pods", type=int, default=0, metavar="N", help="pods that come and go (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, another story (%(default)s)")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="measure N admissions and end")
    parser.add_argument("--size", type=int, default=1, metavar="N", help="devices of each measured pod (%(default)s)")
    return parser.parse_args(arguments)


async def _run(options: argparse.Namespace, dial: Dial) -> None:
    kubelet = StandInKubelet(options.dir, seed=options.seed, dial=dial)
    async with anyio.create_task_group() as tasks:
        await tasks.start(kubelet.run)
        if options.rounds:
            await _measure(kubelet, options.resource, options.size, options.rounds)
            tasks.cancel_scope.cancel()
        elif options.pods:
            script = PodScript(kubelet, lanes=options.pods, resource=options.resource, seed=options.seed)
            tasks.start_soon(script.run, name="pod script")


async def _measure(kubelet: StandInKubelet, resource: str, size: int, rounds: int) -> None:
    await kubelet.wait_until(lambda: kubelet.count_free(resource) >= size)
    for number in range(rounds):
        await kubelet.add_pod("bench", f"pod-{number}", {resource: size})
        kubelet.delete_pod("bench", f"pod-{number}")
    both = sorted(1e6 * (times.prefer_seconds + times.allocate_seconds) for times in kubelet.call_times)
    percentiles = statistics.quantiles(both, n=100, method="inclusive")
    report = {
        "rounds": len(both),
        "prefer_and_allocate_p50_us": round(percentiles[49], 1),
        "prefer_and_allocate_p99_us": round(percentiles[98], 1),
    }
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
