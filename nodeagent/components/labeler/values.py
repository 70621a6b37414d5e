"""Legal label values, made from names of the hardware.

Owns the rules of label values: GFD's own clean-up first, so that known names keep their known values, then the API
server's rules. Refuses to invent: a name without legal characters gives no label.
"""

import re
from typing import Final

VALUE_MAX: Final = 63
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9._ -]")
_ENDS: Final = "-_."
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_PREFIX_MAX: Final = 253


def sanitise(text: str) -> str:
    """A name in GPU feature discovery's spelling: illegal characters vanish, blanks become dashes."""
    return "-".join(part for part in _FOREIGN.sub("", text).split(" ") if part)


def cut(text: str, length: int = VALUE_MAX) -> str:
    """At most so many characters, beginning and ending as the API server demands."""
    return text.strip(_ENDS)[:length].rstrip(_ENDS)


def plan_value(name: str, suffix: str = "") -> str:
    """A hardware name as a label's value; the suffix survives however long the name is, and without a name is nothing.

    The suffix must be made of legal characters and end in a letter or digit.
    """
    base = cut(sanitise(name), VALUE_MAX - len(suffix))
    return base + suffix if base else ""


def is_legal(key: str, value: str) -> bool:
    """Whether the API server accepts a label."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _PREFIX_MAX or not _PREFIX.fullmatch(prefix)):
        return False
    return _NAME.fullmatch(name) is not None and (not value or _NAME.fullmatch(value) is not None)
