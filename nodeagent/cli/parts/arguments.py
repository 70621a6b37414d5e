"""Words of the `fractions` commands as users type them."""

import argparse
import re

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_SIZE = re.compile(r"(\d{1,15})\s*(k|m|g|ki|mi|gi|)b?")


def parse_size(text: str) -> int:
    """Bytes in `8GiB`, `512Mi`, `8G` or `1073741824`.

    Raises:
        argparse.ArgumentTypeError: No size, or zero.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no size: write 8GiB, 512Mi or a number of bytes")
    return int(found[1]) * _UNITS[found[2]]


def parse_cores(text: str) -> int:
    """Hundredths of a GPU.

    Raises:
        argparse.ArgumentTypeError: No number from 1 to 99.
    """
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= 99):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no part of a GPU: write hundredths from 1 to 99")
    return int(text)
