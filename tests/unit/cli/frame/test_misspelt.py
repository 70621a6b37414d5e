"""What is said of words that nobody knows."""

import pytest

from nodeagent.cli.commands import ROOT
from nodeagent.cli.frame.word_order import explain_order
from tests.support.programs.command_line import run_here


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("statsu", "nodeagent: error: no command 'statsu'; did you mean 'status'?"),
        ("gpu lst", "nodeagent gpu: error: no command 'lst'; did you mean 'list'?"),
        ("gpu list --jsn", "nodeagent gpu list: error: unknown option '--jsn'; did you mean '--json'?"),
        ("gpu list --confg=x", "nodeagent gpu list: error: unknown option '--confg'; did you mean '--config'?"),
        ("gpu list -o jason", "argument --output/-o: unknown 'jason'; did you mean 'json'?"),
        ("gpu list -o 7", "argument --output/-o: unknown '7'; choose one of wide, json, yaml, name"),
        ("version now", "nodeagent version: error: 'now' is one word too many"),
        ("completion bahs", "argument SHELL: unknown 'bahs'; did you mean 'bash'?"),
        ("--vershun", "nodeagent: error: unknown option '--vershun'; did you mean '--version'?"),
        ("gpu", "nodeagent gpu: error: choose a command: list, topology, health"),
        ("qqqq", "nodeagent: error: no command 'qqqq'; choose one of run, simulate, status"),
    ],
)
def test_a_misspelt_word_is_named_with_what_it_most_likely_means(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the words of the command that it was typed after, with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        run_here(*line.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--simulation a status", "'--simulation' before the command; did you mean 'nodeagent status --simulation a'?"),
        ("--simulation=a gpu list --json", "did you mean 'nodeagent gpu list --json --simulation=a'?"),
        ("gpu --simulation a list", "did you mean 'nodeagent gpu list --simulation a'?"),
        ("--json gpu --simulation a list", "did you mean 'nodeagent gpu list --json --simulation a'?"),
        ("simulate --simulation a fault xid", "did you mean 'nodeagent simulate fault xid --simulation a'?"),
        ("simulate --profile t4 fault xid", "'nodeagent simulate fault' does not know '--profile'"),
        ("--simulation a run", "'nodeagent run' does not know '--simulation'"),
        ("--simulation a", "did you mean 'nodeagent COMMAND --simulation a'?"),
        ("gpu --simulation a", "did you mean 'nodeagent gpu COMMAND --simulation a'?"),
        ("--wait gpu set-door 0 none", "did you mean 'nodeagent gpu set-door 0 none --wait'?"),
        ("run --simulation a", "nodeagent run: error: unknown option '--simulation'"),
        ("--simulation a lst", "did you mean 'nodeagent COMMAND --simulation a'?"),
    ],
)
def test_an_option_before_its_command_is_refused_with_the_order_that_works(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is ignored, and no value is taken for a command."""
    with pytest.raises(SystemExit) as ended:
        run_here(*line.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ["simulate --simulation a --profile t4", "simulate --simulation fault", "status --simulation gpu"]
)
def test_an_option_behind_its_command_is_not_taken_for_one_before_another(line: str) -> None:
    """Nor is a value that is called like a command."""
    assert not explain_order(ROOT, line.split())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("gpu prefer --gpus simulated:dgx-h100 --resource nvidia.com/gpus", "did you mean 'nvidia.com/gpu'?"),
        ("gpu list --gpus simulated:dgx-h10", "did you mean 'dgx-h100'?"),
        ("gpu list --set http.listn=x", "did you mean 'listen'?"),
        ("gpu list --gpus simulated:t4 --gpu 9", "no GPU 9; name it by index (0"),
    ],
)
def test_a_misspelt_name_is_too(line: str, said: str) -> None:
    """Resources, profiles, settings and GPUs."""
    code, _, err = run_here(*line.split())
    assert code == 2
    assert said in err


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_here("--version")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("nodeagent ")
