"""Where a running agent or simulation is found."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

ADMIN_SOCKET = "admin.sock"


def find_simulation_dir(environ: Mapping[str, str]) -> Path:
    """The directory of this user's simulation: one a user, so that `simulate fault` finds it without being told."""
    base = environ.get("XDG_RUNTIME_DIR") or environ.get("TMPDIR") or tempfile.gettempdir()
    return Path(base) / f"nodeagent-simulation-{os.geteuid()}"


def list_admin_sockets(run_dir: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The agent's own socket first, then this user's simulation's."""
    return (run_dir / ADMIN_SOCKET, find_simulation_dir(environ) / "run" / ADMIN_SOCKET)
