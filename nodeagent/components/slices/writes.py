"""The writes from the present slices to the planned slices, in order.

Owns the names of the slices and the generation of the pool. Consumers use a pool only when all slices of the newest
generation are there: a change of a single slice is one write, any larger change is a new generation of all slices. A
slice without a difference is not written.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from nodeagent.model.slices import SliceContent, SlicePool, StoredSlice
from nodeagent.model.values import Value

_NAME_MAX: Final = 253
_DIGEST: Final = 8

WriteKind: TypeAlias = Literal["delete", "update", "create"]


class SliceWrite(Value, frozen=True):
    """A single request to the API server."""

    kind: WriteKind
    name: str
    content: SliceContent = SliceContent()
    generation: int = 0
    slice_count: int = 0
    stored: StoredSlice | None = None
    """The present slice, unless the slice is created."""


def name_slice(pool: SlicePool, index: int) -> str:
    """A name that sorts by index, the same after a restart, so that no slice is made twice."""
    name = f"{index:04x}-{pool.driver}-{pool.node}"
    if len(name) <= _NAME_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: _NAME_MAX - _DIGEST - 1].rstrip('.-')}-{digest}"


def plan_writes(
    pool: SlicePool,
    contents: Sequence[SliceContent],
    stored: Mapping[str, StoredSlice],
    kept: Mapping[str, tuple[SliceContent, SliceContent | None]],
    *,
    newest: int = 0,
) -> tuple[SliceWrite, ...]:
    """The writes, in order; empty without a difference.

    Args:
        pool: The pool of the slices.
        contents: The planned contents.
        stored: The API server's slices of this pool, by any writer.
        kept: By name, the last written content and the server's answer to it; a repetition is no difference.
        newest: The highest generation ever used, of removed slices too.
    """
    wanted = {name_slice(pool, index): content for index, content in enumerate(contents)}
    generation = max((one.generation for one in stored.values()), default=0)
    missing = [name for name in wanted if name not in stored]
    stale = [one for name, one in sorted(stored.items()) if name not in wanted]
    count = len(contents)
    changed = [
        name
        for name, content in wanted.items()
        if name in stored and not _is_as_wanted(stored[name], content, kept.get(name), (generation, count))
    ]
    if not (missing or stale or changed):
        return ()
    if missing or stale or len(changed) > 1:
        generation = max(generation, newest) + 1
        changed = [name for name in wanted if name in stored]
    return (
        *(SliceWrite(kind="delete", name=one.name, stored=one) for one in stale),
        *(_write("update", name, wanted[name], (generation, count), stored[name]) for name in changed),
        *(_write("create", name, wanted[name], (generation, count)) for name in missing),
    )


def _is_as_wanted(
    stored: StoredSlice,
    content: SliceContent,
    kept: tuple[SliceContent, SliceContent | None] | None,
    numbers: tuple[int, int],
) -> bool:
    has_content = stored.content == content or (kept is not None and kept == (content, stored.content))
    return has_content and stored.is_owned and (stored.generation, stored.slice_count) == numbers


def _write(
    kind: WriteKind, name: str, content: SliceContent, numbers: tuple[int, int], stored: StoredSlice | None = None
) -> SliceWrite:
    return SliceWrite(
        kind=kind, name=name, content=content, generation=numbers[0], slice_count=numbers[1], stored=stored
    )
