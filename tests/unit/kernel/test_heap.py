"""Large blocks of memory leave no holes behind."""

import ctypes
import subprocess
import sys

import pytest

from nodeagent.kernel.heap import keep_large_blocks_apart

LEARN_THEN_COUNT = """
import ctypes
from nodeagent.kernel.heap import LARGE_BYTES, keep_large_blocks_apart

class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")] + [
        ("others", ctypes.c_size_t * 5)
    ]

read_heap = ctypes.CDLL(None).mallinfo2
read_heap.restype = Heap
told = {told}
bytearray(4 * LARGE_BYTES)  # freed at once: what the library would learn from
before = read_heap().hblkhd
kept = bytearray(2 * LARGE_BYTES)
print(told, read_heap().hblkhd - before > LARGE_BYTES)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="another C library than glibc 2.33 or later")
@pytest.mark.parametrize(("told", "expected"), [("keep_large_blocks_apart()", "True True"), ("None", "None False")])
def test_large_blocks_are_by_themselves(told: str, expected: str) -> None:
    """Also after one was freed, from which the library otherwise learns to cut them from its heaps."""
    command = [sys.executable, "-c", LEARN_THEN_COUNT.replace("{told}", told)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == expected


def test_a_library_without_the_switch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the agent says so and runs as before."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())
    assert keep_large_blocks_apart() is False
