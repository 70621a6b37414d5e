"""Slices as the API tells them: what schedulers see of this node's devices; pure."""

from collections.abc import Sequence

from nodeagent.model.slices import PublishedSlices, SliceContent
from nodeagent.model.values import Value


class SlicesRecord(Value, frozen=True):
    """All of them."""

    published: PublishedSlices | None = None
    """How they stand; `None` where schedulers are told nothing, or have not been told yet."""
    slices: tuple[SliceContent, ...] = ()
    """As the API server had them last, in their order."""


def record_slices(published: PublishedSlices | None, contents: Sequence[SliceContent]) -> SlicesRecord:
    """The record of this moment."""
    return SlicesRecord(published=published, slices=tuple(contents))
