"""Further names of the agent's programs on a host: links, never made over a program of somebody else."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodeagent.edge.host.errors import FileNotWritten, ProgramNameTaken
from nodeagent.edge.host.files.atomic_file import remove_leftovers

_DIRECTORY_MODE: Final = 0o755


def link_program(name: Path, place: Path, program: Path, key: str) -> bool:
    """Make `name` of the host, seen by this process at `place`, a link to the program; False when it is one.

    Raises:
        ProgramNameTaken: Another program has the name; `key` is the setting to leave empty.
        FileNotWritten: The link cannot be made.
    """
    if place.is_symlink() and place.readlink() == program:
        return False
    if os.path.lexists(place):
        raise ProgramNameTaken(name, program, key)
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
    try:
        place.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        remove_leftovers(place)
        temporary.symlink_to(program)
        temporary.rename(place)
    except OSError as error:
        with suppress(OSError):  # the first failure is the failure to report
            temporary.unlink(missing_ok=True)
        raise FileNotWritten(name, "make the link", error, replaced=False) from error
    return True
