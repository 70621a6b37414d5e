"""Packs a bug report into one file: state, configuration, checks, logs, journal, versions; no secrets.

Each part is read by itself; an unreadable part leaves a file with the reason.
"""

import io
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from nodeagent.cli.answers.client import find_agent
from nodeagent.cli.doctor.facts import Facts
from nodeagent.cli.doctor.verdicts import Check
from nodeagent.cli.main import CommandFailed
from nodeagent.config.explain import render_table
from nodeagent.config.load import Loaded
from nodeagent.config.schema import Settings
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.atomic_file import read_bounded, write_atomically

TOP = "nodeagent-bundle"
PATHS = {
    "state.json": "/api/v1/state",
    "events.json": "/api/v1/events?follow=false",
    "debug.json": "/api/v1/debug",
    "metrics.txt": "/metrics",
    "readyz.txt": "/readyz",
}
LOG_LINES = 5000
COMMAND_SECONDS = 20.0
FILE_BYTES_MAX = 16 * 1024 * 1024

_SECRETS = re.compile(
    rb"""(?ix)
    (?P<before> authorization \s* : \s* (?:bearer|basic) \s+ | \bbearer \s+
      | (?:\\*["'])? [\w.-]* (?:password|passwd|secret|token|api[_-]?key|client[_-]?key|private[_-]?key) [\w.-]*
        (?:\\*["'])? \s* [:=] \s* )
    (?P<quote> (?:\\*["'])? ) (?! null\b | true\b | false\b )
    (?P<secret> (?<=["']) [^"'\n\\]* | [^\s,;"'}\]]+ )
    | (?P<pem> -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY----- .*? -----END\ [A-Z\ ]*PRIVATE\ KEY----- )
    | (?P<token> \beyJ[\w-]{5,}\.[\w-]+\.[\w-]* )
    | (?P<scheme> :// ) (?P<user> [^/\s:@"']+ : [^/\s@"']+ ) (?= @ )
    """,
    re.DOTALL,
)
"""By name, by shape, and in addresses; quotes may be escaped, because reasons quote other texts."""


def redact(content: bytes) -> bytes:
    """The content without secrets, as far as recognised."""
    return _SECRETS.sub(
        lambda match: b"".join(match[name] or b"" for name in ("before", "quote", "scheme")) + b"***", content
    )


def write_bundle(
    target: Path,
    facts: Facts,
    checks: tuple[Check, ...],
    loaded: Loaded | None,
    settings: Settings,
    environ: Mapping[str, str],
) -> None:
    """Write the archive, readable by its owner alone.

    Raises:
        HostError: The archive cannot be written.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in _collect(facts, checks, loaded, settings, environ):
            clean = redact(content)
            entry = tarfile.TarInfo(f"{TOP}/{name}")
            entry.size, entry.mtime, entry.mode = len(clean), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(clean))
    write_atomically(target, buffer.getvalue(), mode=0o600)


def _collect(
    facts: Facts, checks: tuple[Check, ...], loaded: Loaded | None, settings: Settings, environ: Mapping[str, str]
) -> Iterator[tuple[str, bytes]]:
    yield "checks.json", msgspec.json.format(msgspec.json.encode(checks), indent=2)
    yield "facts.json", msgspec.json.format(msgspec.json.encode(facts), indent=2)
    yield "configuration.txt", render_table(loaded).encode() if loaded is not None else b"invalid, see checks.json\n"
    for name, path in PATHS.items():
        yield name, _ask(settings, environ, path)
    journal = settings.node.state_dir
    for file in sorted(journal.glob("*")) if journal.is_dir() else ():
        if file.is_file():
            yield f"state/{file.name}", _read(file)
    yield "log.txt", _run("journalctl", "-u", "nodeagent", "-n", str(LOG_LINES), "--no-pager", "-o", "short-iso")
    yield "kernel-log.txt", _run("dmesg", "--ctime")
    yield "nvidia-smi.txt", _run("nvidia-smi", "-q")


def _ask(settings: Settings, environ: Mapping[str, str], path: str) -> bytes:
    try:
        return find_agent(settings, environ).get(path)
    except CommandFailed as error:
        return f"not had: {error}\n".encode()


def _read(file: Path) -> bytes:
    try:
        return read_bounded(file, limit_bytes=FILE_BYTES_MAX)
    except HostError as error:
        return f"not had: {error}\n".encode()


def _run(program: str, *arguments: str) -> bytes:
    found = shutil.which(program)
    if found is None:
        return f"not had: {program} is not on this node\n".encode()
    try:
        done = subprocess.run(  # noqa: S603 - a fixed list of programs, found on the PATH of whoever calls the doctor
            [found, *arguments], capture_output=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"not had: {error}\n".encode()
    return done.stdout[-FILE_BYTES_MAX:] + done.stderr
