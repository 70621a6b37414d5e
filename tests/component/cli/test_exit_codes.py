"""Every code that a command's help names is had by running it, and no other is."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.cli.commands import ROOT
from nodeagent.cli.doctor import command
from nodeagent.cli.doctor.verdicts import Check, Grade
from nodeagent.cli.frame.command import Command
from nodeagent.cli.frame.exit_codes import ALWAYS, ExitCode
from nodeagent.cli.main import Streams, run_command_line
from nodeagent.cli.node import labels
from nodeagent.components.labeler.render import LabelFacts
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import DriverUnavailable
from nodeagent.model.gpu import Inventory
from nodeagent.model.labels import NodeFacts
from tests.support.gpus import make_gpu
from tests.support.programs.command_line import run_here

TESTS = Path(__file__).parents[2]
DEAD = "driver.nvml_library=/nonexistent/libnvidia-ml.so.1"
IMPOSSIBLE = TESTS / "unit" / "cli" / "data" / "impossible-layout.yaml"
MADE_UP = "gpus.source=simulated:dgx-h100"

HAD: dict[tuple[str, ExitCode], tuple[str, ...]] = {
    ("allocations", ExitCode.UNREACHABLE): (),
    ("mps", ExitCode.UNREACHABLE): (),
    ("devices", ExitCode.UNREACHABLE): (),
    ("devices discover", ExitCode.OK): ("--set", "node.host_root=/nonexistent"),
    ("events", ExitCode.UNREACHABLE): (),
    ("gpu clear", ExitCode.UNREACHABLE): ("0", "--reason", "r"),
    ("gpu forget", ExitCode.UNREACHABLE): ("0",),
    ("gpu doors", ExitCode.UNREACHABLE): (),
    ("gpu set-door", ExitCode.UNREACHABLE): ("0", "none"),
    ("gpu cordon", ExitCode.UNREACHABLE): ("0", "--reason", "r"),
    ("gpu uncordon", ExitCode.UNREACHABLE): ("0",),
    ("claims", ExitCode.UNREACHABLE): (),
    ("claims slices", ExitCode.UNREACHABLE): (),
    ("claims explain", ExitCode.UNREACHABLE): ("ml/train",),
    ("fractions list", ExitCode.UNREACHABLE): (),
    ("fractions explain", ExitCode.UNREACHABLE): ("ml/train",),
    ("fractions set", ExitCode.UNREACHABLE): ("ml/train", "--cores", "50"),
    ("gpu health", ExitCode.UNREACHABLE): (),
    ("gpu prove", ExitCode.NO_DRIVER): ("0", "--set", DEAD),
    ("repairs list", ExitCode.UNREACHABLE): (),
    ("driver plan", ExitCode.UNREACHABLE): (),
    ("driver status", ExitCode.UNREACHABLE): (),
    ("driver pause", ExitCode.UNREACHABLE): (),
    ("driver resume", ExitCode.UNREACHABLE): (),
    ("driver abort", ExitCode.UNREACHABLE): (),
    ("repairs explain", ExitCode.UNREACHABLE): ("1",),
    ("repairs why-not", ExitCode.UNREACHABLE): ("0",),
    ("mig apply", ExitCode.UNREACHABLE): ("all-enabled",),
    ("mig show", ExitCode.NO_DRIVER): ("--set", DEAD),
    ("mig plan", ExitCode.NO_DRIVER): ("all-enabled", "--set", DEAD),
    ("mig plan", ExitCode.UNWELL): ("lab", "--set", MADE_UP, "--layouts", str(IMPOSSIBLE)),
    ("mig assert", ExitCode.NO_DRIVER): ("all-enabled", "--set", DEAD),
    ("mig assert", ExitCode.UNWELL): ("all-enabled", "--set", MADE_UP),
    ("mig export", ExitCode.NO_DRIVER): ("--set", DEAD),
    ("labels", ExitCode.UNREACHABLE): (),
    ("release", ExitCode.UNREACHABLE): (),
    ("reload", ExitCode.UNREACHABLE): (),
    ("resume", ExitCode.UNREACHABLE): (),
    ("simulate fault", ExitCode.UNREACHABLE): (),
    ("status", ExitCode.UNREACHABLE): (),
    ("top", ExitCode.UNREACHABLE): ("--once",),
    ("cdi generate", ExitCode.UNREACHABLE): ("--set", MADE_UP, "--kind", "vendor.example/none"),
    ("cdi generate", ExitCode.NO_DRIVER): ("--set", DEAD),
    ("cdi files", ExitCode.NO_DRIVER): ("--set", DEAD),
    ("cdi info", ExitCode.NO_DRIVER): ("--set", DEAD),
    ("gpu list", ExitCode.NO_DRIVER): ("--set", DEAD),
    ("gpu topology", ExitCode.NO_DRIVER): ("--set", DEAD),
    ("gpu prefer", ExitCode.NO_DRIVER): ("--set", DEAD),
    ("render metrics", ExitCode.NO_DRIVER): ("--set", DEAD),
    ("doctor", ExitCode.CHECK_FAILED): ("--set", DEAD),
    ("runtime detect", ExitCode.UNWELL): ("--set", "node.host_root=/nonexistent"),
    ("runtime plan", ExitCode.UNREACHABLE): ("--set", "node.host_root=/nonexistent"),
    ("runtime configure", ExitCode.UNREACHABLE): ("--set", "node.host_root=/nonexistent"),
    ("gpu list", ExitCode.OK): ("--set", MADE_UP),
    ("gpu xids", ExitCode.OK): (),
    ("render labels", ExitCode.OK): ("--set", MADE_UP),
    ("config check", ExitCode.OK): (),
    ("version", ExitCode.OK): (),
}
"""What to add to a command on a machine with neither agent nor driver so that it ends with the code."""

ELSEWHERE: dict[tuple[str, ExitCode], str] = {
    ("run", ExitCode.NO_DRIVER): "component/app/test_run.py",
    ("run", ExitCode.COMPONENT_FAILED): "component/app/test_simulation.py",
    ("run", ExitCode.STOP_OVERRAN): "component/core/test_shutdown.py",
    ("simulate", ExitCode.COMPONENT_FAILED): "component/app/test_simulation.py",
    ("simulate", ExitCode.STOP_OVERRAN): "component/core/test_shutdown.py",
    ("extender", ExitCode.STOP_OVERRAN): "component/core/test_shutdown.py",
    ("cluster publish", ExitCode.STOP_OVERRAN): "component/core/test_shutdown.py",
    ("cluster status", ExitCode.NOT_READY): "component/cli/test_cluster_status.py",
    ("cluster status", ExitCode.UNREACHABLE): "component/cli/test_cluster_status.py",
    ("status", ExitCode.UNWELL): "component/app/test_simulation.py",
    ("devices", ExitCode.UNWELL): "component/app/test_devices.py",
    ("gpu health", ExitCode.UNWELL): "component/cli/test_gpu_commands.py",
    ("gpu prove", ExitCode.UNWELL): "unit/cli/gpu/test_prove.py",
    ("gpu prove", ExitCode.UNREACHABLE): "unit/cli/gpu/test_prove.py",
    ("gpu validate", ExitCode.UNWELL): "unit/cli/gpu/test_validate.py",
    ("gpu set-door", ExitCode.UNWELL): "unit/cli/gpu/test_allocation_modes.py",
    ("mig apply", ExitCode.UNWELL): "unit/cli/test_mig.py",
    ("mps", ExitCode.UNWELL): "unit/cli/test_mps.py",
    ("labels", ExitCode.UNWELL): "unit/cli/node/test_labels.py",
    ("render labels", ExitCode.UNWELL): "component/cli/test_exit_codes.py",
    ("render labels", ExitCode.NO_DRIVER): "component/cli/test_exit_codes.py",
    ("doctor", ExitCode.UNWELL): "component/cli/test_exit_codes.py",
    ("cdi generate", ExitCode.UNWELL): "unit/cli/node/test_cdi.py",
    ("cdi list", ExitCode.UNWELL): "unit/cli/node/test_cdi.py",
    ("cdi validate", ExitCode.UNWELL): "unit/cli/node/test_cdi.py",
    ("runtime unconfigure", ExitCode.UNWELL): "unit/cli/node/test_runtime.py",
    ("config import", ExitCode.UNWELL): "unit/cli/agent/test_import_config.py",
    ("uninstall", ExitCode.UNWELL): "component/test_uninstall.py",
}
"""Codes that take more than words: where they are had."""


def list_commands(root: Command = ROOT, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Command]]:
    if root.runs:
        yield " ".join(words), root
    for one in root.subcommands:
        yield from list_commands(one, (*words, one.name))


COMMANDS = dict(list_commands())


POSITIONALS = {
    "claims explain": ("ml/train",),
    "fractions explain": ("ml/train",),
    "fractions set": ("ml/train", "--cores", "50"),
    "gpu clear": ("0", "--reason", "r"),
    "gpu forget": ("0",),
    "gpu set-door": ("0", "none"),
    "gpu cordon": ("0", "--reason", "r"),
    "gpu uncordon": ("0",),
    "gpu prove": ("0",),
    "repairs explain": ("1",),
    "repairs why-not": ("0",),
    "config import": ("/nonexistent",),
    "mig plan": ("all-enabled",),
    "mig assert": ("all-enabled",),
}
TAKING_SETTINGS = [name for name, one in COMMANDS.items() if any("--set" in each.names for each in one.arguments)]


pytestmark = pytest.mark.may_block("commands read files in their own short-lived loop")


@pytest.fixture(autouse=True)
def _bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No agent and no simulation is found."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


def nowhere(directory: Path) -> tuple[str, ...]:
    """Settings of an agent that does not run; the port is reserved and nobody's."""
    return ("--set", f"node.run_dir={directory}", "--set", "http.listen=127.0.0.1:1")


@pytest.mark.parametrize(("wanted", "more"), HAD.items(), ids=str)
def test_each_code_is_had(tmp_path: Path, wanted: tuple[str, ExitCode], more: tuple[str, ...]) -> None:
    """By the command whose help names it."""
    name, code = wanted
    settings = nowhere(tmp_path) if name in TAKING_SETTINGS else ()
    had, _, err = run_here(*name.split(), *settings, *more)
    assert had == code, err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_word_that_is_none_is_bad_input(name: str) -> None:
    """Of every command alike."""
    with pytest.raises(SystemExit) as ended:
        run_command_line([*name.split(), "--no-such-flag"], Streams(io.StringIO(), io.StringIO()))
    assert ended.value.code == ExitCode.BAD_INPUT


@pytest.mark.parametrize("name", [name for name in TAKING_SETTINGS if name != "doctor"])
def test_a_setting_that_is_none_is_bad_input(name: str) -> None:
    """Of every command that reads settings, and nothing is started; for the doctor it is the first finding."""
    assert run_here(*name.split(), *POSITIONALS.get(name, ()), "--set", "no.such=1")[0] == ExitCode.BAD_INPUT


def test_every_documented_code_is_had_somewhere() -> None:
    """A code in a help that nothing leads to would be a promise to scripts; a test's name must be one that is there."""
    documented = {(name, code) for name, value in COMMANDS.items() for code in value.exits}
    assert documented <= HAD.keys() | ELSEWHERE.keys()
    assert {known for known in HAD.keys() | ELSEWHERE.keys() if known[1] not in ALWAYS} <= documented
    for file in ELSEWHERE.values():
        assert (TESTS / file).is_file(), file


def test_the_table_of_help_is_the_table_of_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` of each command names just the codes of its value."""
    for name, value in COMMANDS.items():
        with pytest.raises(SystemExit):
            run_here(*name.split(), "--help")
        shown = capsys.readouterr().out.partition("exit codes:\n")[2]
        assert {int(code) for code in re.findall(r"^  (\d+) ", shown, re.MULTILINE)} == set(value.exit_codes), name


def test_render_labels_tells_a_driver_that_fails_from_a_label_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look that fails, and one that finds what no label may say."""

    async def fail(*_: object) -> LabelFacts:
        raise DriverUnavailable("list the GPUs", "no answer")

    async def find(*_: object) -> LabelFacts:
        driver = DriverState(phase=DriverPhase.READY, driver_version="570.172 beta")
        return LabelFacts(facts=NodeFacts(), driver=driver, inventory=Inventory(generation=1, gpus=(make_gpu(0),)))

    monkeypatch.setattr(labels, "observe_node", fail)
    assert run_here("render", "labels")[0] == ExitCode.NO_DRIVER
    monkeypatch.setattr(labels, "observe_node", find)
    code, _, err = run_here("render", "labels")
    assert code == ExitCode.UNWELL
    assert "no legal label" in err


def test_a_doctor_that_only_warns_says_that_something_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The worst check decides."""
    places = (f"node.run_dir={tmp_path}", f"node.state_dir={tmp_path}", "http.listen=127.0.0.1:1")
    own = [word for each in (MADE_UP, *places) for word in ("--set", each)]
    for grade, code in ((Grade.OK, ExitCode.OK), (Grade.WARN, ExitCode.UNWELL), (Grade.FAIL, ExitCode.CHECK_FAILED)):
        checks = (Check("first", Grade.OK, "well"), Check("second", grade, "so"))
        monkeypatch.setattr(command, "run_checks", lambda _facts, checks=checks: checks)
        assert run_here("doctor", *own)[0] == code
