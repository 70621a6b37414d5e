"""A child process for tests: does what the request says, so that every way to fail can be asked for.

Speaks the kernel's frames, like a real worker. Run as `python child.py`.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from nodeagent.core.children.child_setup import announce_step, claim_answers, die_with_parent
from nodeagent.core.children.frames import UNASKED, read_frames, write_frame


def serve() -> None:
    """Answer until the parent closes the pipe."""
    die_with_parent()
    answers = claim_answers()
    sys.stdout.write("child is up\n")
    sys.stdout.flush()

    def close_and_stay(_text: str) -> bytes:
        os.close(answers)
        return hang("")

    def turn_deaf(_text: str) -> bytes:
        os.close(0)
        write_frame(answers, UNASKED, b"deaf")
        return hang("")

    def send_event(text: str) -> bytes:
        write_frame(answers, UNASKED, text.encode())
        return b"sent"

    def send_garbage(_text: str) -> bytes:
        os.write(answers, b"\xff" * 8)
        return b""

    orders = {**ORDERS, "close": close_and_stay, "deafen": turn_deaf, "event": send_event, "garbage": send_garbage}
    for request, payload in read_frames(0):
        word, _, text = payload.decode().partition(" ")
        write_frame(answers, request, orders[word](text) if word in orders else payload)


def hang(_text: str) -> bytes:
    time.sleep(3600)
    return b""


def exit_with(text: str) -> bytes:
    os._exit(int(text))


def die(text: str) -> bytes:
    os.kill(os.getpid(), signal.Signals[text])
    return b""


def be_late(text: str) -> bytes:
    time.sleep(float(text))
    return b"late"


def walk(text: str) -> bytes:
    """Announce so many steps, a moment each, then hang in the last one if told so."""
    steps, pause, last = text.split(" ")
    for number in range(int(steps)):
        announce_step(f"step {number}")
        time.sleep(float(pause))
    return hang("") if last == "hang" else die(last) if last != "end" else b"walked"


def say(text: str) -> bytes:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
    return b"said"


def list_descriptors(_text: str) -> bytes:
    return " ".join(sorted(link.name for link in Path("/proc/self/fd").iterdir())).encode()


ORDERS: dict[str, Callable[[str], bytes]] = {
    "hang": hang,
    "exit": exit_with,
    "die": die,
    "late": be_late,
    "walk": walk,
    "say": say,
    "pid": lambda _text: str(os.getpid()).encode(),
    "descriptors": list_descriptors,
}


if __name__ == "__main__":
    serve()
