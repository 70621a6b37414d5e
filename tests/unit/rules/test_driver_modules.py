"""The order in which the driver's modules leave, and who keeps them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.model.driver import LoadedModule
from nodeagent.model.nvidia import RELOADED_MODULES
from nodeagent.rules.driver_modules import ReloadPlan, plan_reload
from tests.support.examples import examples


def module(name: str, *holders: str, uses: int = 0) -> LoadedModule:
    return LoadedModule(name=name, references=uses + len(holders), holders=holders)


FULL = (
    module("nvidia", "gdrdrv", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm"),
    module("nvidia_uvm", "nvidia_peermem"),
    module("nvidia_modeset", "nvidia_drm"),
    module("nvidia_drm"),
    module("nvidia_peermem"),
    module("gdrdrv"),
)


def test_the_modules_that_are_loaded_leave_before_those_that_they_need() -> None:
    assert plan_reload(FULL).unload == RELOADED_MODULES
    assert plan_reload(FULL).load == RELOADED_MODULES[::-1]
    assert plan_reload((module("nvidia", "nvidia_uvm"), module("nvidia_uvm"))).load == ("nvidia", "nvidia_uvm")
    assert plan_reload(()) == ReloadPlan()


@pytest.mark.parametrize(
    ("modules", "blocker"),
    [
        ((module("nvidia", "nvidia_fs"),), "the module nvidia is needed by nvidia_fs"),
        (
            (module("nvidia", "nvidia_uvm"), module("nvidia_uvm", uses=2)),
            "the module nvidia_uvm is in use by processes or the kernel, 2 times",
        ),
        ((LoadedModule("nvidia", None),), "the module nvidia is just being loaded or unloaded"),
    ],
)
def test_who_keeps_a_module_is_named_and_nothing_is_unloaded(modules: tuple[LoadedModule, ...], blocker: str) -> None:
    assert plan_reload(modules) == ReloadPlan(blocker=blocker)


@settings(max_examples=examples(50))
@given(st.sets(st.sampled_from(FULL)), st.sampled_from(FULL), st.integers(0, 3))
def test_no_module_leaves_before_its_holders_or_in_use(
    loaded: set[LoadedModule], used: LoadedModule, uses: int
) -> None:
    """Whatever is loaded; a plan with a used module is no plan."""
    names = {one.name for one in loaded}
    state = [
        module(one.name, *names.intersection(one.holders), uses=uses if one.name == used.name else 0) for one in loaded
    ]
    plan = plan_reload(state)
    assert bool(plan.blocker) == (used.name in names and uses > 0)
    for place, name in enumerate(plan.unload):
        (one,) = (each for each in state if each.name == name)
        assert {*one.holders} <= {*plan.unload[:place]}
