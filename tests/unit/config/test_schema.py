"""The declarations themselves: complete, consistent, frozen."""

import re

import pytest

from nodeagent.config.kinds import Number
from nodeagent.config.knobs import Findings, Knob, Place
from nodeagent.config.reference import flow
from nodeagent.config.schema import Settings
from nodeagent.config.sources import inner_section, walk_knobs
from nodeagent.config.tree import Sequence
from tests.unit.config.helpers import tree_of

KNOBS = [(".".join(path), declared) for path, declared in walk_knobs(Settings)]
VALUES = [(path, knob) for path, knob in KNOBS if inner_section(knob.kind) is None and not knob.required]


@pytest.mark.parametrize(("path", "declared"), KNOBS)
def test_setting_says_what_it_is(path: str, declared: Knob) -> None:
    """Every setting is explained in one line of plain words."""
    assert declared.what.strip()
    assert declared.what.isprintable()


@pytest.mark.parametrize(("path", "declared"), VALUES)
def test_default_has_a_reason(path: str, declared: Knob) -> None:
    assert declared.why.strip()


@pytest.mark.parametrize(("path", "declared"), VALUES)
def test_default_is_a_value_that_is_taken(path: str, declared: Knob) -> None:
    """The default reads back from what is written for it."""
    node = tree_of(f"[{flow(declared.kind.plain(declared.default))}]")
    assert isinstance(node, Sequence)
    assert declared.kind.read(node.items[0], Place(Findings())) == declared.default


@pytest.mark.parametrize(("path", "declared"), VALUES)
def test_durations_and_sizes_carry_their_unit(path: str, declared: Knob) -> None:
    """A number with a fraction is a quantity, and its name says of what."""
    if isinstance(declared.kind, Number):
        assert path.endswith(("_seconds", "_per_second", "_ratio"))


def test_names_that_scripts_rely_on_exist() -> None:
    """These keys are promised; renaming one breaks people."""
    promised = """
        gpus.source driver.root driver.nvml_library driver.manage_device_nodes driver.validation_markers
        kubelet.device_plugins_dir kubelet.root_dir kubelet.pod_resources_socket node.name node.state_dir node.run_dir
        http.listen http.web_config_file kubernetes.enabled runtime.manage labels.sinks journal.on_failure cdi.hooks
        metrics.stale_after_seconds sharing.timeSlicing.resources resources.gpus resources.mig
    """
    assert set(promised.split()) <= {path for path, _ in KNOBS}


def test_settings_are_frozen_and_keyword_only() -> None:
    """Nobody changes what is in force, and nobody relies on the order of declaration."""
    settings = Settings()
    with pytest.raises(AttributeError, match="immutable"):
        settings.http = settings.http  # type: ignore[misc]  # the point of the test
    with pytest.raises(TypeError):
        Settings(settings.node)  # type: ignore[call-arg]  # the point of the test


def test_keys_are_plain_names() -> None:
    """Every key is a word that needs no quotes in YAML and no tricks in a variable's name."""
    assert all(re.fullmatch(r"[a-zA-Z_.]+", path) and "__" not in path for path, _ in KNOBS)
