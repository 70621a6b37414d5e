"""Resource slices in the API: the node's devices as seen by schedulers; pure."""

from collections.abc import Sequence

from nodeagent.model.slices import PublishedSlices, SliceContent
from nodeagent.model.values import Value


class SlicesRecord(Value, frozen=True):
    """All resource slices of the node."""

    published: PublishedSlices | None = None
    """The standing of the slices; `None` where no slices are written, or not yet."""
    slices: tuple[SliceContent, ...] = ()
    """As in the API server last, in order."""


def record_slices(published: PublishedSlices | None, contents: Sequence[SliceContent]) -> SlicesRecord:
    """The record of all slices now."""
    return SlicesRecord(published=published, slices=tuple(contents))
