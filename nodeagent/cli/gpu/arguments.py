"""Words of the `gpu` commands as users type them."""

import argparse


def parse_xid(text: str) -> int:
    """A number in `79`, `xid79` or `XID 79`.

    Raises:
        argparse.ArgumentTypeError: No XID.
    """
    digits = text.lower().removeprefix("xid").strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5):
        raise argparse.ArgumentTypeError(f"{text!r} is no XID: write its number, such as 79")
    return int(digits)
