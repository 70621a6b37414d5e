"""`make bench`: measures, prints a table, keeps the numbers as JSON in `results/`."""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import anyio
from msgspec import to_builtins

from nodeagent import __version__
from tests import generate
from tests.bench import compare, curves, reference
from tests.bench.operations import OPERATIONS
from tests.bench.packing import measure as packing
from tests.bench.peers import contests, table
from tests.bench.pieces import (
    bus_publish,
    cdi,
    claims,
    fractions,
    imports,
    metrics,
    mig,
    mps,
    plugin,
    shim,
    slices,
    vgpu,
)
from tests.bench.rows import Row, render_table, to_json
from tests.bench.whole import (
    admission,
    agent,
    cluster,
    exposition,
    extender,
    fleet,
    foreign,
    hour,
    memory,
    page,
    proving,
    repairs,
    start,
)

RESULTS = Path("results")
Measure = Callable[[], list[Row]]


def main() -> int:
    options = _parse()
    if options.keep_chaos or options.keep_soak:
        return _keep_long_runs(options)
    if options.compare:
        sys.stdout.write(compare.compare(options.compare, _list_passed_on(options), pairs=options.pairs) + "\n")
        return 0
    if options.peers:
        return _measure_peers(options)
    if options.plugin:
        sys.stdout.write(_compare_plugin(options) + "\n")
        return 0
    groups = dict(_measure_groups(options))
    rows = [row for group in groups.values() for row in group]
    if options.json:
        sys.stdout.write(json.dumps(to_json(rows)) + "\n")
        return 0
    sys.stdout.write(f"{render_table(rows)}\n{_describe_machine()}\nkept in {_keep({'rows': to_json(rows)})}\n")
    if options.reference:
        _refer(options)
    return int(any(row.verdict == "OVER" for row in rows))


def _measure_peers(options: argparse.Namespace) -> int:
    """The agent beside NVIDIA's programs; a goal that is missed and a row that cannot be had are both a failure."""
    chosen = {name: each for name, each in contests.CONTESTS.items() if not options.only or name in options.only}
    lines, left_out = contests.measure(chosen, options.pairs, beside_neighbours=options.beside_neighbours)
    path = _keep({"lines": to_builtins(lines), "left_out": to_builtins(left_out)})
    if options.reference:
        reference.keep_peers(lines)
        generate.main([])
    sys.stdout.write(f"{table.render(lines, left_out)}\n{_describe_machine()}\nkept in {path}\n")
    return int(bool(left_out) or any(line.verdict == "OVER" for line in lines))


def _compare_plugin(options: argparse.Namespace) -> str:
    return foreign.compare(options.plugin, options.plugin_dir, options.rounds, options.pairs, options.shares)


def _measure_groups(options: argparse.Namespace) -> Iterator[tuple[str, list[Row]]]:
    for name, measure in _list_measures(options).items():
        if not options.only or name in options.only:
            sys.stderr.write(f"measuring: {name}\n")
            rows = measure()
            if options.reference:
                reference.keep_rows(name, rows)  # at once: what comes later may fail
            yield name, rows


def _refer(options: argparse.Namespace) -> None:
    """From now on these are what the docs say."""
    if not options.only:
        sys.stderr.write("measuring: curves\n")
        reference.keep_curves([curves.measure(operation) for operation in OPERATIONS])
    generate.main([])


def _keep_long_runs(options: argparse.Namespace) -> int:
    """What chaos stories and long runs have told takes its place in the docs."""
    if options.keep_chaos:
        reference.keep_stories(options.keep_chaos)
    if options.keep_soak:
        reference.keep_soaks(options.keep_soak)
    return generate.main([])


def _list_measures(options: argparse.Namespace) -> dict[str, Measure]:
    return {
        "bus": _measure_bus,
        "rendering": metrics.measure,
        "imports": lambda: imports.measure(options.rounds),
        "cdi": cdi.measure,
        "shim": shim.measure,
        "vgpu": vgpu.measure,
        "decisions": plugin.measure_decisions,
        "start": lambda: start.measure(options.rounds),
        "life": lambda: agent.measure_life(options.rounds),
        "admission": lambda: admission.measure(options.rounds * 200),
        "fractions": fractions.measure,
        "mig": mig.measure,
        "mps": mps.measure,
        "work": agent.measure_work,
        "memory": memory.measure,
        "partitioned": agent.measure_partitioned,
        "hour": hour.measure,
        "page": page.measure,
        "metrics": exposition.measure,
        "cluster": cluster.measure,
        "fleet": fleet.measure,
        "slices": slices.measure,
        "claims": claims.measure,
        "repairs": repairs.measure,
        "proving": proving.measure,
        "extender": extender.measure,
        "packing": packing.measure,
        "ratios": lambda: [*extender.measure_ratios(), *vgpu.measure_ratios()],
        "faults": lambda: agent.measure_faults(max(1, options.rounds // 5)),
    }


def _parse() -> argparse.Namespace:
    names = tuple(_list_measures(argparse.Namespace()))
    every_name = tuple(dict.fromkeys((*names, *contests.CONTESTS)))
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="starts of the agent; 200 admissions each (%(default)s)")
    parser.add_argument("--only", action="append", choices=every_name, help="one group of rows; may be repeated")
    parser.add_argument("--compare", metavar="REF", help="run against another commit, in turns, and show ratios")
    parser.add_argument("--pairs", type=int, default=5, help="turns of a comparison (%(default)s)")
    parser.add_argument(
        "--plugin", metavar="COMMAND", help="run against another device plugin, in turns; {dir} is the kubelet's root"
    )
    parser.add_argument("--plugin-dir", type=Path, metavar="DIR", help="kubelet root, where the plugin has it fixed")
    parser.add_argument(
        "--peers", action="store_true", help=f"beside NVIDIA's own programs: {', '.join(contests.CONTESTS)}"
    )
    parser.add_argument("--beside-neighbours", action="store_true", help="with --peers: on a busy machine as well")
    parser.add_argument("--shares", type=int, default=1, metavar="N", help="of each GPU; the plugin reads {config}")
    parser.add_argument("--reference", action="store_true", help="write docs/bench/reference.json and the pages")
    parser.add_argument("--keep-chaos", type=Path, metavar="FILE", help="take stories into the reference")
    parser.add_argument("--keep-soak", type=Path, metavar="FILE", help="take long runs into the reference")
    parser.add_argument("--json", action="store_true", help="rows as JSON and nothing else")
    options = parser.parse_args()
    known = tuple(contests.CONTESTS) if options.peers else names
    strange = [name for name in options.only or () if name not in known]
    if strange:
        parser.error(
            f"--only {strange[0]}: with{'' if options.peers else 'out'} --peers the groups are {', '.join(known)}"
        )
    return options


def _list_passed_on(options: argparse.Namespace) -> Sequence[str]:
    only = [word for name in options.only or ("life", "admission") for word in ("--only", name)]
    return [*only, "--rounds", str(options.rounds)]


def _measure_bus() -> list[Row]:
    micros = [seconds * 1e6 for seconds in anyio.run(bus_publish.measure)]
    return [Row("publish a state to 8 watchers", "us", micros, limit=10)]


def _describe_machine() -> str:
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load}, nice {os.nice(0)}"


def _keep(measured: Mapping[str, object]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    kept = {"version": __version__, "machine": _describe_machine(), **measured}
    path.write_text(json.dumps(kept, indent=2) + "\n")
    return path


if __name__ == "__main__":
    sys.exit(main())
