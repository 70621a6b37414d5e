"""Power cuts: a writer on a real ext4, pictures of its block device, and what a mount of each picture shows.

    unshare --mount python -m tests.faults.journal.power_cut DIRECTORY IMAGES [--careless]

A picture is taken while the writer is stopped between two system calls. It shows what the disk would hold if the power
went at that moment: what was synced and nothing else, for the file system is told not to commit by itself.
`--careless` leaves out the sync of the directory, to see that the pictures would show it.
Needs root and loop devices; prints how many pictures were taken, and what was lost in which, as JSON.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

from nodeagent.components.allocations.journal_format import encode_records
from nodeagent.components.allocations.ledger import Opened
from nodeagent.components.allocations.roles.grants import Granted
from nodeagent.edge.host.files import atomic_file, journal_file
from nodeagent.edge.host.files.journal_disk import JOURNAL_NAME
from nodeagent.edge.host.files.journal_file import JournalFile
from tests.faults.journal.scenario import NODE, read_ledger
from tests.support.allocations import make_entry

IMAGE_BYTES = 16 << 20
RECORDS_PER_JOURNAL = 3
PAUSE_SECONDS = 0.002


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def write_for_ever(directory: Path, notes: Path, *, careless: bool) -> None:
    """Begin and append, as the keeper does; each number is noted outside the disk once it is durable."""
    if careless:
        for module in (atomic_file, journal_file):
            module.sync_directory = lambda directory: None  # type: ignore[attr-defined]  # a defect on purpose
    journal = JournalFile(directory, JOURNAL_NAME)
    journal.prepare()
    acknowledged = os.open(notes, os.O_WRONLY | os.O_APPEND)
    seal = 0
    number = 0
    while True:
        number += 1
        if number % RECORDS_PER_JOURNAL == 1:
            content, seal = encode_records([Opened(machine=NODE.machine, boot=NODE.boot, next_number=number + 1)], 0)
            journal.begin(content)
        else:
            content, seal = encode_records([Granted(entry=make_entry(number, "a"))], seal)
            journal.append(content)
        os.write(acknowledged, b"%d\n" % number)
        # pods do not come one upon the other: without a pause every picture shows the middle of the next write
        time.sleep(PAUSE_SECONDS)


def wait_stopped(pid: int) -> None:
    """Return when no thread of the process is in a system call any more."""
    while any(
        (task / "stat").read_text().rpartition(")")[2].split()[0] not in {"T", "t"}
        for task in Path(f"/proc/{pid}/task").iterdir()
    ):
        time.sleep(0.0005)


def take_picture(writer: int, image: Path, notes: Path, copy: Path) -> int:
    """What the disk holds now, and the last number that was acknowledged by then."""
    os.kill(writer, signal.SIGSTOP)
    try:
        wait_stopped(writer)
        shutil.copyfile(image, copy)
        numbers = notes.read_bytes().split()
        return int(numbers[-1]) if numbers else 0
    finally:
        os.kill(writer, signal.SIGCONT)


def find_loss(copy: Path, mounted: Path, acknowledged: int) -> str:
    """Mount the picture, as after the power is back, and compare."""
    run("mount", "-o", "loop", str(copy), str(mounted))
    try:
        ledger, damage = read_ledger(mounted / "state")
    finally:
        run("umount", str(mounted))
    if ledger.next_number - 1 < acknowledged:
        return f"acknowledged {acknowledged}, found {ledger.next_number - 1}; {damage}"
    return ""


def main() -> None:
    """Pictures at random moments of one writer's life."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("images", type=int)
    parser.add_argument("--careless", action="store_true")
    arguments = parser.parse_args()
    root: Path = arguments.directory
    image, disk, mounted, notes, copy = (root / name for name in ("image", "disk", "mounted", "notes", "copy"))
    for place in (disk, mounted):
        place.mkdir()
    notes.touch()
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    run("mkfs.ext4", "-q", "-F", str(image))
    run("mount", "-o", "loop,commit=600", str(image), str(disk))
    writer = os.fork()
    if writer == 0:
        try:
            write_for_ever(disk / "state", notes, careless=arguments.careless)
        finally:
            os._exit(1)
    chance = random.Random(1)
    losses: list[str] = []
    try:
        while not notes.read_bytes():
            time.sleep(0.001)
        for _ in range(arguments.images):
            time.sleep(chance.uniform(0.0, 0.02))
            acknowledged = take_picture(writer, image, notes, copy)
            losses += filter(None, [find_loss(copy, mounted, acknowledged)])
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        run("umount", str(disk))
    print(json.dumps({"images": arguments.images, "lost": losses}))  # noqa: T201  it is what the caller reads


if __name__ == "__main__":
    main()
