"""A GPU that is being cut is shown so, wherever GPUs are shown."""

from nodeagent.cli.answers.table import Layout
from nodeagent.cli.gpu.view import list_missing
from nodeagent.cli.top.view import build_top, render_top
from nodeagent.components.web.api.build import Identity, build_state
from nodeagent.components.web.page.event_words import Teller
from nodeagent.components.web.page.gpus import render_gpus
from nodeagent.model.events import MigChangeEnded
from nodeagent.model.mig import GpuChange, MigState
from nodeagent.model.telemetry import NodeSample
from tests.support.nodes import NOW, make_envelope, make_reader, make_sample
from tests.support.samples import make_inventory, make_uuid

IDENTITY = Identity(version="1", node="node-a", gpu_source="nvml", pid=1, started_seconds=NOW)
SAMPLE = NodeSample(time_seconds=NOW, gpus=(make_sample(0), make_sample(1)))
CHANGE = GpuChange(gpu=make_uuid(0), index=0, wanted="7 x 1g.10gb", doing="waits for <ml/train> (main)")
WORDS = "GPU 0 becomes 7 x 1g.10gb: waits for <ml/train> (main)"


def test_a_change_is_on_the_page_in_the_list_and_in_top() -> None:
    """With what it does now; nothing of a page's text is taken for markup."""
    known = make_reader(make_inventory(), SAMPLE, MigState(layout="x", changes=(CHANGE,)))
    state = build_state(IDENTITY, known, (), (), (), now_seconds=NOW)
    page = render_gpus(state, {})
    assert "is being cut" in page
    assert "GPU 0 becomes 7 x 1g.10gb: waits for &lt;ml/train&gt; (main)" in page
    assert page.count("is being cut") == 1
    assert state.gpus is not None
    assert list_missing(state.gpus) == [f"is being cut: {WORDS}"]
    assert WORDS in render_top(build_top(state, {}), Layout(200), colour=False)


def test_the_end_of_a_change_says_what_it_was_for() -> None:
    """A layout by its name, a single device by its profile and place."""
    names: dict[str, str] = {make_uuid(0): "GPU 0"}

    def tell(**fields: str) -> str:
        fact = MigChangeEnded(gpu=make_uuid(0), outcome="done", **{"layout": "", **fields})
        return Teller(names).tell(make_envelope(1, fact))

    assert tell(layout="lab") == "GPU 0 cut for layout lab"
    assert tell(device="1g.10gb at slot 2") == "GPU 0 cut for 1g.10gb at slot 2"
