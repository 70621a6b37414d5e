"""The feature file for node feature discovery.

Owns the form. Leaves out labels that node feature discovery finds by itself.
"""

from collections.abc import Mapping

from nodeagent.components.labeler.presence import FEATURE


def select_features(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels for a feature file or a NodeFeature object."""
    return {key: value for key, value in labels.items() if not key.startswith(FEATURE)}


def render_features(labels: Mapping[str, str]) -> str:
    """One `key=value` line for each label, sorted."""
    return "".join(f"{key}={labels[key]}\n" for key in sorted(labels))


def parse_features(text: str) -> dict[str, str]:
    """The labels of such a file; comments and blank lines are nobody's labels."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key: value if equals else "true" for key, equals, value in pairs}
