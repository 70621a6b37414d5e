"""The colours of the page: every text on every ground it stands on can be read, in both themes."""

import re

import pytest

from nodeagent.components.web.assets import STYLE

TEXT_RATIO, GRAPHIC_RATIO = 4.5, 3.0
"""What WCAG 2 asks of text, and of what is drawn."""
GROUNDS = ("bg", "card", "soft")
TEXTS = ("text", "dim", "link", "ok", "warn", "bad")
TINTED = {"okbg": ("text", "ok"), "warnbg": ("text", "warn"), "badbg": ("text", "bad", "dim", "link")}


def read_palette(theme: str) -> dict[str, str]:
    light, dark = re.findall(r":root\{([^}]*)\}", STYLE)[:2]
    found = dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", light))
    return found | (dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", dark)) if theme == "dark" else {})


def measure_light(colour: str) -> float:
    """Relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((measure_light(one), measure_light(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_the_measure_is_right() -> None:
    """Black on white is 21, and a colour on itself 1."""
    assert round(contrast("#000000", "#ffffff"), 1) == 21.0
    assert contrast("#123456", "#123456") == 1.0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_can_be_read_on_its_ground(theme: str) -> None:
    """The signs beside words too, which are the same colours."""
    palette = read_palette(theme)
    pairs = [(text, ground) for ground in GROUNDS for text in TEXTS]
    pairs += [(text, ground) for ground, texts in TINTED.items() for text in texts]
    weak = {pair: round(contrast(palette[pair[0]], palette[pair[1]]), 2) for pair in pairs}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < TEXT_RATIO} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_line_that_means_something_can_be_seen(theme: str) -> None:
    """Curves and links of the drawing stand out from what is behind them."""
    palette = read_palette(theme)
    assert [ground for ground in GROUNDS if contrast(palette["trace"], palette[ground]) < GRAPHIC_RATIO] == []
