"""Joins the answer to a scrape from rendered parts: format by `Accept`, compression by `Accept-Encoding`; pure.

The large part is rendered once for each sample and compressed at most once; the small part changes with every scrape.
"""

import struct
import zlib
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from nodeagent.components.exporter.exposition import OPENMETRICS_END, Block, join_openmetrics, join_text

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_GZIP_HEAD: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LEVEL: Final = 1


class RenderedBlocks:
    """Blocks between two samples, in every requested form."""

    def __init__(self, blocks: Sequence[Block] = ()) -> None:
        self._blocks = blocks
        self.text = join_text(blocks)

    @cached_property
    def openmetrics(self) -> bytes:
        """The blocks in OpenMetrics, without the end mark."""
        return join_openmetrics(self._blocks)

    def plain(self, *, openmetrics: bool) -> bytes:
        """The blocks in one of both formats."""
        return self.openmetrics if openmetrics else self.text

    def deflated(self, *, openmetrics: bool) -> tuple[bytes, int]:
        """The compressed blocks, open for more, and the checksum of the input."""
        return self._deflated_openmetrics if openmetrics else self._deflated_text

    @cached_property
    def _deflated_text(self) -> tuple[bytes, int]:
        return _deflate(self.text)

    @cached_property
    def _deflated_openmetrics(self) -> tuple[bytes, int]:
        return _deflate(self.openmetrics)


def join_scrape(standing: RenderedBlocks, fresh: Sequence[Block], *, openmetrics: bool, gzip: bool) -> bytes:
    """The whole body."""
    tail = join_openmetrics(fresh) + OPENMETRICS_END if openmetrics else join_text(fresh)
    if not gzip:
        return standing.plain(openmetrics=openmetrics) + tail
    head, checksum = standing.deflated(openmetrics=openmetrics)
    deflater = _make_deflater()
    rest = deflater.compress(tail) + deflater.flush(zlib.Z_FINISH)
    size = len(standing.plain(openmetrics=openmetrics)) + len(tail)
    # One gzip member of two pieces: the first ends on a byte and refers to nothing, so the second may follow it as is.
    return b"".join((_GZIP_HEAD, head, rest, struct.pack("<II", zlib.crc32(tail, checksum), size & 0xFFFFFFFF)))


def _deflate(body: bytes) -> tuple[bytes, int]:
    deflater = _make_deflater()
    return deflater.compress(body) + deflater.flush(zlib.Z_FULL_FLUSH), zlib.crc32(body)


def _make_deflater() -> "zlib._Compress":
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)


def wants_openmetrics(accept: str) -> bool:
    """Whether OpenMetrics 1.0 is wanted at least as much as text."""
    qualities = {"openmetrics": 0.0, "text": 0.0}
    for media in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in media.split(";"))
        quality = _read_quality(parameters)
        if kind == "application/openmetrics-text" and _is_first_version(parameters):
            qualities["openmetrics"] = max(qualities["openmetrics"], quality)
        elif kind in ("text/plain", "text/*", "*/*"):
            qualities["text"] = max(qualities["text"], quality)
    return qualities["openmetrics"] > 0 and qualities["openmetrics"] >= qualities["text"]


def wants_gzip(accept_encoding: str) -> bool:
    """Whether gzip is allowed."""
    for coding in accept_encoding.split(","):
        name, *parameters = (part.strip().lower() for part in coding.split(";"))
        if name in ("gzip", "*"):
            return _read_quality(parameters) > 0
    return False


def _is_first_version(parameters: Sequence[str]) -> bool:
    versions = [one.removeprefix("version=") for one in parameters if one.startswith("version=")]
    return all(version in ("0.0.1", "1.0.0") for version in versions)


def _read_quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0
