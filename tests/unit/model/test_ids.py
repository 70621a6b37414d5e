"""Addresses on the PCI bus."""

import pytest

from nodeagent.model.ids import parse_pci_address


@pytest.mark.parametrize("text", ["0000:1b:00.0", "00000000:1B:00.0", "1b:00.0", " 0000:1B:00.0 "])
def test_every_spelling_of_a_pci_address_becomes_the_one_of_sysfs(text: str) -> None:
    """NVML, lspci and sysfs spell the same function differently."""
    assert parse_pci_address(text) == "0000:1b:00.0"


@pytest.mark.parametrize("text", ["", "1b:00", "1b.0", "a:b:c:d.0", "zz:00.0"])
def test_what_is_no_pci_address_is_refused(text: str) -> None:
    """A malformed address is an error, never a guess."""
    with pytest.raises(ValueError, match=r"PCI address|invalid literal"):
        parse_pci_address(text)
