"""What the shells offer, and the manual."""

import argparse
import io
import shutil
import subprocess

import pytest

from nodeagent.cli.commands import ROOT
from nodeagent.cli.frame.completion import SHELLS, run, walk
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.frame.manual import render_manual
from nodeagent.cli.main import Streams


def _complete(*words: str) -> list[str]:
    line = " ".join(words)
    script = (
        f"{SHELLS['bash'](ROOT)}\ncompopt() {{ :; }}; COMP_LINE='{line}'; COMP_POINT={len(line)}; _nodeagent\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run([bash, "--norc", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_offers_what_may_come_next() -> None:
    """Commands, subcommands, flags and choices, each only where it fits."""
    assert {"status", "doctor", "completion"} <= set(_complete("nodeagent", ""))
    assert _complete("nodeagent", "st") == ["status"]
    assert _complete("nodeagent", "config", "sh") == ["show"]
    assert _complete("nodeagent", "simulate", "--pr") == ["--profile"]
    assert _complete("nodeagent", "completion", "z") == ["zsh"]
    assert "--config" in _complete("nodeagent", "status", "--")
    assert _complete("nodeagent", "simulate", "--config", "/etc/host") != []


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_every_command_and_flag_is_offered(shell: str) -> None:
    """No shell lacks a command."""
    out = io.StringIO()
    assert run(argparse.Namespace(shell=shell), Streams(out, out)) == ExitCode.OK
    script = out.getvalue()
    for _, command in walk(ROOT):
        assert command.name in script
        for argument in command.arguments:
            long = argument.names[-1] if argument.names[0].startswith("--") else argument.names[0]
            assert (long.lstrip("-") if long.startswith("-") else "") in script


def test_the_manual_has_every_command_and_code() -> None:
    """What `--help` says is in the manual, and nothing in it is taken for a request of the typesetter."""
    manual = render_manual().replace("\\-", "-")
    for words, command in walk(ROOT):
        if command.runs:
            assert f".SS {' '.join(('nodeagent', *words))}\n" in manual
    for code in ExitCode:
        assert f".B {code.value}\n" in manual
    requests = {line.split()[0] for line in manual.splitlines() if line.startswith((".", "'"))}
    assert requests <= {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".I", '.\\"'}
