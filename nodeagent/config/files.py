"""Reading configuration files: the list, the order, and the problems before YAML.

The only module of the package with access to the file system.
A file is checked before reading: a pipe would block for ever, a device or a huge file would eat the memory.
"""

import os
import stat
from pathlib import Path
from typing import Final

from msgspec import Struct

from nodeagent.config.errors import Problem
from nodeagent.config.tree import Origin

DEFAULT_CONFIG_FILE: Final = Path("/etc/nodeagent/config.yaml")
DROP_IN_DIR: Final = "conf.d"
LARGEST_BYTES: Final = 1024 * 1024


class ConfigText(Struct, frozen=True):
    """The path and text of a file."""

    path: Path
    text: str


class FilesRead(Struct, frozen=True):
    """All files in order of precedence, weakest first."""

    texts: tuple[ConfigText, ...]
    problems: tuple[Problem, ...]
    notices: tuple[str, ...]


def read_config_files(config_file: Path | None, *, skip_forbidden: bool = False) -> FilesRead:
    """The main file, then `conf.d/*.yaml`; the default main file may be missing, a named file may not.

    `skip_forbidden`: Default files unreadable for this user are noted and passed over.
    """
    main = config_file or DEFAULT_CONFIG_FILE
    forbidden: list[Path] = []
    may_skip = skip_forbidden and config_file is None
    try:
        drop_ins, problems, notices = _list_drop_ins(main.parent / DROP_IN_DIR)
    except OSError as error:
        drop_ins, problems, notices = [], [_cannot_read(main.parent / DROP_IN_DIR, error)], []
        if may_skip and isinstance(error, PermissionError):
            forbidden, problems = [main.parent / DROP_IN_DIR], []
    texts: list[ConfigText] = []
    for path in (main, *drop_ins):
        try:
            texts.append(ConfigText(path, _read_text(path)))
        except FileNotFoundError:
            if config_file is not None or path is not main:
                problems.append(Problem(Origin("file", str(path)), "", "file not found; create it or name another"))
        except _NotUsable as error:
            problems.append(Problem(Origin("file", str(path), error.line), "", str(error)))
        except OSError as error:
            if may_skip and isinstance(error, PermissionError):
                forbidden.append(path)
            else:
                problems.append(_cannot_read(path, error))
    notices += [f"{path} is not for you to read: passed over" for path in forbidden]
    return FilesRead(tuple(texts), tuple(problems), tuple(notices))


def list_files(directory: Path) -> tuple[tuple[str, ...], tuple[Problem, ...]]:
    """The names of the files in a directory, links to files included."""
    try:
        return tuple(sorted(path.name for path in directory.iterdir() if not path.is_dir())), ()
    except OSError as error:
        return (), (_cannot_read(directory, error),)


def read_config_file(path: Path) -> tuple[tuple[ConfigText, ...], tuple[Problem, ...]]:
    """A file that must exist."""
    try:
        return (ConfigText(path, _read_text(path)),), ()
    except _NotUsable as error:
        return (), (Problem(Origin("file", str(path), error.line), "", str(error)),)
    except OSError as error:
        return (), (_cannot_read(path, error),)


class _NotUsable(Exception):  # never leaves this module
    """The path leads to no configuration text."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def _list_drop_ins(directory: Path) -> tuple[list[Path], list[Problem], list[str]]:
    """The drop-in files, sorted by name; ignored look-alikes get a notice."""
    try:
        entries = sorted(directory.iterdir())
    except FileNotFoundError:
        return [], [], []
    visible = [path for path in entries if not path.name.startswith(".")]
    notices = [f"{path}: not read; only names that end in .yaml are" for path in visible if path.suffix == ".yml"]
    return [path for path in visible if path.suffix == ".yaml"], [], notices


def _read_text(path: Path) -> str:
    _judge_type(path.stat())
    with path.open("rb") as file:
        content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise _NotUsable(f"larger than {LARGEST_BYTES} bytes; no configuration is")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _NotUsable(f"byte {content[error.start]:#04x} is not UTF-8; save the file as UTF-8", line) from error


def _judge_type(found: os.stat_result) -> None:
    """Refuse all but regular files, and /dev/null for an empty configuration."""
    if stat.S_ISDIR(found.st_mode):
        raise _NotUsable("a directory where a file is expected; name a file in it")
    if not stat.S_ISREG(found.st_mode) and found.st_rdev != os.makedev(1, 3):
        raise _NotUsable("not a regular file; name one")


def _cannot_read(path: Path, error: OSError) -> Problem:
    """The system's reason with the remedy."""
    reason = (error.strerror or str(error)).lower()
    remedy = "give the agent's user read permission" if isinstance(error, PermissionError) else "check the path"
    return Problem(Origin("file", str(path)), "", f"cannot be read: {reason}; {remedy}")
