"""Whether two patterns can match the same path: `*`, `?` and `[...]` within one component, as in a shell.

Owns the comparison; pure. The paths of a node that match a pattern are found elsewhere.
"""

from functools import lru_cache
from typing import NamedTuple


class _Letters(NamedTuple):
    """The letters allowed, or with `is_other` the letters refused, at one place."""

    letters: frozenset[str]
    is_other: bool = False


_ANY = _Letters(frozenset(), is_other=True)
_Token = _Letters | None
"""`None` is a star."""


def is_pattern(path: str) -> bool:
    """Whether a path contains wildcards."""
    return any(letter in path for letter in "*?[")


def overlap(left: str, right: str) -> bool:
    """Whether some path matches both patterns."""
    lefts, rights = left.split("/"), right.split("/")
    return len(lefts) == len(rights) and all(
        _overlap_parts(_tokenize(one), _tokenize(other)) for one, other in zip(lefts, rights, strict=True)
    )


@lru_cache(maxsize=1024)
def _tokenize(part: str) -> tuple[_Token, ...]:
    tokens: list[_Token] = []
    at = 0
    while at < len(part):
        letter = part[at]
        end = _find_end(part, at) if letter == "[" else -1
        if letter == "*":
            tokens.append(None)
        elif letter == "?":
            tokens.append(_ANY)
        elif end > 0:
            tokens.append(_read_set(part[at + 1 : end]))
            at = end
        else:
            tokens.append(_Letters(frozenset(letter)))
        at += 1
    return tuple(tokens)


def _find_end(part: str, at: int) -> int:
    """The end of a set of letters; -1 for a literal bracket."""
    first = at + 2 if part[at + 1 : at + 2] == "!" else at + 1
    return part.find("]", first + 1)


def _read_set(inner: str) -> _Letters:
    is_other = inner.startswith("!")
    text = inner[1:] if is_other else inner
    letters: set[str] = set()
    at = 0
    while at < len(text):
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            letters.update(map(chr, range(ord(text[at]), ord(text[at + 2]) + 1)))
            at += 3
        else:
            letters.add(text[at])
            at += 1
    return _Letters(frozenset(letters), is_other)


def _overlap_parts(left: tuple[_Token, ...], right: tuple[_Token, ...]) -> bool:
    """Walk both patterns together; a star may stand for no letter, or take one more letter of the other pattern."""
    reached = {(0, 0)}
    waiting = [(0, 0)]
    while waiting:
        one, other = waiting.pop()
        if one == len(left) and other == len(right):
            return True
        for step in _list_steps(left, right, one, other):
            if step not in reached:
                reached.add(step)
                waiting.append(step)
    return False


def _list_steps(left: tuple[_Token, ...], right: tuple[_Token, ...], one: int, other: int) -> list[tuple[int, int]]:
    here, there = left[one : one + 1], right[other : other + 1]
    steps = []
    if here == (None,):
        steps += [(one + 1, other), *([(one, other + 1)] if there else [])]
    if there == (None,):
        steps += [(one, other + 1), *([(one + 1, other)] if here else [])]
    if here and there and here[0] is not None and there[0] is not None and _share_letter(here[0], there[0]):
        steps.append((one + 1, other + 1))
    return steps


def _share_letter(one: _Letters, other: _Letters) -> bool:
    if one.is_other and other.is_other:
        return True
    if one.is_other:
        return bool(other.letters - one.letters)
    if other.is_other:
        return bool(one.letters - other.letters)
    return bool(one.letters & other.letters)
