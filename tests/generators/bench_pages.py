"""The tables and pictures of the docs that come from the committed reference of the benches.

A page is written by hand but for what stands between `<!-- made: … -->` and `<!-- end -->`, which is made anew from
`docs/bench/reference.json`: no number in a table is anybody's memory.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from nodeagent.edge.kube.follow import WATCH_SECONDS
from tests.bench import reference
from tests.bench.charts import render_chart
from tests.bench.curves import Curve
from tests.bench.packing.measure import GIVEN, REFUSED, name_row
from tests.bench.packing.policies import POLICIES
from tests.bench.packing.sizes import LISTS
from tests.bench.peers.table import Line, render_goal
from tests.bench.reference import KeptRow, Reference, Soak, Story, Taken
from tests.bench.whole import fleet
from tests.soak.measures import split_quarters

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"(<!-- made: (\w+)((?: [\w-]+)*) -->\n).*?(<!-- end -->)", re.DOTALL)
NOTHING = "Not taken yet.\n"
FLEETS = (100, 1000, 5000, 15000)
SECONDS_A_DAY = 86400


def render_page(name: str) -> str:
    known = reference.read()

    def make(found: re.Match[str]) -> str:
        head, kind, words, end = found.groups()
        return f"{head}{MAKERS[kind](known, words.split())}{end}"

    return BLOCK.sub(make, (DOCS / name).read_text(encoding="utf-8"))


def render_picture(axis: str) -> str:
    curves = _list_curves(reference.read(), axis)
    return render_chart(axis, curves) if curves else "<svg xmlns='http://www.w3.org/2000/svg'/>\n"


def make_rows(known: Reference, groups: Sequence[str]) -> str:
    """One table of the rows of some groups, in the order of the words."""
    rows = [row for group in groups if group in known.groups for row in known.groups[group].rows]
    if not rows:
        return NOTHING
    head = ["| Row | Runs | p50 | p90 | p99 | Limit |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    return "\n".join([*head, *map(_render_row, rows)]) + "\n"


def _render_row(row: KeptRow) -> str:
    values = [_show(row.p50, row.unit), *(("", "") if row.runs == 1 else (_show(row.p90), _show(row.p99)))]
    name = row.name.strip()
    return f"| {name} | {row.runs:,} | {values[0]} | {values[1]} | {values[2]} | {_render_limit(row)} |"


def _render_limit(row: KeptRow) -> str:
    if row.limit is None:
        return ""
    found = {0.5: row.p50, 0.99: row.p99}.get(row.limit_is_for, row.p99)
    over = "" if found <= row.limit else f" **over, by {100 * (found / row.limit - 1):.0f} %**"
    which = "" if row.runs == 1 else f"p{100 * row.limit_is_for:.0f} "
    return f"{which}{row.limit:g}{over}"


def _show(value: float, unit: str = "") -> str:
    text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{text} {unit.replace('us', 'µs')}".strip()


def make_taken(known: Reference, groups: Sequence[str]) -> str:
    lines: dict[str, list[str]] = {}
    for group in groups:
        if group in known.groups:
            lines.setdefault(_describe(known.groups[group].taken), []).append(f"`{group}`")
    return "".join(f"{', '.join(names)}: {text}.\n\n" for text, names in lines.items()) or NOTHING


def _describe(taken: Taken) -> str:
    return f"commit {taken.commit}, {taken.machine}, load {taken.load}, nice {taken.nice}"


def make_curves(known: Reference, words: Sequence[str]) -> str:
    """The ends of the curves over one axis, and how steep the last stretch is."""
    curves = _list_curves(known, " ".join(words))
    if not curves:
        return NOTHING
    sizes = curves[0].sizes
    head = f"| Processor time in µs, {curves[0].axis}: | " + " | ".join(f"{size:,}" for size in sizes) + " |"
    lines = [head, "| --- |" + " ---: |" * len(sizes)]
    lines += [f"| {curve.name} | " + " | ".join(map(_show, curve.micros)) + " |" for curve in curves]
    return "\n".join(lines) + "\n"


def _list_curves(known: Reference, axis: str) -> list[Curve]:
    return [curve for curve in (known.curves.curves if known.curves else ()) if curve.axis == axis]


def make_chaos(known: Reference, words: Sequence[str]) -> str:
    """All stories of the last long run, added up, and the worst of each measure; by their word those with all doors."""
    kept = known.rooms if words else known.chaos
    if kept is None or not kept.stories:
        return NOTHING
    stories = kept.stories
    failed = [story for story in stories if story.violation]
    rooms = sum((Counter(story.rooms) for story in stories), Counter[str]())
    lines = [
        "| What | Found |",
        "| --- | ---: |",
        f"| stories, steps | {len(stories)}, {sum(story.steps for story in stories):,} |",
        f"| stories in which something did not hold | {len(failed)} |",
        f"| pods admitted | {sum(story.admitted for story in stories):,} |",
        f"| pods refused while something was broken | {sum(story.refused for story in stories):,} |",
        *(f"| {what} | {rooms[what]:,} |" for what in sorted(rooms)),
        f"| ready after the last fault, p50 of the stories' latest | {_middle(stories):.1f} s |",
        f"| ready after the last fault, at the latest | {max(story.ready_seconds for story in stories):.1f} s |",
        f"| every neighbour told the truth, at the latest | {max(story.well_seconds for story in stories):.1f} s |",
        f"| longest wait for a processor, not counted above | {max(one.stall_seconds for one in stories):.1f} s |",
        f"| hours of running | {sum(story.seconds for story in stories) / 3600:.1f} |",
    ]
    return "\n".join(lines) + f"\n\nTaken of {_describe_all(kept.taken, stories)}.\n"


def _describe_all(taken: Taken, runs: Sequence[Story | Soak]) -> str:
    """Long runs take their time, and may go over several commits."""
    commits = ", ".join(dict.fromkeys(run.commit or taken.commit for run in runs))
    return f"commit {commits}, {taken.machine}"


def _middle(stories: Sequence[Story]) -> float:
    return sorted(story.ready_seconds for story in stories)[len(stories) // 2]


def make_soak(known: Reference, _words: Sequence[str]) -> str:
    """What the last life of the agent had in its first quarter and in its last, in the middle of each."""
    if known.soak is None or not known.soak.soaks:
        return NOTHING
    lines = [
        "| Agent's hours | Ran for | Pods | RSS, of its own in MiB | Descriptors | Threads | Tasks | Grown or lost |",
        "| ---: | ---: | ---: | --- | --- | --- | --- | --- |",
        *(_render_soak(soak) for soak in known.soak.soaks),
    ]
    return "\n".join(lines) + f"\n\nTaken of {_describe_all(known.soak.taken, known.soak.soaks)}.\n"


def _render_soak(soak: Soak) -> str:
    memory = ", ".join(_compare(soak, name, ".1f") for name in ("rss_mib", "own_mib"))
    rooms = ", all doors open" if soak.rooms else ""
    others = " | ".join(_compare(soak, name, ".0f") for name in ("descriptors", "threads", "tasks"))
    return (
        f"| {soak.hours:.3g}{rooms} | {soak.seconds / 60:.0f} min | {soak.admitted:,} | {memory} | {others}"
        f" | {'; '.join(soak.problems) or 'nothing'} |"
    )


def _compare(soak: Soak, name: str, form: str) -> str:
    """The middle of the first quarter, and that of the last."""
    first, last = split_quarters([moment[name] for moment in soak.moments])
    return f"{median(first):{form}} → {median(last):{form}}"


def make_fleet(known: Reference, _words: Sequence[str]) -> str:
    """What fleets of some sizes ask of the API server, from what one agent was counted to ask."""
    if "fleet" not in known.groups:
        return NOTHING
    counts = {row.name: row.p50 for row in known.groups["fleet"].rows}
    watches = counts[fleet.WATCHES]
    again = watches * SECONDS_A_DAY / (sum(WATCH_SECONDS) / len(WATCH_SECONDS))
    quiet = counts[fleet.QUIET] * SECONDS_A_DAY / 60
    heads = (
        "Nodes", "Watches held", "Requests when all start", "A day, watches begun anew",
        "A day, anything else where nothing happens", "A second, on average", "For 100 pods on each",
        "For a GPU lost on each",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", f"|{' ---: |' * len(heads)}"]
    for nodes in FLEETS:
        each = (
            counts[fleet.START],
            again,
            quiet,
            (again + quiet) / SECONDS_A_DAY,
            counts[fleet.ADMITTED],
            counts[fleet.LOST],
        )
        numbers = " | ".join(_show(nodes * one) for one in each)
        lines.append(f"| {nodes:,} | {_show(nodes * watches)} | {numbers} |")
    return "\n".join(lines) + "\n"


def make_packing(known: Reference, _words: Sequence[str]) -> str:
    """By list and policy what is given away and whom it costs, each in the middle of its seeds."""
    if "packing" not in known.groups:
        return NOTHING
    found = {row.name: row.p50 for row in known.groups["packing"].rows}
    lines = [f"| Given away, refused | {' | '.join(LISTS)} |", f"| --- |{' --- |' * len(LISTS)}"]
    for policy in POLICIES:
        cells = (
            ", ".join(f"{found[name_row(title, policy, what)]:.1f}" for what in (GIVEN, REFUSED)) for title in LISTS
        )
        lines.append(f"| {policy} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def make_peers(known: Reference, _words: Sequence[str]) -> str:
    """Every row beside an original, with the ratio and its spread over the turns."""
    if known.peers is None:
        return NOTHING
    lines = [
        "| What | Setting | Ours | Theirs | Ratio | Spread | Goal | Beside |",
        "| --- | --- | ---: | ---: | ---: | --- | --- | --- |",
        *map(_render_peer, known.peers.lines),
    ]
    return "\n".join(lines) + f"\n\nTaken of {_describe(known.peers.taken)}.\n"


def _render_peer(line: Line) -> str:
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    spread = f"{min(line.ratios):.2f} to {max(line.ratios):.2f}" if line.ratios else ""
    theirs = "" if line.theirs is None else _show(line.theirs)
    cells = (
        f"{line.row}, {line.share}",
        line.setting,
        _show(line.ours, line.unit),
        theirs,
        ratio,
        spread,
        render_goal(line),
        line.original,
    )
    return f"| {' | '.join(cells)} |"


MAKERS = {
    "peers": make_peers,
    "fleet": make_fleet,
    "packing": make_packing,
    "rows": make_rows,
    "taken": make_taken,
    "curves": make_curves,
    "chaos": make_chaos,
    "soak": make_soak,
}
