"""Tries a configuration out in mounts and a network of its own, and tells what of the machine it has touched.

`python -m tests.integration.runtimes.alone PROGRAM CONFIGURATION`; the caller gives it the mounts and the network.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from nodeagent.components.runtime.trial import render_trial
from nodeagent.edge.container_runtime.trial import try_out
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.runtime import ConfigFile, ConfigTree

PLACES = ("/run", "/opt", "/srv", "/var/lib", "/var/run", "/etc")
SOCKETS = ("containerd/containerd.sock", "containerd/containerd.sock.ttrpc", "containerd/debug.sock", "nri/nri.sock")
PORTS = (10010, 10257)


def main() -> None:
    """Print what a trial answers, and each file or directory that is not as it was before it."""
    program, config = sys.argv[1:]
    for place in PLACES[:4]:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    content = Path(config).read_bytes()
    # What the real daemon would have there, so that a second one that touches it is seen.
    kept = [socket.socket(socket.AF_UNIX) for _ in SOCKETS]
    for each, name in zip(kept, SOCKETS, strict=True):
        path = Path("/run") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        each.bind(str(path))
    taken = [socket.create_server(("127.0.0.1", port)) for port in PORTS]
    before = read_state()
    tree = ConfigTree(files=(ConfigFile(path="/etc/containerd/config.toml", content=content),))
    answer = try_out(program, config, ConfigTree(files=render_trial(tree).files), HostPaths())
    after = read_state()
    touched = sorted(path for path in before | after if before.get(path) != after.get(path))
    json.dump({"ready": answer.is_ready, "said": answer.said + answer.obstacle, "touched": touched}, sys.stdout)
    for each in (*kept, *taken):
        each.close()


def read_state() -> dict[str, tuple[int, int]]:
    """Every file and directory; a directory changes also by what was there in between."""
    found = (Path(place) for top in PLACES for place, _, _ in os.walk(top))
    paths = {str(each) for path in found for each in (path, *path.iterdir())}
    return {path: (status.st_ino, status.st_mtime_ns) for path in paths for status in [os.lstat(path)]}


if __name__ == "__main__":
    main()
