"""What the pages say of the benches is what the reference holds, and nothing else on them is touched."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bench import reference
from tests.bench.curves import Curve
from tests.bench.packing.measure import GIVEN, REFUSED, name_row
from tests.bench.packing.policies import POLICIES
from tests.bench.packing.sizes import LISTS
from tests.bench.peers.table import QUIET, Line
from tests.bench.reference import Curves, Group, KeptRow, Reference, Soak, Soaks, Stories, Story, Taken
from tests.bench.rows import Row
from tests.bench.whole import fleet
from tests.generators import bench_pages
from tests.soak.measures import Moment

TAKEN = Taken(commit="abc", version="1", machine="two processors", load="0.5", nice=0)
ROWS = (
    KeptRow(name="start", unit="ms", runs=9, p50=450.0, p90=500.0, p99=1234.0, limit=300.0),
    KeptRow(name="  each", unit="us", runs=1, p50=9.7, p90=9.7, p99=9.7, limit=10.0, limit_is_for=0.99),
)
STORY = Story(1, 200, 60.0, 30, 9, 1.5, 4.0, 0.2, "")
SOAK = Soak(
    hours=24.0,
    speed=40,
    seconds=2160,
    steps=99,
    admitted=12,
    refused=1,
    moments=tuple(
        Moment(hour, 60.0 + hour, pss_mib=50, own_mib=40, descriptors=22, threads=15, tasks=57)._asdict()
        for hour in (0, 1, 2)
    ),
    problems=(),
)
KNOWN = Reference(
    groups={"life": Group(TAKEN, ROWS)},
    curves=Curves(TAKEN, (Curve("list", "MIG devices", (7, 112), (10.0, 2000.0)),)),
    chaos=Stories(TAKEN, (STORY, msgspec.structs.replace(STORY, seed=2, ready_seconds=4.5, violation="a GPU twice"))),
    soak=Soaks(TAKEN, (SOAK,)),
)


def test_only_what_stands_between_the_marks_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of people stay as they are, before, between and after what is made; made again, it stays as well."""
    monkeypatch.setattr(bench_pages, "DOCS", tmp_path)
    monkeypatch.setattr(reference, "read", lambda: KNOWN)
    page = tmp_path / "page.md"
    page.write_text(
        "# Head\n<!-- made: rows life -->\nformer\n<!-- end -->\nmiddle\n<!-- made: chaos -->\n<!-- end -->\nend\n"
    )
    made = bench_pages.render_page("page.md")
    assert made.startswith("# Head\n<!-- made: rows life -->\n| Row |")
    assert "former" not in made
    assert "<!-- end -->\nmiddle\n<!-- made: chaos -->\n| What |" in made
    assert made.endswith("<!-- end -->\nend\n")
    page.write_text(made)
    assert bench_pages.render_page("page.md") == made


def test_a_row_over_its_limit_says_by_how_much() -> None:
    """The percentile that the limit speaks of is the one that counts; a row of one run has no percentiles."""
    lines = bench_pages.make_rows(KNOWN, ["life", "unknown"]).splitlines()[2:]
    assert lines == [
        "| start | 9 | 450 ms | 500 | 1,234 | p50 300 **over, by 50 %** |",
        "| each | 1 | 9.7 µs |  |  | 10 |",
    ]


def test_stories_with_all_doors_open_are_told_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the seeds of the others, and tell besides what came of those who came by the other doors."""
    kept: list[Reference] = []
    monkeypatch.setattr(reference, "read", lambda: KNOWN)
    monkeypatch.setattr(reference, "write", kept.append)
    rooms = [msgspec.structs.replace(STORY, rooms={"claims ready": 4}, admitted=number) for number in (1, 2)]
    lines = tmp_path / "chaos.jsonl"
    lines.write_bytes(b"".join(msgspec.json.encode(story) + b"\n" for story in rooms))
    reference.keep_stories(lines)
    (known,) = kept
    assert known.chaos == KNOWN.chaos
    told = bench_pages.make_chaos(known, ["rooms"])
    assert "| stories, steps | 1, 200 |" in told
    assert "| pods admitted | 2 |" in told
    assert "| claims ready | 4 |" in told
    assert "claims" not in bench_pages.make_chaos(known, [])


def test_stories_and_long_runs_are_added_up() -> None:
    """The worst of each measure is told, and every story in which something did not hold."""
    told = bench_pages.make_chaos(KNOWN, [])
    assert "| stories, steps | 2, 400 |" in told
    assert "| stories in which something did not hold | 1 |" in told
    assert "| ready after the last fault, at the latest | 4.5 s |" in told
    assert (
        "| 24 | 36 min | 12 | 61.0 → 62.0, 40.0 → 40.0 | 22 → 22 | 15 → 15 | 57 → 57 | nothing |"
        in bench_pages.make_soak(KNOWN, [])
    )


def test_curves_and_what_they_were_taken_of() -> None:
    """An axis of two words is one axis; groups that were taken together share a line."""
    assert "| list | 10 | 2,000 |" in bench_pages.make_curves(KNOWN, ["MIG", "devices"])
    assert bench_pages.make_taken(KNOWN, ["life"]) == "`life`: commit abc, two processors, load 0.5, nice 0.\n\n"


def test_a_fleet_asks_as_often_as_it_has_agents() -> None:
    """A watch lasts six minutes on average; what one agent was counted to ask is asked by each."""
    counts = {fleet.START: 5, fleet.QUIET: 0, fleet.WATCHES: 1, fleet.ADMITTED: 0, fleet.LOST: 4}
    rows = tuple(KeptRow(name, "", 40, count, count, count) for name, count in counts.items())
    told = bench_pages.make_fleet(Reference(groups={"fleet": Group(TAKEN, rows)}), []).splitlines()
    assert told[2] == "| 100 | 100 | 500 | 24,000 | 0 | 0.278 | 0 | 400 |"
    assert told[-1] == "| 15,000 | 15,000 | 75,000 | 3,600,000 | 0 | 41.7 | 0 | 60,000 |"


@pytest.mark.parametrize("kind", bench_pages.MAKERS)
def test_what_was_never_taken_is_said_so(kind: str) -> None:
    """A page without a reference promises nothing."""
    assert bench_pages.MAKERS[kind](Reference(), ["life"]) == "Not taken yet.\n"


def test_rows_are_kept_group_by_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that is taken anew leaves the others as they were, and what is written is read as it was."""
    place = tmp_path / "bench" / "reference.json"
    reference.write(KNOWN, place)
    assert reference.read(place) == KNOWN
    known = [KNOWN]
    monkeypatch.setattr(reference, "read", lambda: known[-1])
    monkeypatch.setattr(reference, "write", known.append)
    reference.keep_rows("faults", [Row("told", "ms", [1.0, 2.0, 3.0], limit=5)])
    assert known[-1].groups["life"] == KNOWN.groups["life"]
    (row,) = known[-1].groups["faults"].rows
    assert (row.name, row.runs, row.p50, row.limit) == ("told", 3, 2.0, 5)


def test_policies_of_packing_stand_side_by_side() -> None:
    """What is given away and who is refused, by list; nothing before it was taken."""
    rows = tuple(
        KeptRow(name=name_row(title, policy, what), unit="%", runs=3, p50=value, p90=99.0, p99=99.0)
        for title in LISTS
        for policy in POLICIES
        for what, value in ((GIVEN, 90.04), (REFUSED, 5.0))
    )
    made = bench_pages.make_packing(Reference(groups={"packing": Group(TAKEN, rows)}), ())
    assert made.splitlines()[0] == "| Given away, refused | default | multigpu50 | gpushare40 | gpushare100 |"
    assert made.splitlines()[2] == "| nodeagent |" + " 90.0, 5.0 |" * 4
    assert len(made.splitlines()) == 2 + len(POLICIES)
    assert bench_pages.make_packing(Reference(), ()) == "Not taken yet.\n"


def make_line(group: str, ours: float, **fields: Any) -> Line:
    given: dict[str, Any] = {"theirs": 2.0, "ratios": (ours / 2.0, ours / 1.0), "limit": 1.0} | fields
    return Line(group=group, setting=QUIET, original="theirs", row=group, share="p50", unit="ms", ours=ours, **given)


def test_a_group_beside_an_original_is_kept_until_it_is_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has the newest of each, with the goal and whether it is reached."""
    kept: list[Reference] = [KNOWN]
    monkeypatch.setattr(reference, "read", lambda: kept[-1])
    monkeypatch.setattr(reference, "write", kept.append)
    assert bench_pages.make_peers(KNOWN, ()) == bench_pages.NOTHING
    reference.keep_peers([make_line("pair", 9.0), make_line("served", 7.0, theirs=None, ratios=(), limit=None)])
    reference.keep_peers([make_line("pair", 1.0)])
    rows = bench_pages.make_peers(kept[-1], ()).splitlines()[2:4]
    assert rows == [
        "| served, p50 | quiet | 7 ms |  |  |  | told | theirs |",
        "| pair, p50 | quiet | 1 ms | 2 | 0.75 | 0.50 to 1.00 | <= 1 ok | theirs |",
    ]
