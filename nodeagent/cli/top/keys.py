"""The pressed keys, from the bytes that a terminal sends; pure.

Owns the names of keys: a printable character is itself, every other key has a word.
"""

ESCAPE = b"\x1b"
SEQUENCES = {
    b"[A": "up",
    b"[B": "down",
    b"[C": "right",
    b"[D": "left",
    b"OA": "up",
    b"OB": "down",
    b"OC": "right",
    b"OD": "left",
    b"[5~": "page up",
    b"[6~": "page down",
    b"[H": "home",
    b"[F": "end",
    b"OH": "home",
    b"OF": "end",
    b"[1~": "home",
    b"[4~": "end",
}
CONTROLS = {b"\r": "enter", b"\n": "enter", b"\t": "tab", b"\x7f": "backspace", b"\x08": "backspace", b"\x0c": "redraw"}


def parse_keys(pending: bytes, *, is_all: bool) -> tuple[list[str], bytes]:
    """The keys in the bytes, and the possible beginning of another key; `is_all`: nothing follows."""
    keys = []
    while pending:
        key, size = _parse_one(pending, is_all=is_all)
        if not size:
            break
        pending = pending[size:]
        if key:
            keys.append(key)
    return keys, pending


def _parse_one(pending: bytes, *, is_all: bool) -> tuple[str, int]:
    """A key, empty for meaningless bytes, and the number of its bytes; 0 while more bytes must come."""
    if pending.startswith(ESCAPE):
        return _parse_sequence(pending, is_all=is_all)
    if pending[:1] in CONTROLS:
        return CONTROLS[pending[:1]], 1
    size = _measure_character(pending[0])
    if len(pending) < size and not is_all:
        return "", 0
    character = pending[:size].decode("utf-8", "replace")
    return (character if character.isprintable() and "\ufffd" not in character else ""), size


def _parse_sequence(pending: bytes, *, is_all: bool) -> tuple[str, int]:
    if len(pending) == 1:
        return ("escape", 1) if is_all else ("", 0)
    if pending[1:2] not in {b"[", b"O"}:
        return "escape", 1
    for end in range(2, len(pending)):
        # A sequence ends with its first character that is neither a digit nor a sign between digits.
        if 0x40 <= pending[end] <= 0x7E:
            return SEQUENCES.get(pending[1 : end + 1], ""), end + 1
    return ("", len(pending)) if is_all else ("", 0)


def _measure_character(first: int) -> int:
    """The length of a UTF-8 character with this first byte; 1 for a byte that begins no character."""
    if first >= 0xF8:
        return 1
    if first >= 0xF0:
        return 4
    if first >= 0xE0:
        return 3
    return 2 if first >= 0xC0 else 1
