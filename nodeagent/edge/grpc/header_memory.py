"""HPACK that remembers whole header blocks: a caller says the same for each call, and so do we.

A block of nothing but references to the table changes no table, so it means the same until another block does.
That is a sixth of what two calls take (docs/adr/0009-grpclib-in-bounds.md).
"""

from collections.abc import Iterable
from typing import Any, Final

from hpack import Decoder, Encoder

KEPT: Final = 64
"""Blocks; a caller that says more than these is heard all the same."""
_REFERENCES: Final = bytes(range(0x81, 0xFF))


def _is_reference_only(block: bytes) -> bool:
    return not block.translate(None, _REFERENCES)


class RememberingDecoder(Decoder):
    """For what comes."""

    def __init__(self, max_header_list_size: int) -> None:
        super().__init__(max_header_list_size)
        self._known: dict[bytes, list[Any]] = {}

    def decode(self, data: bytes, raw: bool = False) -> Iterable[Any]:  # noqa: FBT001, FBT002  the library's own signature
        """The fields of a block; always raw, which is all that h2 asks for."""
        known = self._known.get(data)
        if known is None:
            known = list(super().decode(data, raw))
            if not _is_reference_only(data):
                self._known.clear()
            elif len(self._known) < KEPT:
                self._known[bytes(data)] = known
        return known


class RememberingEncoder(Encoder):
    """For what goes."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[Any, ...], bytes] = {}

    def encode(self, headers: Iterable[Any], huffman: bool = True) -> bytes:  # noqa: FBT001, FBT002  likewise
        """The block for these fields."""
        key = tuple(headers)
        known = self._known.get(key)
        if known is None or self.header_table.resized:
            known = super().encode(key, huffman)
            if not _is_reference_only(known):
                self._known.clear()
            elif len(self._known) < KEPT:
                self._known[key] = known
        return known
