"""The process has one heap, and large blocks leave no holes in it."""

import ctypes
import subprocess
import sys

import pytest

from nodeagent.core.heap import keep_heap_small

LEARN_THEN_LOOK = """
import ctypes, threading
from pathlib import Path
from nodeagent.core.heap import LARGE_BYTES, keep_heap_small

def is_in_heap(block):
    place = ctypes.addressof(ctypes.c_char.from_buffer(block))
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("[heap]")]
    ends = [[int(end, 16) for end in line[0].split("-")] for line in lines]
    return any(first <= place < last for first, last in ends)

told = {told}
bytearray(4 * LARGE_BYTES)  # freed at once: what the library would learn from
blocks = {"large": bytearray(2 * LARGE_BYTES)}
thread = threading.Thread(target=lambda: blocks.update(threads=bytearray(4096)))
thread.start()
thread.join()
print(told, *(is_in_heap(blocks[name]) for name in ("large", "threads")))
"""


READ_AND_FORGET = """
from pathlib import Path
from nodeagent.core.heap import keep_heap_small

def find_end():
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("[heap]")]
    return [line[0].split("-")[1] for line in lines]

keep_heap_small()
block = bytearray(256 * 1024)
before = find_end()
del block
print(find_end() == before)
"""


def test_what_a_read_of_a_socket_needed_is_kept_for_the_next() -> None:
    """The heap does not end elsewhere after each of them."""
    done = subprocess.run([sys.executable, "-c", READ_AND_FORGET], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize(("told", "expected"), [("keep_heap_small()", "True False True"), ("None", "None True False")])
def test_threads_share_the_heap_and_large_blocks_do_not_lie_in_it(told: str, expected: str) -> None:
    """Also after a large block was freed, from which the library otherwise learns to cut them from its heaps."""
    command = [sys.executable, "-c", LEARN_THEN_LOOK.replace("{told}", told)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == expected


def test_a_library_without_the_switches_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the agent says so and runs as before."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    assert keep_heap_small() is False
