"""Reading protobuf by field numbers."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.edge.container_runtime.protobuf_fields import (
    AnswerMalformed,
    parse_fields,
    parse_numbers,
    parse_text_map,
    parse_texts,
)
from tests.fakes.cri import encode_field


def test_texts_are_found_by_number() -> None:
    """Numbers and fixed fields in between are passed over; the last of a number counts."""
    message = encode_field(1, "a") + b"\x10\x96\x01" + b"\x19" + bytes(8) + b"\x25" + bytes(4) + encode_field(1, "b")
    assert parse_texts(message) == {1: "b"}


def test_numbers_are_found_by_number() -> None:
    """Texts and fixed fields in between are passed over; the last of a number counts."""
    message = b"\x10\x96\x01" + encode_field(1, "a") + b"\x19" + bytes(8) + b"\x18\x01\x10\x05"
    assert parse_numbers(message) == {2: 5, 3: 1}


def test_maps_are_read() -> None:
    """A map is a repeated message of key and value; either may be missing."""
    message = encode_field(2, encode_field(1, "k") + encode_field(2, "v")) + encode_field(2, encode_field(1, "e"))
    assert parse_text_map(message, 2) == {"k": "v", "e": ""}


@pytest.mark.parametrize(
    "message", [b"\x0a\x05ab", b"\x80", b"\xff" * 11, b"\x0b", b"\x09abc"], ids=["cut", "tag", "long", "kind", "fixed"]
)
def test_nonsense_is_an_error(message: bytes) -> None:
    """Bytes that end in the middle are no answer."""
    with pytest.raises(AnswerMalformed):
        list(parse_fields(message))


@given(st.binary(max_size=200))
def test_no_bytes_do_harm(message: bytes) -> None:
    """Whatever comes, it is fields or one error."""
    with suppress(AnswerMalformed):
        assert sum(len(content) for _, content in parse_fields(message)) <= len(message)
