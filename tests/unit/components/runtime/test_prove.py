"""What follows from a daemon that was started on the side."""

import pytest

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.look import Look
from nodeagent.components.runtime.plan import RuntimePlan, Wanted
from nodeagent.components.runtime.prove import PlanDisproved, Proof, prove_plan
from nodeagent.model.runtime import ConfigFile, ConfigTree, FileChange, RuntimeFlavour, RuntimeKind, TrialAnswer
from tests.component.runtime.fakes import FakeRuntime

MAIN = "/etc/containerd/config.toml"
READY = TrialAnswer(is_ready=True, handlers=("", "runc", "nvidia"))
GONE = TrialAnswer(said="it has no CRI")


class Trials(FakeRuntime):
    """Answers trial by trial."""

    def __init__(self, *answers: TrialAnswer) -> None:
        super().__init__()
        self.answers = list(answers)

    async def try_out(self, executable: str, main: str, tree: ConfigTree) -> TrialAnswer:
        assert (executable, main) == ("/usr/bin/containerd", MAIN)
        return self.answers.pop(0)


def make_look(text: str = "version = 2\n", kind: RuntimeKind = RuntimeKind.CONTAINERD) -> Look:
    runtime = ChosenRuntime(
        kind=kind,
        flavour=RuntimeFlavour.PLAIN,
        socket="/run/x.sock",
        config_file=MAIN,
        version="2.1.4",
        executable="/usr/bin/containerd",
    )
    change = FileChange(path=MAIN, before=None, after=text.encode())
    plan = RuntimePlan(cdi_enabled=False, changes=(change,), handlers=("runc",))
    tree = ConfigTree(files=(ConfigFile(path=MAIN),))
    return Look(runtime=runtime, tree=tree, wanted=Wanted(), plan=plan)


async def test_a_daemon_that_comes_up_is_proof() -> None:
    """With the runtimes that it has."""
    assert await prove_plan(Trials(READY), make_look()) == Proof(handlers=("nvidia", "runc"))


async def test_what_cannot_be_tried_out_is_told() -> None:
    """Another runtime, or no way to start this one: the check of its own tool has to do."""
    assert "containerd alone" in (await prove_plan(Trials(), make_look(kind=RuntimeKind.DOCKER))).unproved
    assert (await prove_plan(Trials(TrialAnswer(obstacle="only root")), make_look())).unproved == "only root"


@pytest.mark.parametrize(("present", "word"), [(READY, "with the planned change"), (GONE, "already with the files")])
async def test_a_daemon_that_does_not_come_up_stops_the_plan(present: TrialAnswer, word: str) -> None:
    """Where it would without configuration; whose fault it is depends on the files as they are."""
    with pytest.raises(PlanDisproved, match=rf"on the side {word}.*it has no CRI: nothing was written"):
        await prove_plan(Trials(GONE, READY, present), make_look())


@pytest.mark.parametrize("control", [GONE, TrialAnswer(obstacle="no answer")])
async def test_a_place_where_nothing_comes_up_proves_nothing(control: TrialAnswer) -> None:
    """As in a unit that may not do what a daemon must."""
    proof = await prove_plan(Trials(GONE, control), make_look())
    assert "even without configuration" in proof.unproved


async def test_what_lacks_programs_of_others_proves_nothing() -> None:
    """CRI may need just those."""
    proof = await prove_plan(Trials(GONE), make_look("version = 2\n[proxy_plugins.kuasar]\naddress = '/x'\n"))
    assert "kuasar" in proof.unproved
