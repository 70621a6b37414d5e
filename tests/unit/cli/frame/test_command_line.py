"""Words in, exit code and lines out."""

import argparse
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.cli.answers.client import AgentClient, find_agent
from nodeagent.cli.answers.places import find_simulations_dir
from nodeagent.cli.commands import ROOT
from nodeagent.cli.commands.shared import JSON
from nodeagent.cli.frame.command import Command
from nodeagent.cli.frame.completion import walk
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.frame.parser import build_parser
from nodeagent.cli.frame.reference import render_cli_page
from nodeagent.cli.frame.values import parse_duration
from nodeagent.cli.main import CommandFailed
from nodeagent.config.load import load_settings
from nodeagent.config.schema import Settings
from nodeagent_sim.command import list_simulation_overrides
from tests.support.programs.command_line import run_here


def _walk(command: Command) -> list[Command]:
    return [command, *(inner for one in command.subcommands for inner in _walk(one))]


COMMANDS = [command for command in _walk(ROOT) if command.runs]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_says_what_it_is_and_can_be_run(command: Command) -> None:
    """The function a command names exists, and its help has a sentence."""
    module, _, function = command.runs.partition(":")
    assert callable(getattr(__import__(module, fromlist=[function]), function))
    assert command.summary


@pytest.mark.long
@pytest.mark.parametrize("command", _walk(ROOT), ids=lambda command: command.name)
def test_every_example_parses(command: Command) -> None:
    """A help that teaches must not teach what does not work."""
    for example in command.examples:
        words = shlex.split(example.line.split(">")[0])
        assert words[0] == "nodeagent"
        parsed = vars(build_parser(ROOT).parse_args(words[1:]))
        assert parsed.pop("chosen").runs
        assert parsed.pop("parser").prog
        quick = vars(build_parser(ROOT, words[1:]).parse_args(words[1:]))
        assert {name: quick[name] for name in parsed} == parsed


@pytest.mark.parametrize("words", [["nonsense"], ["gpu", "nonsense"], ["simulate", "--nonsense", "fault"], []])
def test_a_quick_parser_refuses_what_the_whole_one_does(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Knowing only of the command that was typed, it says the same about what is wrong with it."""
    said = []
    for known in (None, words):
        with pytest.raises(SystemExit) as ended:
            build_parser(ROOT, known).parse_args(words)
        said.append((ended.value.code, capsys.readouterr().err))
    assert said[0] == said[1]


def test_the_reference_page_has_every_command() -> None:
    """The generated page leaves nothing out."""
    page = render_cli_page()
    for command in COMMANDS:
        assert f"{command.name}`" in page
    for code in ExitCode:
        assert code.meaning in page


def test_flags_of_one_call_do_not_leak_into_the_next() -> None:
    """Two parses in one process are strangers to each other."""
    assert build_parser(ROOT).parse_args(["status", "--set", "a.b=1"]).set == ["a.b=1"]
    assert build_parser(ROOT).parse_args(["status"]).set is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("10m", 600), ("1h30m", 5400), ("250ms", 0.25), ("5", 5), ("1.5 min", 90), ("1d", 86400)],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    """Units may be combined; a bare number is seconds."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "10x", "-5", "1h later", "5s3"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A typing error is named, not guessed at."""
    with pytest.raises(argparse.ArgumentTypeError, match="write 30s"):
        parse_duration(text)


def test_version_is_one_line_or_json() -> None:
    """For people and for bug reports."""
    code, out, _ = run_here("version")
    assert (code, out.count("\n"), out.split()[0]) == (0, 1, "nodeagent")
    code, out, _ = run_here("version", "--json")
    assert json.loads(out)["parts"]["anyio"] != "missing"


def test_config_check_names_every_mistake(tmp_path: Path) -> None:
    """All mistakes at once, as lines or as JSON, with code 2."""
    file = tmp_path / "config.yaml"
    file.write_text("http: {listen: 5}\nnode: {nam: x}\n")
    code, _, err = run_here("config", "check", "--config", str(file))
    assert code == 2
    assert err.count("\n") == 2
    assert f"{file}:1" in err
    assert f"{file}:2" in err
    code, out, _ = run_here("config", "check", "--config", str(file), "--json")
    assert code == 2
    assert len(json.loads(out)["problems"]) == 2


def test_config_check_of_a_good_file(tmp_path: Path) -> None:
    """A valid file is named, and what it asks for in vain is noted."""
    file = tmp_path / "config.yaml"
    file.write_text("log: {level: debug}\n")
    assert run_here("config", "check", "--config", str(file))[:2] == (0, f"valid: {file}\n")
    code, out, _ = run_here("config", "check", "--config", str(file), "--json")
    assert (code, json.loads(out)["valid"]) == (0, True)


def test_config_show_tells_value_and_origin(tmp_path: Path) -> None:
    """Whoever asks why a value is in force sees the line that says so."""
    file = tmp_path / "config.yaml"
    file.write_text("log:\n  level: debug\n")
    code, out, _ = run_here("config", "show", "--config", str(file), "--changed")
    assert code == 0
    assert "log.level" in out
    assert f"{file}:2" in out
    assert "http.listen" not in out
    code, out, _ = run_here("config", "show", "--json")
    assert "http" in out
    file.write_text("")
    assert run_here("config", "show", "--config", str(file), "--changed")[1] == "every setting has its default\n"


def test_config_schema_is_json() -> None:
    """Editors read it."""
    code, out, _ = run_here("config", "schema")
    assert code == 0
    assert json.loads(out)["$schema"].endswith("2020-12/schema")


def test_gpus_flag_is_short_for_a_setting() -> None:
    """Every command that looks at a node can be pointed at made-up GPUs."""
    code, out, _ = run_here("config", "show", "--gpus", "simulated:t4", "--changed")
    assert code == 0
    assert "simulated:t4" in out


def test_profiles_are_listed() -> None:
    """`--profile help` is how people learn what there is."""
    code, out, _ = run_here("simulate", "--profile", "help")
    assert code == 0
    assert "dgx-h100" in out.split()


def test_no_agent_is_one_line_that_says_where_it_was_looked_for(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person learns which addresses were tried and how to start an agent."""
    monkeypatch.setenv("TMPDIR", str(short_dir))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    code, _, err = run_here("status", "--set", f"node.run_dir={short_dir}", "--set", "http.listen=127.0.0.1:1")
    assert code == 4
    assert err.count("\n") == 1
    assert str(short_dir / "admin.sock") in err
    assert "nodeagent simulate" in err
    assert run_here("reload", "--set", f"node.run_dir={short_dir}")[0] == 4


def test_a_stranger_on_the_port_is_told_apart(short_dir: Path) -> None:
    """Whatever answers nonsense is reported as such, not with a trace."""

    class Stranger:
        def close(self) -> None:
            pass

        def request(self, *_: object, **__: object) -> None:
            raise ConnectionResetError(104, "connection reset by peer")

    client = AgentClient(Stranger(), "somewhere")  # type: ignore[arg-type]  # a connection that always fails
    with pytest.raises(CommandFailed, match="somewhere does not answer"):
        client.get("/")
    with pytest.raises(CommandFailed) as failed:
        find_agent(_settings(short_dir), {"TMPDIR": str(short_dir)}, change=True)
    assert failed.value.code is ExitCode.UNREACHABLE


def _settings(run_dir: Path) -> Settings:
    return load_settings(environ={}, overrides=[f"node.run_dir={run_dir}"]).settings


def test_simulations_are_found_where_their_user_left_them() -> None:
    """One directory a user, below the runtime directory where there is one."""
    assert find_simulations_dir({"XDG_RUNTIME_DIR": "/run/user/7", "TMPDIR": "/t"}).parent == Path("/run/user/7")
    assert find_simulations_dir({"TMPDIR": "/t"}) == Path(f"/t/nodeagent-simulations-{os.geteuid()}")


def test_a_simulation_keeps_to_its_directory() -> None:
    """No default of a real node is left where a simulation would write."""
    overrides = list_simulation_overrides("t4", Path("/s"))
    settings = load_settings(environ={}, overrides=overrides).settings
    for path in (
        settings.node.state_dir,
        settings.node.run_dir,
        settings.kubelet.device_plugins_dir,
        settings.kubelet.pod_resources_socket,
        settings.kubelet.pods_api_socket,
    ):
        assert path.is_relative_to("/s")


def test_interrupt_and_closed_pipe_end_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C and `| head` are no errors."""

    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    def break_pipe(*_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr("nodeagent.cli.version.run", interrupt)
    assert run_here("version") == (130, "", "")
    monkeypatch.setattr("nodeagent.cli.version.run", break_pipe)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert run_here("version")[0] == 0


@pytest.mark.parametrize("buffering", ["", "1"])
@pytest.mark.parametrize("words", [("version",), ("metrics", "list", "--json")])
def test_where_an_answer_cannot_be_written_is_said_in_one_line(words: tuple[str, ...], buffering: str) -> None:
    """Short ones are written only at the end; 1 would mean that something on the node is wrong."""
    environ = {**os.environ, "PYTHONUNBUFFERED": buffering}
    command = [sys.executable, "-m", "nodeagent", *words]
    with Path("/dev/full").open("wb") as full:
        told = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environ, text=True, check=False)
    line = "nodeagent: cannot write the answer: No space left on device: make room for it\n"
    assert (told.returncode, told.stderr) == (ExitCode.BAD_INPUT, line)


def test_an_output_that_is_closed_is_wanted_by_nobody() -> None:
    """As started by a program that closed all it had."""
    command = ["sh", "-c", f"exec {shlex.quote(sys.executable)} -m nodeagent metrics list >&-"]
    told = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert (told.returncode, told.stderr) == (ExitCode.OK, "")


@pytest.mark.parametrize("buffering", ["", "1"])
def test_a_reader_that_is_gone_is_no_error(buffering: str) -> None:
    """Not even where all of the answer waits to be written until the end."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    environ = {**os.environ, "PYTHONUNBUFFERED": buffering}
    command = [sys.executable, "-m", "nodeagent", "version"]
    told = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, env=environ, text=True, check=False)
    os.close(write_end)
    assert (told.returncode, told.stderr) == (ExitCode.OK, "")


def test_every_help_teaches_with_an_example() -> None:
    """A command without an example is one that a new user has to guess; each begins with the program's name."""
    commands = [(words, command) for words, command in walk(ROOT) if words]
    assert [words for words, command in commands if not command.examples] == []
    lines = [example.line for _, command in commands for example in command.examples]
    assert all(line.startswith("nodeagent ") for line in lines)
    assert all(example.purpose for _, command in commands for example in command.examples)


def test_flags_are_called_the_same_everywhere() -> None:
    """One name has one meaning: short and long forms go together, and a value is called the same in every command.

    `--output` alone has two: where something is to be written, it is the file, as other tools have it.
    """
    meanings: dict[str, set[tuple[object, ...]]] = {}
    for _, command in walk(ROOT):
        for argument in command.arguments:
            for name in argument.names:
                if name.startswith("--"):
                    meanings.setdefault(name, set()).add((argument.names, argument.action, argument.metavar))
    names = ("--output", "-o")
    assert meanings.pop("--output") == {(names, "store", "FORM"), (names, "store", "FILE")}
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}


def test_every_table_has_json_beside_it() -> None:
    """What people read in columns, scripts get as JSON; what is left out prints text of another form, or acts."""
    without = {" ".join(words) for words, one in walk(ROOT) if one.runs and JSON not in one.arguments}
    assert without == {
        "cdi files",
        "cdi generate",
        "cdi info",
        "cluster publish",
        "completion",
        "fractions set",
        "config schema",
        "driver abort",
        "driver pause",
        "driver resume",
        "extender",
        "gpu clear",
        "gpu cordon",
        "gpu forget",
        "gpu set-door",
        "gpu uncordon",
        "gpu validate",
        "mig apply",
        "release",
        "reload",
        "render metrics",
        "resume",
        "run",
        "runtime configure",
        "runtime plan",
        "runtime unconfigure",
        "simulate",
        "simulate fault",
    }


def test_a_duration_beyond_all_use_is_refused() -> None:
    """Before it is a number that no clock has."""
    for text in ("9" * 400, "10000d"):
        with pytest.raises(argparse.ArgumentTypeError, match="longer than a year"):
            parse_duration(text)
