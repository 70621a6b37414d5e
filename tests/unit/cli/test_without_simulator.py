"""GPUs that cannot come from where the settings say, as where the simulator is not installed: one line, and code 2."""

import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.app.simulator import PACKAGE
from nodeagent.cli.commands.agent import SIMULATE
from nodeagent.cli.frame.completion import list_values
from nodeagent.cli.frame.exit_codes import ExitCode
from tests.support.programs.command_line import run_here

MISSING = "nodeagent: this installation has no simulator: the Python package nodeagent_sim is missing\n"

pytestmark = pytest.mark.may_block("commands read files in their own short-lived loop")


class NotInstalled:
    """A finder that knows of the simulator what Python's own say of a package that is nowhere."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == PACKAGE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def _no_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NotInstalled, *sys.meta_path])


@pytest.fixture
def state(tmp_path: Path) -> tuple[str, ...]:
    """Settings of a place of the test's own."""
    chosen = (f"node.state_dir={tmp_path}/state", f"node.run_dir={tmp_path}/run", "http.listen=127.0.0.1:0")
    return tuple(word for setting in chosen for word in ("--set", setting))


@pytest.mark.usefixtures("_no_simulator")
@pytest.mark.parametrize("words", [("simulate",), ("simulate", "fault")])
def test_commands_of_the_simulator_say_that_it_is_missing(words: tuple[str, ...]) -> None:
    """The name of what to install is in the line."""
    assert run_here(*words) == (ExitCode.BAD_INPUT, "", MISSING)


READING = [("gpu", "list"), ("render", "labels"), ("cdi", "generate"), ("render", "metrics")]


@pytest.mark.usefixtures("_no_simulator")
@pytest.mark.parametrize("words", READING)
def test_simulated_gpus_without_a_simulator_are_refused(words: tuple[str, ...], state: tuple[str, ...]) -> None:
    """By the commands that look for themselves; the agent is below."""
    assert run_here(*words, "--gpus", "simulated:t4", *state) == (ExitCode.BAD_INPUT, "", MISSING)


AGENT = """
import sys
from tests.unit.cli.test_without_simulator import NotInstalled
sys.meta_path.insert(0, NotInstalled)
from nodeagent.__main__ import main
main()
"""


def test_an_agent_on_simulated_gpus_without_a_simulator_is_refused(state: tuple[str, ...]) -> None:
    """It ends at once, as with every setting that cannot be."""
    command = [sys.executable, "-c", AGENT, "run", "--gpus", "simulated:t4", *state]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.BAD_INPUT, "", MISSING)


@pytest.mark.parametrize(("profile", "said"), [("dgx-h1000", "did you mean 'dgx-h100'?"), ("/no.yaml", "/no.yaml")])
@pytest.mark.parametrize("words", READING)
def test_a_profile_that_cannot_be_used_is_refused(
    words: tuple[str, ...], profile: str, said: str, state: tuple[str, ...]
) -> None:
    code, out, err = run_here(*words, "--gpus", f"simulated:{profile}", *state)
    assert (code, out, err.count("\n")) == (ExitCode.BAD_INPUT, "", 1)
    assert said in err


@pytest.mark.usefixtures("_no_simulator")
def test_shells_offer_no_profile_of_a_missing_simulator() -> None:
    """And the script of the shell is made all the same."""
    assert [list_values(each) for each in SIMULATE.arguments if each.offers.startswith(PACKAGE)] == [()]


def test_another_module_that_is_missing_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dependency that is not installed is not taken for the simulator."""
    monkeypatch.delitem(sys.modules, "nodeagent_sim.command", raising=False)
    monkeypatch.setitem(sys.modules, "nodeagent_sim.directory", None)
    with pytest.raises(ModuleNotFoundError, match=r"nodeagent_sim\.directory"):
        run_here("simulate")
