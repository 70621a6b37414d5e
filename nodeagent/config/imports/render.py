"""The settings of an import as a configuration file or as values of the chart, with comments on the values left out."""

from typing import Final

import yaml

from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.imports.engine import Imported, nest
from nodeagent.config.load import decide_settings
from nodeagent.config.schema import Settings
from nodeagent.config.tree import EMPTY, Origin
from nodeagent.config.yaml_tree import parse_yaml

_ORDER: Final = tuple(Settings.__struct_fields__)


def nest_settings(imported: Imported) -> dict[str, object]:
    """Sections in the order of the reference page."""
    tree: dict[str, object] = {}
    for key in sorted(imported.settings, key=lambda key: _ORDER.index(key.partition(".")[0])):
        section, _, name = key.partition(".")
        value = imported.settings[key]
        if not name:
            tree[section] = value
            continue
        inner = tree.setdefault(section, {})
        assert isinstance(inner, dict), "a section is imported either whole or by its keys"
        inner[name] = value
    return tree


def render_file(imported: Imported) -> str:
    """The whole file; without any setting a valid file with a comment."""
    lines = [f"# not imported: {note}" for note in imported.notes]
    tree = nest_settings(imported)
    body = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True) if tree else "# all settings keep their defaults\n"
    return "\n".join([*lines, body]) if lines else body


def list_values(imported: Imported) -> dict[str, object]:
    """Values of the chart beside the agent's settings."""
    groups = {"driver.groups": [dict(group) for group in imported.groups]} if imported.groups else {}
    return nest({**imported.values, **groups})


def render_values(imported: Imported) -> str:
    """Values of the chart, with the settings where the chart has the settings."""
    tree = {**list_values(imported), "config": nest_settings(imported)}
    lines = [f"# not imported: {note}" for note in imported.notes]
    return "\n".join([*lines, yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)])


def check_file(text: str) -> Settings:
    """The settings of the file, judged like the agent at its start.

    Raises:
        ConfigurationInvalid: The agent refuses an imported value.
    """
    parsed = parse_yaml(text, lambda line: Origin("file", "the imported configuration", line))
    if parsed.problems:
        raise ConfigurationInvalid(parsed.problems)
    return decide_settings([parsed.node or EMPTY]).settings
