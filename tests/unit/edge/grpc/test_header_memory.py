"""Header blocks that are remembered say what HPACK itself would say, whatever came between."""

import pytest
from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.edge.grpc.header_memory import KEPT, RememberingDecoder, RememberingEncoder

Headers = list[tuple[bytes, bytes]]
NAMES = st.sampled_from([b":status", b"content-type", b"grpc-status", b"x"])
VALUES = st.sampled_from([b"200", b"application/grpc", b"0", b"5", b"a longer text"])
LISTS = st.lists(st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=4), max_size=30)


@given(LISTS, st.lists(st.integers(0, 29), max_size=3))
def test_what_is_encoded_is_decoded(lists: list[Headers], resizes: list[int]) -> None:
    """Each side understands, and is understood by, one that remembers nothing."""
    remembering, plain = RememberingEncoder(), Encoder()
    ours, other = RememberingDecoder(65_536), Decoder()
    for number, headers in enumerate(lists):
        if number in resizes:
            remembering.header_table_size = plain.header_table_size = 64 * (number + 1)
        assert [tuple(field) for field in other.decode(remembering.encode(headers), raw=True)] == headers
        assert [tuple(field) for field in ours.decode(plain.encode(headers), raw=True)] == headers


def test_what_is_said_again_is_known() -> None:
    """The second and every later block of the same fields is the very same."""
    encoder, decoder = RememberingEncoder(), RememberingDecoder(65_536)
    headers = [(b":status", b"200"), (b"content-type", b"application/grpc")]
    blocks = [encoder.encode(headers) for _ in range(4)]
    assert blocks[1] is not blocks[0]
    assert blocks[3] is blocks[2]
    found = [decoder.decode(block, raw=True) for block in blocks]
    assert found[3] is found[2]


def test_memory_is_bounded() -> None:
    """However many different things are said, no more than so many are kept."""
    decoder = RememberingDecoder(65_536)
    for first in range(0x82, 0x8F):
        for second in range(0x82, 0x8F):
            decoder.decode(bytes((first, second)), raw=True)
    assert len(decoder._known) == KEPT


def test_too_large_a_list_is_refused() -> None:
    """The limit is the library's own, also for a list of short references."""
    with pytest.raises(HPACKError):
        RememberingDecoder(1000).decode(bytes((0x82,)) * 100, raw=True)
