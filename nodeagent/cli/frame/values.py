"""Values of arguments as users type them: durations, sizes, hundredths of a GPU, error numbers."""

import argparse
import re

LONGEST_SECONDS = 366 * 86400.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|m|h|d)")


def parse_duration(text: str) -> float:
    """Seconds in `30s`, `10m`, `1h30m`, `250ms`; a bare number is seconds.

    Raises:
        argparse.ArgumentTypeError: No duration, or longer than a year.
    """
    compact = text.replace(" ", "").lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", compact):
        return _judge(float(compact), text)
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 30s, 10m or 1h30m")
    return _judge(sum(float(number) * _UNITS[unit] for number, unit in parts), text)


def _judge(seconds: float, text: str) -> float:
    if seconds > LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is longer than a year")
    return seconds


_SIZE_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_SIZE = re.compile(r"(\d{1,15})\s*(k|m|g|ki|mi|gi|)b?")


def parse_size(text: str) -> int:
    """Bytes in `8GiB`, `512Mi`, `8G` or `1073741824`.

    Raises:
        argparse.ArgumentTypeError: No size, or zero.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no size: write 8GiB, 512Mi or a number of bytes")
    return int(found[1]) * _SIZE_UNITS[found[2]]


def parse_cores(text: str) -> int:
    """Hundredths of a GPU.

    Raises:
        argparse.ArgumentTypeError: No number from 1 to 99.
    """
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= 99):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no part of a GPU: write hundredths from 1 to 99")
    return int(text)


def parse_xid(text: str) -> int:
    """A number in `79`, `xid79` or `XID 79`.

    Raises:
        argparse.ArgumentTypeError: No XID.
    """
    digits = text.lower().removeprefix("xid").strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5):
        raise argparse.ArgumentTypeError(f"{text!r} is no XID: write its number, such as 79")
    return int(digits)
