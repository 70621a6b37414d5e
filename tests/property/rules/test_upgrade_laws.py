"""Laws of upgrades, for any world: kills, reboots, holders, failing commands, people who pause and abort."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.model.upgrades import DriverUpgrade, UpgradeEnding
from nodeagent.rules.upgrade_steps import Act, Answer, InstalledBy, Limits, Seen, step_upgrade
from tests.support.examples import examples
from tests.support.repairs import NEW, OLD, make_upgrade

ROUND_SECONDS = 30.0
MOVES = st.sampled_from(
    ["holder", "leave", "kill", "reboot", "load", "pause", "resume", "abort", "command fails", "unload fails", "time"]
)
WAYS = st.sampled_from(["command", "nobody", "container"])


class UpgradedNode:
    """A node whose outside world does what it likes, and an agent that follows the steps."""

    def __init__(self, way: InstalledBy) -> None:
        self.upgrade, self.limits = make_upgrade(), Limits(installed_by=way)
        self.module, self.disk, self.now = OLD, OLD if way != "nobody" else NEW, 0.0
        self.holders, self.hold = set[str](), ""
        self.answer: Answer | None = None
        self.command_fails = self.unload_fails = False
        self.has_unloaded = False

    def see(self) -> Seen:
        return Seen(
            now_seconds=self.now,
            module=self.module,
            holders=tuple(self.holders),
            has_pods=bool(self.holders),
            hold=self.hold,
            answer=self.answer,
        )

    def go(self) -> None:
        """One round of the agent: the step, and the act that comes of it."""
        self.now += ROUND_SECONDS
        if not self.upgrade.is_open:
            return
        if self.limits.installed_by == "container" and not self.command_fails:
            self.module = self.module or NEW
        before = self.upgrade
        step = step_upgrade(before, self.see(), self.limits)
        assert step.upgrade.phase.rank >= before.phase.rank, "a phase was gone back to"
        self.upgrade = step.upgrade
        if step.upgrade.phase is not before.phase:
            self.answer = None
        elif step.act is not None:
            self.answer = Answer(act=step.act, problem=self.do(step.act))
        else:
            assert step.why or step.upgrade != before, "a wait without a reason"

    def do(self, act: Act) -> str:
        match act:
            case Act.UNLOAD:
                assert not self.holders, "a module was unloaded under a holder"
                assert not self.hold
                if self.unload_fails:
                    return "in use"
                self.module, self.has_unloaded = "", True
            case Act.INSTALL:
                assert not self.module
                if self.command_fails:
                    return "exit code 1"
                self.disk = NEW
                self.module = self.disk
            case Act.LOAD:
                self.module = self.module or self.disk
        return ""

    def meet(self, move: str) -> None:
        match move:
            case "holder" if self.module:
                self.holders.add("pod")
            case "leave":
                self.holders.clear()
            case "kill":
                self.answer = None
            case "reboot":
                self.upgrade, self.answer = replace(self.upgrade, boot="two"), None
                self.module = ""
            case "load":
                self.module = self.module or self.disk
            case "pause" | "resume":
                self.hold = "paused" if move == "pause" else ""
            case "abort" if self.upgrade.is_open:
                self.upgrade = DriverUpgrade(**{**_fields(self.upgrade), "aborted_by": "alice"})  # type: ignore[arg-type]
            case "command fails":
                self.command_fails = True
            case "unload fails":
                self.unload_fails = True
            case _:
                pass


def _fields(upgrade: DriverUpgrade) -> dict[str, object]:
    return {name: getattr(upgrade, name) for name in upgrade.__struct_fields__}


@settings(max_examples=examples(100))
@given(way=WAYS, moves=st.lists(MOVES, max_size=25))
def test_every_way_ends_and_nobody_is_torn_off_a_gpu(way: InstalledBy, moves: list[str]) -> None:
    """Once people let it and holders leave, every upgrade ends, and ends as what it came to."""
    node = UpgradedNode(way)
    for move in moves:
        node.meet(move)
        node.go()
    node.hold, node.command_fails, node.unload_fails = "", False, False
    for _ in range(100):
        node.holders.clear()
        node.go()
    assert node.upgrade.ending is not None
    if node.upgrade.ending is UpgradeEnding.DONE:
        assert node.module in {NEW, ""} or "reboot" in moves
    if node.upgrade.ending is UpgradeEnding.ABORTED and not node.has_unloaded and not {"reboot", "load"} & {*moves}:
        assert node.module == OLD, "what was given up has changed the node"
