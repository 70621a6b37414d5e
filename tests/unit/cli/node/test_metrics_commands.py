"""`nodeagent metrics list` and `nodeagent render metrics` as typed."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from nodeagent.components.exporter.catalogue.listing import render_csv
from nodeagent.components.exporter.catalogue.selection import parse_selection, select_defaults
from tests.support.programs.command_line import run_here
from tests.support.texts.exposition import read_openmetrics, read_text


@pytest.fixture
def _logging_as_before() -> Iterator[None]:
    """A command owns its process and sets the log up for it; the tests that follow want theirs."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    structlog.reset_defaults()
    root.setLevel(level)
    root.handlers[:] = handlers


def test_the_list_shows_what_is_shown_and_why_others_are_missing() -> None:
    """Shown, available, missing with the reason: nobody has to read the code."""
    code, out, err = run_here("metrics", "list")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert (code, err) == (0, "")
    assert "shown" in lines["DCGM_FI_DEV_GPU_UTIL"]
    assert "available" in lines["DCGM_FI_DEV_PSTATE"]
    assert "available" in lines["DCGM_FI_DEV_BOARD_LIMIT_VIOLATION"]
    assert "do not run here" in lines["DCGM_FI_DEV_DIAG_MEMORY_RESULT"]


def test_a_field_that_waits_for_its_first_event_is_absent_until_then() -> None:
    """Unless the zero before it is asked for; nobody looks for a series that is not there yet."""
    for settings, standing in (((), "absent"), (("--set", "metrics.xid_zero_before_first=true"), "shown")):
        _, out, _ = run_here("metrics", "list", *settings)
        lines = {line.split()[0]: line.split() for line in out.splitlines()}
        assert lines["DCGM_FI_DEV_XID_ERRORS"][2] == standing


def test_the_list_for_choosing_is_the_default_list_until_lines_are_uncommented() -> None:
    """What `--csv` prints can be used as it is, and with every line."""
    code, out, _ = run_here("metrics", "list", "--csv")
    assert code == 0
    assert parse_selection(out) == select_defaults()
    every = parse_selection(render_csv().replace("# DCGM", "DCGM"))
    assert every.problems == ()
    assert len(every.families) > len(select_defaults().families)


@pytest.mark.parametrize(("flags", "expected"), [((), 0), (("--strict",), 2), (("--json", "--strict"), 2)])
def test_a_bad_line_is_named_and_fatal_only_when_asked(tmp_path: Path, flags: tuple[str, ...], expected: int) -> None:
    """A list can be checked before it goes to a thousand nodes."""
    file = tmp_path / "fields.csv"
    file.write_text("DCGM_FI_DEV_PSTATE, gauge, p\nnonsense\n")
    code, out, err = run_here("metrics", "list", "--set", f"metrics.fields_file={file}", *flags)
    assert code == expected
    assert "line 2: 'nonsense'" in err
    if "--json" in flags:
        found = json.loads(out)
        assert found["problems"][0]["line"] == 2
        assert found["fields"][0] == {"name": "DCGM_FI_DEV_PSTATE", "type": "gauge", "standing": "shown", "text": "p"}


def test_a_list_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    """Exit code 2 and the path."""
    code, out, err = run_here("metrics", "list", "--set", f"metrics.fields_file={tmp_path}/none.csv")
    assert (code, out) == (2, "")
    assert "none.csv" in err


@pytest.mark.long
@pytest.mark.usefixtures("_logging_as_before")
def test_series_are_rendered_without_an_agent() -> None:
    """Both formats, with rates, from the GPUs that the settings name."""
    code, out, _ = run_here("render", "metrics", "--gpus", "simulated:l40s", "--set", "node.name=n1")
    assert code == 0
    assert {dict(labels).get("Hostname") for name, labels in read_text(out) if name.startswith("DCGM")} == {"n1"}
    assert any(name == "DCGM_FI_PROF_PCIE_TX_BYTES" for name, _ in read_text(out))
    # What the settings say of the series that the agent serves is so here too.
    settings = ("--set", "metrics.xid_zero_before_first=true", "--set", "metrics.host_label=none")
    code, out, _ = run_here("render", "metrics", "--gpus", "simulated:l40s", *settings)
    assert {value for (name, _), value in read_text(out).items() if name == "DCGM_FI_DEV_XID_ERRORS"} == {0}
    assert not any("Hostname" in dict(labels) for _, labels in read_text(out))
    code, out, _ = run_here("render", "metrics", "--openmetrics", "--gpus", "simulated:l40s")
    assert code == 0
    assert read_openmetrics(out)
