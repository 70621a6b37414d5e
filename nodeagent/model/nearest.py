"""What a misspelt name most likely means; every part that refuses a name says it in the same words."""

from collections.abc import Iterable


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one most likely means; nothing where none is near."""
    return next(iter(list_near(name, known, 1)), None)


def list_near(name: str, known: Iterable[str], count: int) -> list[str]:
    """The known names that a misspelt one may mean, the likeliest first."""
    from difflib import get_close_matches  # noqa: PLC0415  # 4 ms that only a mistake pays for

    folded = {_fold(one): one for one in known}
    return [folded[near] for near in get_close_matches(_fold(name), folded, n=count, cutoff=0.6)]


def suggest(name: str, known: Iterable[str]) -> str:
    """The question to put behind a refusal: `; did you mean 'xid'?`, or nothing where no known name is near."""
    near = find_nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def _fold(name: str) -> str:
    """What is left of a name without the differences that people overlook."""
    return name.lower().replace("_", "").replace("-", "")
