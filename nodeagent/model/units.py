"""Numbers for people; the same format on the page, in the terminal and in messages."""


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
