"""`nodeagent audit`, as scripts and people see it."""

import json
import time
from pathlib import Path

import pytest
from msgspec import json as wire

from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.core.log.audit import Change
from nodeagent.edge.host.files.audit_file import NAME
from tests.support.programs.command_line import run_here

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A log of three changes, as the flag that names its directory."""
    now = time.time()
    changes = (
        Change(now - 7200, "service", "systemctl restart containerd", "restart the container runtime"),
        Change(now - 60, "kubernetes", "/api/v1/nodes/a", "apply labels", detail='{"a":"b"}', missed=2),
        Change(now, "gpu", "GPU 0 (GPU-1)", "turn MIG on", "PartitionRefused: in use\x1b[31m"),
    )
    (tmp_path / NAME).write_bytes(b"".join(wire.encode(change) + b"\n" for change in changes))
    return f"--set=node.state_dir={tmp_path}"


def test_changes_are_a_table_and_records(place: str) -> None:
    """The newest is last; what came from elsewhere steers no terminal."""
    code, text, _ = run_here("audit", place, "-o", "wide")
    head, *lines = text.splitlines()
    assert (code, head.split()) == (ExitCode.OK, ["TIME", "KIND", "NAME", "ACTION", "OUTCOME", "DETAIL"])
    assert [line.split()[1] for line in lines] == ["service", "kubernetes", "gpu"]
    assert "before it, 2 changes were not noted" in lines[1]
    assert '{"a":"b"}' in lines[1]
    assert "\x1b" not in text
    records = json.loads(run_here("audit", place, "--json")[1])
    assert [each["kind"] for each in records] == ["service", "kubernetes", "gpu"]


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (["--since", "1h"], ["kubernetes", "gpu"]),
        (["--of", "service"], ["service"]),
        (["--last", "1"], ["gpu"]),
        (["--since", "1h", "--of", "service"], []),
    ],
)
def test_changes_are_chosen(place: str, words: list[str], kinds: list[str]) -> None:
    """By age, by kind, and so many of them."""
    assert [each["kind"] for each in json.loads(run_here("audit", place, "--json", *words)[1])] == kinds


def test_no_change_is_said_and_a_slip_is_one_line(tmp_path: Path) -> None:
    """With the directory that was looked at."""
    place = f"--set=node.state_dir={tmp_path}"
    assert run_here("audit", place) == (ExitCode.OK, f"nothing noted in {tmp_path}\n", "")
    code, _, error = run_here("audit", place, "--last", "0")
    assert (code, error.count("\n")) == (ExitCode.BAD_INPUT, 1)
    (tmp_path / NAME).mkdir()
    code, _, error = run_here("audit", place)
    assert (code, error.count("\n")) == (ExitCode.BAD_INPUT, 1)
    assert str(tmp_path / NAME) in error
