"""The likeliest meaning of a misspelt name, so that all refusals of a name word the suggestion alike."""

from collections.abc import Iterable
from difflib import get_close_matches


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name nearest to a misspelt name; `None` where no name is near."""
    return next(iter(list_near(name, known, 1)), None)


def list_near(name: str, known: Iterable[str], count: int) -> list[str]:
    """Known names near a misspelt name, the likeliest first."""
    folded = {_fold(one): one for one in known}
    return [folded[near] for near in get_close_matches(_fold(name), folded, n=count, cutoff=0.6)]


def suggest(name: str, known: Iterable[str]) -> str:
    """The question behind a refusal: `; did you mean 'xid'?`, or empty where no known name is near."""
    near = find_nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def _fold(name: str) -> str:
    """The name without differences that people overlook."""
    return name.lower().replace("_", "").replace("-", "")
