"""Stories of the extender, of one replica and of two; `python -m tests.chaos.extender` tells longer ones."""

from pathlib import Path

import pytest

from tests.chaos.extender.__main__ import tell_story
from tests.chaos.extender.machines import NodeMachine
from tests.chaos.extender.steps import STEPS, a_size_is_set
from tests.chaos.extender.story import Violated


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
async def test_the_extender_counts_the_truth_whatever_is_late_or_lost(tmp_path: Path, replicas: int) -> None:
    """Over two hundred steps nothing is promised twice, and what has room is placed in the end."""
    did = await tell_story(tmp_path, 1, 200, replicas)
    assert did["started"] > 0


@pytest.mark.slow
async def test_a_story_finds_nodes_that_do_not_say_what_is_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that the extender counts old sizes; so many are set that each calm has one."""
    monkeypatch.setattr(NodeMachine, "tell", lambda *_, **__: None)
    with pytest.raises(Violated, match="replica 0 counts"):
        await tell_story(tmp_path, 1, 400, 1, {**STEPS, a_size_is_set: 40})


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("replicas", [1, 2])
async def test_nothing_is_violated_in_a_long_story(tmp_path: Path, replicas: int) -> None:
    """Twenty thousand steps each."""
    await tell_story(tmp_path, 2, 20_000, replicas)
