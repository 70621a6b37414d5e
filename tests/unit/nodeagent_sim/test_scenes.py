"""Made-up nodes that come with settings."""

from pathlib import Path

import pytest

from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.config.load import load_settings
from nodeagent_sim.command import SCENES, list_nodes, list_simulation_overrides
from nodeagent_sim.gpus.profile import list_profiles
from tests.support.programs.command_line import run_here

PLACE = Path("/s")
"""Nothing is written there; a socket below it has a short enough path."""


def test_a_scene_is_hardware_with_settings() -> None:
    """Each is named beside the hardware, is on hardware that there is, and its settings are accepted."""
    assert set(list_nodes()) == {*list_profiles(), *SCENES}
    for name, scene in SCENES.items():
        assert scene.profile in list_profiles()
        overrides = list_simulation_overrides(name, PLACE)
        settings = load_settings(environ={}, overrides=overrides).settings
        assert settings.gpus.source == f"simulated:{scene.profile}"
        assert settings.fractions.enabled
        assert settings.fractions.enforcement == "library"
        assert [rule.door for rule in settings.doors.rules] == ["fractions"]


def test_hardware_alone_brings_no_settings() -> None:
    assert "gpus.source=simulated:t4" in list_simulation_overrides("t4", PLACE)
    assert not any(word.startswith("fractions") for word in list_simulation_overrides("t4", PLACE))


@pytest.mark.may_block("commands read files in their own short-lived loop")
def test_a_name_that_no_node_has_is_answered_with_all_that_there_are() -> None:
    code, _, err = run_here("simulate", "--profile", "fraction")
    assert code == ExitCode.BAD_INPUT
    assert f"known are {', '.join(list_nodes())}; did you mean 'fractions'?" in err
