"""Reads the few protobuf fields of two CRI answers, by number.

Owns the wire format as far as strings, messages and maps of strings go.
Refuses generated code for it: the CRI definition has five thousand lines, of which the agent asks two questions.
"""

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_VARINT_LIMIT_BYTES = 10


class AnswerMalformed(ValueError):
    """Bytes that are no protobuf message."""


def parse_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of each field that has a length; numbers are passed over.

    Raises:
        AnswerMalformed: it is no message.
    """
    return ((number, content) for number, content in _parse(message) if isinstance(content, bytes))


def parse_numbers(message: bytes) -> dict[int, int]:
    """The value of each field that is a number; the last one where a field is repeated.

    Raises:
        AnswerMalformed: it is no message.
    """
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
    """The text of each field by its number; the last one where a number is repeated."""
    return {number: content.decode("utf-8", "replace") for number, content in parse_fields(message)}


def parse_text_map(message: bytes, number: int) -> dict[str, str]:
    """A map of strings, which is a repeated message of key and value."""
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
