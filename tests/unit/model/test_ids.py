"""Names of things."""

import pytest

from nodeagent.model.ids import parse_device_id, parse_pci_address, render_device_id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU-1", ("GPU-1", None)),
        ("GPU-1::0", ("GPU-1", 0)),
        ("GPU-1::15", ("GPU-1", 15)),
        ("GPU-1::x", ("GPU-1::x", None)),
        ("GPU-1::", ("GPU-1::", None)),
        ("GPU-1::²", ("GPU-1::²", None)),
        ("", ("", None)),
    ],
)
def test_device_id_is_split_only_at_a_replica_number(text: str, expected: tuple[str, int | None]) -> None:
    """Only `::` and a plain number make a replica; everything else is part of the name."""
    assert parse_device_id(text) == expected


def test_device_id_round_trips() -> None:
    """Rendering and parsing are inverse."""
    assert parse_device_id(render_device_id("MIG-2", 3)) == ("MIG-2", 3)
    assert parse_device_id(render_device_id("MIG-2")) == ("MIG-2", None)


@pytest.mark.parametrize("text", ["0000:1b:00.0", "00000000:1B:00.0", "1b:00.0", " 0000:1B:00.0 "])
def test_every_spelling_of_a_pci_address_becomes_the_one_of_sysfs(text: str) -> None:
    """NVML, lspci and sysfs spell the same function differently."""
    assert parse_pci_address(text) == "0000:1b:00.0"


@pytest.mark.parametrize("text", ["", "1b:00", "1b.0", "a:b:c:d.0", "zz:00.0"])
def test_what_is_no_pci_address_is_refused(text: str) -> None:
    """A malformed address is an error, never a guess."""
    with pytest.raises(ValueError, match=r"PCI address|invalid literal"):
        parse_pci_address(text)
