"""Numbers and misspelt names in words for people, the same on the page, in the terminal and in messages."""

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


def render_bytes(count: int) -> str:
    """Binary units with at most a single decimal: `79.6 GiB`, `512 MiB`, `0 B`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f}".removesuffix(".0") + f" {unit}"
        size /= 1024
    return f"{size:.1f}".removesuffix(".0") + " TiB"


def render_age(seconds: float) -> str:
    """The two largest units: `3 s`, `4 min 10 s`, `2 h 5 min`, `9 d 3 h`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _join(whole, 60, "min", 1, "s")
    if whole < 86400:
        return _join(whole, 3600, "h", 60, "min")
    return _join(whole, 86400, "d", 3600, "h")


def render_took(seconds: float) -> str:
    """A short duration: `56 ms`, `1.2 s`, `4 min 10 s`."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    return f"{seconds:.1f} s" if seconds < 60 else render_age(seconds)


def _join(whole: int, size: int, unit: str, small_size: int, small_unit: str) -> str:
    large, rest = divmod(whole, size)
    small = rest // small_size
    return f"{large} {unit} {small} {small_unit}" if small else f"{large} {unit}"
