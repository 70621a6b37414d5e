"""Completion in the shells themselves: typed into an interactive bash, zsh and fish, as a person does."""

import contextlib
import os
import pty
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.cli.commands import ROOT
from nodeagent.cli.frame.completion import SHELLS

PATIENCE_SECONDS = 30.0
CASES = [
    ("nodeagent stat", "nodeagent status "),
    ("nodeagent config sho", "nodeagent config show "),
    ("nodeagent gpu hol", "nodeagent gpu holders "),
    ("nodeagent simulate --prof", "nodeagent simulate --profile "),
    ("nodeagent simulate --profile gb2", "nodeagent simulate --profile gb200-nvl72-node "),
    ("nodeagent simulate fault row", "nodeagent simulate fault row-remap "),
    ("nodeagent completion z", "nodeagent completion zsh "),
    ("nodeagent status --gpus simulated:mi", "nodeagent status --gpus simulated:mixed "),
    ("nodeagent run --set inventory.resc", "nodeagent run --set inventory.rescan_seconds="),
    ("nodeagent run --config FOLDER/conf", "nodeagent run --config FOLDER/config.yaml "),
    ("nodeagent cdi validate FOLDER/conf", "nodeagent cdi validate FOLDER/config.yaml "),
    ("nodeagent status --js", "nodeagent status --json "),
]
"""What is typed before the tabulator, and what stands there after it."""

ZSH = """
PS1='ready> '; unsetopt zle_bracketed_paste; zstyle ':completion:*' menu no
autoload -Uz compinit; compinit -u -D
source {script}
tell() {{ print -rn -- "$BUFFER" > {told}.part; mv {told}.part {told}; BUFFER=''; zle redisplay }}
zle -N tell; bindkey '^X' tell; bindkey '^I' complete-word
"""
BASH = """
PS1='ready> '; bind 'set enable-bracketed-paste off'; bind 'set bell-style none'
source {script}
tell() {{ printf %s "$READLINE_LINE" > {told}.part; mv {told}.part {told}; READLINE_LINE=''; }}
bind -x '"\\C-x": tell'
"""


class Terminal:
    """One interactive shell at the other end of a pseudo terminal."""

    def __init__(self, master: int, told: Path) -> None:
        self._master, self._told = master, told
        self.shown = b""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def take_in(self, seconds: float) -> None:
        """What the shell shows; without a reader it would wait."""
        if select.select([self._master], [], [], seconds)[0]:
            self.shown += os.read(self._master, 65536)

    def wait_shown(self, words: bytes) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while words not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self.take_in(0.1)

    def complete(self, line: str) -> str:
        self._told.unlink(missing_ok=True)
        self.type(f"{line}\t\x18")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._told.exists():
            assert time.monotonic() < deadline, self.shown
            self.take_in(0.05)
        return self._told.read_text()


@contextlib.contextmanager
def running(command: list[str], rc: str, folder: Path, script: str) -> Iterator[Terminal]:
    """A shell with our completion and nothing of the machine's own."""
    told, file = folder / "told", folder / "completion"
    file.write_text(script)
    (folder / "config.yaml").touch()
    master, slave = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb", "ZDOTDIR": str(folder)}
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=folder, start_new_session=True
    )
    os.close(slave)
    try:
        terminal = Terminal(master, told)
        (folder / "setup").write_text(rc.format(script=file, told=told) + "echo set''up\n")
        terminal.type(f". {folder / 'setup'}\n")
        terminal.wait_shown(b"setup\r\n")
        yield terminal
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
        os.close(master)


def need(shell: str) -> str:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} on this machine; .ci/run installs it")
    return program


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "rc"),
    [(["bash", "--norc", "--noprofile", "-i"], BASH), (["zsh", "-f", "-i"], ZSH)],
    ids=["bash", "zsh"],
)
def test_the_tabulator_completes(tmp_path: Path, command: list[str], rc: str) -> None:
    """Commands, subcommands, flags, values of flags, settings, and files where a file is wanted."""
    shell = command[0]
    with running([need(shell), *command[1:]], rc, tmp_path, SHELLS[shell](ROOT)) as terminal:
        found = [(line, terminal.complete(line.replace("FOLDER", str(tmp_path)))) for line, _ in CASES]
    wanted = [(line, after.replace("FOLDER", str(tmp_path))) for line, after in CASES]
    assert [(line, after.rstrip()) for line, after in found] == [(line, after.rstrip()) for line, after in wanted]
    assert all(after.endswith("=") for line, after in found if "--set" in line)


def ask_fish(line: str, home: Path) -> list[str]:
    """What fish's own engine offers for this line; it says each candidate with its description."""
    fish = need("fish")
    script = home / "nodeagent.fish"
    script.write_text(SHELLS["fish"](ROOT))
    done = subprocess.run(
        [fish, "--no-config", "-c", f"source {script}; complete -C '{line}'"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        check=True,
    )
    return [one.partition("\t")[0] for one in done.stdout.splitlines()]


def test_fish_offers_the_same(tmp_path: Path) -> None:
    """Fish's own engine is asked, with the same lines."""
    (tmp_path / "config.yaml").touch()
    for line, after in CASES:
        offered = ask_fish(line.replace("FOLDER", str(tmp_path)), tmp_path)
        assert after.replace("FOLDER", str(tmp_path)).split()[-1] in offered, (line, offered)


def test_nothing_is_offered_twice_or_for_nothing(tmp_path: Path) -> None:
    """Below `gpu list` no other command is offered, and where any text may stand nothing is."""
    for line, unwanted in (("nodeagent gpu list ", "topology"), ("nodeagent gpu list ", "status")):
        assert unwanted not in ask_fish(line, tmp_path)
