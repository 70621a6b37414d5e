"""Quantities as the API server writes them."""

import pytest

from nodeagent.rules.claims.quantity import QuantityUnreadable, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("10Gi", 10 << 30), ("512Mi", 512 << 20), ("1.5Ki", 1536), ("1000M", 10**9), ("2e3", 2000),
        ("1E", 10**18), ("100m", 1), ("1500m", 2), (".5k", 500), ("+7", 7), ("1e-2", 1), ("80Gi", 80 << 30),
    ],
)  # fmt: skip
def test_a_quantity_is_so_many_whole_units(text: str, value: int) -> None:
    """Rounded up, as the API server does."""
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "Gi", "10 Gi", "10gb", "-1", "1e99", "9999999999Ei", "0x10", "٣", "1.2.3"])
def test_anything_else_is_refused_with_a_word_on_how_to_write_it(text: str) -> None:
    """Also what is beyond all measure."""
    with pytest.raises(QuantityUnreadable, match=r"quantity: write|out of range: give"):
        parse_quantity(text)
