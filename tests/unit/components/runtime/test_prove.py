"""What follows from a daemon that was started on the side."""

import pytest

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.plan import RuntimePlan, Wanted
from nodeagent.components.runtime.probe import Probe
from nodeagent.components.runtime.prove import PlanDisproved, Proof, describe_difference, prove_plan
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


def make_look(text: str = "version = 2\n", kind: RuntimeKind = RuntimeKind.CONTAINERD) -> Probe:
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
    return Probe(runtime=runtime, tree=tree, wanted=Wanted(), plan=plan)


async def test_a_daemon_that_comes_up_is_proof() -> None:
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


@pytest.mark.parametrize(
    ("path", "before", "after", "said"),
    [
        ("/a.toml", b"[p]\nx = false\n", b"[p]\nx = true\n", "/a.toml (p.x is false, not true)"),
        (
            "/a.toml",
            None,
            b"version = 2\nd = 1979-05-27\n",
            '/a.toml (version is missing, not 2, d is missing, not "1979-05-27")',
        ),
        ("/a.toml", b"p = 1\n", b'[p]\nx = ["a"]\n', '/a.toml (p.x is missing, not ["a"])'),
        (
            "/d.json",
            b'{"features": {"cdi": false}}',
            b'{"features": {"cdi": true}}',
            "/d.json (features.cdi is false, not true)",
        ),
        ("/docker.conf", b"{}", b'{"debug": true}', "/docker.conf (debug is missing, not true)"),
        (
            "/a.toml",
            b"",
            b"a = 1\nb = 2\nc = 3\nd = 4\ne = 5\n",
            "/a.toml (a is missing, not 1, b is missing, not 2, c is missing, not 3 and 2 more)",
        ),
    ],
    ids=["changed", "no file", "another kind", "json", "json by another name", "many"],
)
def test_both_values_are_told(path: str, before: bytes | None, after: bytes, said: str) -> None:
    """The first three; of a table only what is in it."""
    assert describe_difference(FileChange(path=path, before=before, after=after)) == said
