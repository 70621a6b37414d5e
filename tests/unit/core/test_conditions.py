from dataclasses import dataclass

import anyio
import pytest

from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.errors import CatalogueBroken, ConditionUnknown
from nodeagent.core.values import ActiveConditions, Severity
from tests.support.virtual_time import START_WALL, FakeClock

pytestmark = pytest.mark.virtual_time


@dataclass(frozen=True)
class Rule:
    code: str
    severity: Severity = "error"
    show_after_seconds: float = 0
    depends_on: tuple[str, ...] = ()
    title: str = "something is wrong"
    remedy: str = "mend it"


CATALOGUE = (
    Rule("driver-missing", show_after_seconds=10),
    Rule("gpu-missing", "warning", depends_on=("driver-missing",)),
    Rule("gpu-idle", "info", depends_on=("gpu-missing",)),
    Rule("disk-full"),
)


@pytest.fixture
def bus(clock: FakeClock) -> Bus:
    return Bus(clock)


@pytest.fixture
def conditions(bus: Bus, clock: FakeClock) -> Conditions:
    return Conditions(bus, clock, CATALOGUE)


def visible(bus: Bus) -> list[str]:
    envelope = bus.latest(ActiveConditions)
    assert envelope is not None
    return [each.code + (f"/{each.key}" if each.key else "") for each in envelope.value.conditions]


async def test_nothing_wrong_is_said_from_the_start(bus: Bus, conditions: Conditions) -> None:
    """A reader finds an empty list rather than no answer."""
    assert visible(bus) == []


async def test_condition_carries_its_definition_detail_and_cause(bus: Bus, conditions: Conditions) -> None:
    """What people need to act is in the one record."""
    cause = bus.publish_fact("enospc", source="journal")
    conditions.set("disk-full", detail="/var is full", cause=cause)
    (condition,) = conditions.active()
    assert (condition.title, condition.remedy, condition.detail) == ("something is wrong", "mend it", "/var is full")
    assert (condition.since, condition.cause) == (START_WALL, cause.seq)


async def test_a_condition_lasts_as_long_as_there_is_something_to_show(bus: Bus, conditions: Conditions) -> None:
    """An empty detail clears it, for its key alone."""
    for key in ("left", "right"):
        conditions.show("disk-full", "no room", key=key)
    conditions.show("disk-full", "", key="left")
    assert [each.key for each in conditions.active()] == ["right"]


async def test_condition_shows_only_after_its_seconds(bus: Bus, conditions: Conditions) -> None:
    """What passes quickly is never seen; what lasts is published at the very second."""
    shown: list[float] = []
    async with anyio.create_task_group() as tasks:
        await tasks.start(conditions.run)
        conditions.set("driver-missing")
        await anyio.sleep(9)
        conditions.clear("driver-missing")
        await anyio.sleep(9)
        assert visible(bus) == []
        conditions.set("driver-missing")
        with bus.watch(ActiveConditions, client="test") as changes:
            changes.take_nowait()
            await anext(changes)
            shown.append(anyio.current_time())
        tasks.cancel_scope.cancel()
    assert shown == [28]


async def test_dependants_hide_while_what_explains_them_is_set(bus: Bus, conditions: Conditions) -> None:
    """A missing driver hides what follows from it, also through others and before it is itself shown."""
    conditions.set("gpu-idle")
    conditions.set("driver-missing")
    conditions.set("gpu-missing", key="0")
    assert visible(bus) == []
    assert len(conditions.all_set()) == 3
    conditions.clear("driver-missing")
    assert visible(bus) == ["gpu-missing/0"]
    conditions.clear("gpu-missing", key="0")
    assert visible(bus) == ["gpu-idle"]


async def test_what_is_wrong_with_one_thing_explains_nothing_of_another(bus: Bus, conditions: Conditions) -> None:
    """A lost GPU hides what follows for that GPU alone; without a key a condition is about everything."""
    conditions.set("gpu-missing", key="0")
    conditions.set("gpu-idle", key="0")
    conditions.set("gpu-idle", key="1")
    assert visible(bus) == ["gpu-missing/0", "gpu-idle/1"]
    conditions.set("gpu-idle")
    conditions.set("gpu-missing")
    assert visible(bus) == ["gpu-missing", "gpu-missing/0"]


async def test_worst_comes_first_then_the_oldest(bus: Bus, conditions: Conditions) -> None:
    """People read the list from the top."""
    conditions.set("gpu-idle")
    for key in ("b", "a"):
        conditions.set("disk-full", key=key)
        await anyio.sleep(1)
    assert visible(bus) == ["disk-full/b", "disk-full/a", "gpu-idle"]


async def test_set_again_keeps_since_and_takes_the_new_detail(bus: Bus, conditions: Conditions) -> None:
    """A condition that lasts is one condition, however often it is reported."""
    conditions.set("disk-full", detail="99 %")
    first = bus.latest(ActiveConditions)
    conditions.set("disk-full", detail="99 %")
    assert bus.latest(ActiveConditions) is first
    await anyio.sleep(5)
    conditions.set("disk-full", detail="100 %")
    (condition,) = conditions.active()
    assert (condition.detail, condition.since) == ("100 %", START_WALL)


async def test_replace_states_the_whole_set_of_keys(bus: Bus, conditions: Conditions) -> None:
    """Keys that are not named any more are cleared, others untouched."""
    conditions.set("disk-full")
    conditions.replace("gpu-missing", {"0": "gone", "1": "gone"})
    conditions.replace("gpu-missing", {"1": "gone", "2": "gone"})
    assert visible(bus) == ["disk-full", "gpu-missing/1", "gpu-missing/2"]
    before = bus.latest(ActiveConditions)
    conditions.replace("gpu-missing", {"1": "gone", "2": "gone"})
    assert bus.latest(ActiveConditions) is before
    conditions.replace("gpu-missing", {})
    assert visible(bus) == ["disk-full"]


async def test_clearing_what_is_not_set_changes_nothing(bus: Bus, conditions: Conditions) -> None:
    """Parts may clear on every good pass."""
    before = bus.latest(ActiveConditions)
    conditions.clear("disk-full")
    assert bus.latest(ActiveConditions) is before


async def test_unknown_code_is_refused(conditions: Conditions) -> None:
    """A code that the catalogue lacks is a mistake in the caller."""
    with pytest.raises(ConditionUnknown, match="nope"):
        conditions.set("nope")
    with pytest.raises(ConditionUnknown, match="nope"):
        conditions.clear("nope")
    with pytest.raises(ConditionUnknown, match="nope"):
        conditions.replace("nope", {})
    assert not conditions.knows("nope")
    assert conditions.knows("disk-full")


@pytest.mark.parametrize(
    ("catalogue", "problem"),
    [
        ((Rule("a"), Rule("a")), "twice"),
        ((Rule("a", depends_on=("b",)),), "not defined"),
        ((Rule("a", depends_on=("b",)), Rule("b", depends_on=("a",))), "circle"),
    ],
)
async def test_broken_catalogue_is_refused(
    bus: Bus, clock: FakeClock, catalogue: tuple[Rule, ...], problem: str
) -> None:
    """A catalogue that contradicts itself fails at start, not at the first incident."""
    with pytest.raises(CatalogueBroken, match=problem):
        Conditions(bus, clock, catalogue)


async def test_shared_ancestor_is_no_circle(bus: Bus, clock: FakeClock) -> None:
    """Two ways to the same explanation are fine."""
    rules = (Rule("root"), Rule("x", depends_on=("root",)), Rule("y", depends_on=("root", "x", "root")))
    conditions = Conditions(bus, clock, rules)
    conditions.set("root")
    conditions.set("y")
    assert visible(bus) == ["root"]


async def test_changes_of_what_people_see_are_logged(
    conditions: Conditions, log_lines: list[dict[str, object]]
) -> None:
    """One line when it appears, one when it is gone."""
    conditions.set("disk-full", detail="/var")
    conditions.set("disk-full", detail="/var is worse")
    conditions.clear("disk-full")
    assert [line["event"] for line in log_lines] == ["condition_raised", "condition_cleared"]
