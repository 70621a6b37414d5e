"""Quantities as the API server writes them: `10Gi`, `500M`, `1.5Ki`, `100m`, `1e9`.

Owns reading them. Refuses texts without a number, below zero, or beyond all measure.
"""

import re
from decimal import Decimal
from typing import Final

_FORM: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}))"
    r"(?P<unit>n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,2}|)"
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LARGEST: Final = 1 << 63


class QuantityUnreadable(ValueError):
    """A text that is no quantity, or out of range; the message shows the form."""


def parse_quantity(text: str) -> int:
    """The whole units in a quantity, rounded up as the API server does.

    Raises:
        QuantityUnreadable: the text is no quantity, is negative, or is beyond all measure.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise QuantityUnreadable(f"{text[:40]!r} is no quantity: write a number such as 10Gi, 512Mi or 1000M")
    number, unit = Decimal(found["number"]), found["unit"]
    if unit in _BINARY:
        value = number * (1 << _BINARY[unit])
    elif unit in _DECIMAL:
        value = number.scaleb(_DECIMAL[unit])
    else:
        value = number.scaleb(int(unit[1:]))
    if not 0 <= value < _LARGEST:
        raise QuantityUnreadable(f"{text[:40]!r} is out of range: give a number from 0 to 2^63-1")
    return int(value.to_integral_value(rounding="ROUND_CEILING"))
