"""Durations as users type them."""

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
