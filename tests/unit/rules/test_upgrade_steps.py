"""The next step of an upgrade, from what is seen."""

import pytest

from nodeagent.model.upgrades import DriverUpgrade, UpgradeEnding, UpgradePhase, UpgradeState
from nodeagent.rules.upgrade_steps import Act, Answer, Limits, Seen, Step, fail, step_upgrade
from tests.support.repairs import NEW, OLD, make_upgrade

DRAIN, PAUSE, UNLOAD, INSTALL, RESTORE = UpgradePhase
COMMAND = Limits(installed_by="command")
BY_POD = Limits(installed_by="container")


def see(module: str = OLD, now: float = 10.0, **words: object) -> Seen:
    return Seen(now_seconds=now, module=module, **words)  # type: ignore[arg-type]  # the words of the model


def step(upgrade: DriverUpgrade, seen: Seen, limits: Limits = COMMAND) -> Step:
    return step_upgrade(upgrade, seen, limits)


def test_an_upgrade_goes_from_phase_to_phase() -> None:
    """Each phase begins when the one before has nothing left to do, and is remembered before its work."""
    upgrade = make_upgrade()
    assert step(upgrade, see(has_pods=True, holders=("team/train",))).why == "pods leave: team/train"
    upgrade = step(upgrade, see(holders=("process 12 (dcgm)",))).upgrade
    assert (upgrade.phase, upgrade.phase_seconds) == (PAUSE, 10.0)
    assert "others let go of the driver: process 12 (dcgm)" in step(upgrade, see(holders=("process 12 (dcgm)",))).why
    upgrade = step(upgrade, see()).upgrade
    assert upgrade.phase is UNLOAD
    assert step(upgrade, see()).act is Act.UNLOAD
    upgrade = step(upgrade, see(module="")).upgrade
    assert upgrade.phase is INSTALL
    assert step(upgrade, see(module="")).act is Act.INSTALL
    upgrade = step(upgrade, see(module=NEW, answer=Answer(act=Act.INSTALL))).upgrade
    assert (upgrade.phase, upgrade.failure) == (RESTORE, "")
    assert step(upgrade, see(module=NEW, waits="the driver answers")).why == "the driver answers"
    upgrade = step(upgrade, see(module=NEW, now=99.0)).upgrade
    assert (upgrade.ending, upgrade.ended_seconds) == (UpgradeEnding.DONE, 99.0)


@pytest.mark.parametrize("phase", [DRAIN, PAUSE])
def test_what_is_given_up_before_the_modules_leave_is_put_back(phase: UpgradePhase) -> None:
    aborted = step(make_upgrade(phase, aborted_by="alice"), see(has_pods=True, holders=("team/train",))).upgrade
    assert aborted.phase is RESTORE
    ended = step(aborted, see()).upgrade
    assert (ended.ending, ended.why_not_done) == (UpgradeEnding.ABORTED, "aborted by alice")


@pytest.mark.parametrize("phase", [DRAIN, PAUSE])
def test_a_driver_that_is_not_loaded_has_no_holders(phase: UpgradePhase) -> None:
    """After a reboot nothing waits for pods that themselves wait for the driver."""
    seen = see(module="", has_pods=True, holders=("team/train",))
    assert step(make_upgrade(phase), seen).upgrade.phase is INSTALL


@pytest.mark.parametrize("phase", [DRAIN, PAUSE, UNLOAD, INSTALL])
def test_a_version_that_is_there_already_is_proven(phase: UpgradePhase) -> None:
    assert step(make_upgrade(phase), see(module=NEW, has_pods=True)).upgrade.phase is RESTORE


@pytest.mark.parametrize("phase", [DRAIN, PAUSE, UNLOAD, INSTALL])
def test_a_held_upgrade_takes_no_step(phase: UpgradePhase) -> None:
    """Not even with nobody left; but a person who aborts is heard."""
    upgrade = make_upgrade(phase)
    for module in (OLD, "") if phase is INSTALL else (OLD,):
        held = step(upgrade, see(module, hold="paused by alice"))
        assert (held.upgrade, held.act, held.why) == (upgrade, None, "paused by alice")
    gone_on = step(make_upgrade(phase, aborted_by="alice"), see(hold="paused by alice"))
    assert gone_on.act is Act.LOAD or gone_on.upgrade.phase is RESTORE


@pytest.mark.parametrize("module", [OLD, ""])
def test_an_upgrade_without_slots_waits_before_its_drain(module: str) -> None:
    """Without a driver too; what is given up, or there already, needs none."""
    upgrade, why = make_upgrade(), "no slot of cluster is free: node-b, seen for 0 min"
    waiting = step(upgrade, see(module, without_slots=why, hold="paused by alice"))
    assert (waiting.upgrade, waiting.why) == (upgrade, why)
    aborted = make_upgrade(aborted_by="alice")
    for going, seen in ((aborted, see(module, without_slots=why)), (upgrade, see(NEW, without_slots=why))):
        assert step(going, seen).upgrade.phase is RESTORE


def test_nobody_is_torn_off_a_gpu_and_a_holder_who_stays_ends_the_upgrade() -> None:
    upgrade = make_upgrade(UNLOAD)
    waiting = step(upgrade, see(holders=("team/train",)))
    assert (waiting.act, waiting.why) == (None, "held by team/train")
    late = step(upgrade, see(holders=("team/train",), now=2000.0)).upgrade
    assert late.failure == "the modules are not out after 1800 s: held by team/train"
    assert step(late, see(holders=("team/train",))).act is Act.LOAD
    assert step(late, see(answer=Answer(act=Act.LOAD))).upgrade.phase is RESTORE
    ended = step(make_upgrade(RESTORE, failure="held"), see()).upgrade
    assert ended.ending is UpgradeEnding.FAILED


def test_modules_that_do_not_leave_are_tried_again_and_named() -> None:
    refused = Answer(act=Act.UNLOAD, problem="the module nvidia is in use")
    again = step(make_upgrade(UNLOAD), see(answer=refused))
    assert (again.act, again.why) == (Act.UNLOAD, "the module nvidia is in use")
    assert "is in use" in step(make_upgrade(UNLOAD), see(answer=refused, now=2000.0)).upgrade.failure


@pytest.mark.parametrize(
    ("module", "problem", "failure"),
    [
        ("", "exit code 1: no such package", "exit code 1: no such package"),
        ("", "", "no module of the driver is loaded after the installation"),
        (OLD, "", f"the installation has left driver {OLD} loaded"),
        (OLD, "exit code 1", "exit code 1"),
    ],
)
def test_an_installation_without_the_version_is_a_failure_and_the_old_driver_comes_back(
    module: str, problem: str, failure: str
) -> None:
    failed = step(make_upgrade(INSTALL), see(module, answer=Answer(act=Act.INSTALL, problem=problem))).upgrade
    assert failed.failure == failure
    assert step(failed, see("", answer=Answer(act=Act.INSTALL, problem=problem))).act is Act.LOAD
    stuck = step(failed, see("", answer=Answer(act=Act.LOAD, problem="no such module")))
    assert (stuck.act, stuck.why) == (Act.LOAD, f"{failure}; no driver is loaded: no such module")
    assert fail(failed, "later") == failed


def test_an_old_module_that_was_loaded_meanwhile_leaves_once_more() -> None:
    """Between a kill and the next agent somebody may have loaded it."""
    assert step(make_upgrade(INSTALL), see()).act is Act.UNLOAD
    assert step(make_upgrade(INSTALL), see(holders=("team/train",))).act is None


def test_a_driver_pod_is_waited_for() -> None:
    """Beyond the time that it has, too: what it brings is taken."""
    upgrade = make_upgrade(INSTALL)
    waiting = step(upgrade, see(""), BY_POD)
    assert (waiting.act, waiting.why) == (None, f"a driver pod brings driver {NEW}")
    late = step(upgrade, see("", now=2000.0), BY_POD).upgrade
    assert late.failure == "no driver pod has loaded a driver within 1800 s"
    waiting = step(late, see(""), BY_POD)
    assert (waiting.act, "a driver pod brings its driver" in waiting.why) == (None, True)
    assert step(late, see(OLD), BY_POD).upgrade.phase is RESTORE
    come = step(late, see(NEW), BY_POD).upgrade
    assert (come.phase, come.failure) == (RESTORE, "")
    aborted = make_upgrade(INSTALL, aborted_by="alice")
    assert step(aborted, see(NEW), BY_POD).upgrade.aborted_by == "alice"


def test_a_driver_pod_that_brings_another_version_is_a_failure() -> None:
    """At once where the old modules were out, and after a while where nobody saw the modules leave."""
    wrong = step(make_upgrade(INSTALL), see(), BY_POD).upgrade
    assert wrong.failure == f"a driver pod has loaded driver {OLD}"
    assert step(wrong, see(), BY_POD).upgrade.phase is RESTORE
    sent = Answer(act=Act.UNLOAD)
    again = step(make_upgrade(UNLOAD), see(answer=sent), BY_POD)
    assert (again.act, again.why) == (
        Act.UNLOAD,
        f"a driver pod keeps driver {OLD} loaded, or has loaded it again",
    )
    late = step(make_upgrade(UNLOAD), see(answer=sent, now=2000.0), BY_POD).upgrade
    assert late.failure == f"the modules are not out after 1800 s: {again.why}"
    assert step(make_upgrade(UNLOAD), see(now=2000.0), BY_POD).act is Act.UNLOAD


def test_the_state_knows_what_is_under_way_and_how_long_it_took() -> None:
    done = make_upgrade(RESTORE, ending=UpgradeEnding.DONE, ended_seconds=240.0)
    failed = make_upgrade(RESTORE, 2, ending=UpgradeEnding.FAILED, ended_seconds=9.0)
    assert UpgradeState(upgrades=(failed, done)).last_seconds == 240.0
    assert UpgradeState(upgrades=(failed,)).last_seconds is None
    assert UpgradeState(upgrades=(make_upgrade(number=3), done)).under_way == make_upgrade(number=3)
