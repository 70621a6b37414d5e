"""Which named configuration a node uses."""

import pytest

from nodeagent.components.deviceplugin.named import choose_configuration

ALL = ("..data", "..2026_01_01", "a100", "default", "h100")


@pytest.mark.parametrize(
    ("entries", "label", "default", "name"),
    [
        (ALL, "a100", "h100", "a100"),
        (ALL, "", "h100", "h100"),
        (ALL, "", None, "default"),
        (("..data", "only"), "", None, "only"),
        (("only",), "only", "other", "only"),
    ],
)
def test_label_then_default_then_the_obvious_one(
    entries: tuple[str, ...], label: str, default: str | None, name: str
) -> None:
    """The first that is given decides, and what a mounted ConfigMap hides is no configuration."""
    chosen = choose_configuration(entries, label, default)
    assert (chosen.name, chosen.problem) == (name, "")


@pytest.mark.parametrize(
    ("entries", "label", "default", "words"),
    [
        (
            ALL,
            "typo",
            "h100",
            "the node label nvidia.com/device-plugin.config asks for 'typo', there are a100, default",
        ),
        (ALL, "..data", None, "asks for '..data'"),
        (ALL, "", "typo", "device_plugin.default_config asks for 'typo'"),
        (("a", "b"), "", None, "chooses among a, b"),
        ((), "", None, "chooses among none"),
    ],
)
def test_a_slip_keeps_the_configuration_in_force(
    entries: tuple[str, ...], label: str, default: str | None, words: str
) -> None:
    """A name that is not there is told with those that are, and changes nothing."""
    chosen = choose_configuration(entries, label, default)
    assert not chosen.name
    assert words in chosen.problem
