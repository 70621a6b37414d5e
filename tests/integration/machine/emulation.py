"""Programs of another processor, run by qemu in a user name space of their own: nothing of it is told to the machine.

The kernel looks up who runs foreign programs in the name space of whoever starts one; when the first process in there
ends, the kernel forgets it, ends all others and takes every mount away.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.integration.runtimes.packages import fetch_package

EVERYBODY: Final = "0 0 4294967295\n"
"""Every user and group is itself."""

_MAGIC: Final = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK: Final = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
_SCRIPT: Final = """
set -e
echo made
read -r mapped
exec 2>&1 <&-
mount -t proc proc /proc
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s "$1" >/proc/sys/fs/binfmt_misc/register
echo ready
exec sleep infinity >&- 2>&-
"""


class NotEmulated(Exception):
    """The kernel of this machine does not let a name space say who runs foreign programs."""

    def __init__(self, said: str) -> None:
        super().__init__(f"aarch64 is not emulated: a user name space has no binfmt_misc of its own here ({said})")


@dataclass(frozen=True, slots=True)
class Emulation:
    """A place in which programs for aarch64 run as if they were the machine's own."""

    pid: int
    """Its first process."""

    def enter(self, *command: str) -> tuple[str, ...]:
        """The command line that runs `command` in there."""
        return ("nsenter", f"--target={self.pid}", "--user", "--mount", "--pid", "--", *command)


@contextmanager
def emulated_aarch64() -> Iterator[Emulation]:
    """Such a place, gone afterwards.

    Raises:
        NotEmulated: this machine has none; binfmt_misc belongs to name spaces since Linux 6.7.
    """
    qemu = fetch_package("qemu-user-static") / "usr/bin/qemu-aarch64-static"
    # F: the program is opened now, because no root file system that is entered later has it.
    rule = f":nodeagent-aarch64:M::{_MAGIC}:{_MASK}:{qemu}:F"
    namespaces = ("--user", "--mount", "--propagation=slave", "--pid", "--fork", "--kill-child")
    command = ("unshare", *namespaces, "sh", "-c", _SCRIPT, "sh", rule)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin as told, process.stdout as said:
            if (first := said.readline()) != "made\n":
                raise NotEmulated(first.strip() or "no user name space")
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{process.pid}/{name}").write_text(EVERYBODY)
            told.write("mapped\n")
            told.flush()
            if (second := said.readline()) != "ready\n":
                raise NotEmulated(second.strip())
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield Emulation(int(child))
    finally:
        process.kill()
        process.wait()
