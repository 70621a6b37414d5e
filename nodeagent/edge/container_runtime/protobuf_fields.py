"""Reads the few needed protobuf fields of CRI answers, by number.

Owns the wire format as far as numbers, strings, messages and maps of strings go.
Refuses generated code: the CRI definition has five thousand lines, and the agent asks three questions.
"""

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_VARINT_LIMIT_BYTES = 10


class AnswerMalformed(ValueError):
    """Bytes that are not a protobuf message."""


def parse_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of each field with a length; number fields are passed over."""
    return ((number, content) for number, content in _parse(message) if isinstance(content, bytes))


def parse_numbers(message: bytes) -> dict[int, int]:
    """The value of each number field by number; the last value of a repeated field."""
    return {number: content for number, content in _parse(message) if isinstance(content, int)}


def _parse(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(message):
        tag, at = _read_number(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _read_number(message, at)
            yield tag >> 3, value
            continue
        size, at = _read_number(message, at) if kind == _BYTES else (_FIXED.get(kind, -1), at)
        if size < 0 or at + size > len(message):
            raise AnswerMalformed(f"a field of kind {kind} at byte {at} does not end")
        if kind == _BYTES:
            yield tag >> 3, message[at : at + size]
        at += size


def parse_texts(message: bytes) -> dict[int, str]:
    """The text of each field by number; the last text of a repeated field."""
    return {number: content.decode("utf-8", "replace") for number, content in parse_fields(message)}


def parse_text_map(message: bytes, number: int) -> dict[str, str]:
    """A map of strings, encoded as a repeated message of key and value."""
    entries = (parse_texts(content) for found, content in parse_fields(message) if found == number)
    return {entry.get(1, ""): entry.get(2, "") for entry in entries}


def _read_number(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(_VARINT_LIMIT_BYTES):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << (7 * shift)
        if not byte & 0x80:
            return value, at
    raise AnswerMalformed(f"a number before byte {at} does not end")
