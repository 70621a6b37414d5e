"""The node as every reader gets it, from what is retained."""

import pytest

from nodeagent.components.web.api.build import Identity
from nodeagent.components.web.api.records import EventRecord
from nodeagent.components.web.event_store import decode_events, encode_events
from nodeagent.components.web.page.details import render_steps
from nodeagent.components.web.page.overview import PageView, finish
from nodeagent.components.web.view import NodeView
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.gates import Gates
from nodeagent.core.life.report import ComponentReport, Phase
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.events import XidReported
from nodeagent.model.gpu import Inventory
from nodeagent.model.telemetry import NodeSample
from tests.support.nodes import make_sample
from tests.support.samples import make_gpu, make_mig, make_uuid
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time
IDENTITY = Identity(version="1", node="n", gpu_source="nvml", pid=7, started_seconds=12.4)


class Stage:
    """A bus with somebody looking at it."""

    def __init__(self, clock: FakeClock) -> None:
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        reports = [ComponentReport("web", Phase.RUNNING, 1.0, True, 0, None, None, ())]
        gates = Gates(["driver_ready"], clock=clock)
        self.view = NodeView(
            self.bus.read,
            self.bus.history,
            IDENTITY,
            gates=gates.states,
            conditions=self.conditions.active,
            reports=lambda: reports,
            receipts=tuple,
            wall=clock.wall,
        )


async def test_nothing_known_is_an_answer(clock: FakeClock) -> None:
    """Before anybody has said anything the node is starting, and what is not known is not made up."""
    view = Stage(clock).view
    state = view.state()
    assert (state.node, state.gpus, state.driver) == ("n", None, None)
    assert [gate.name for gate in state.gates] == ["driver_ready"]
    assert [one.name for one in state.components] == ["web"]
    assert view.names() == {}
    assert view.epoch == "7.12"


async def test_the_newest_word_of_each_part_is_shown(clock: FakeClock) -> None:
    """States are read when asked for; a condition is there as soon as it is set."""
    stage = Stage(clock)
    stage.bus.publish_state(DriverState(phase=DriverPhase.READY), source="test")
    stage.bus.publish_state(Inventory(generation=1, gpus=(make_gpu(0),)), source="test")
    stage.conditions.set("gpu-lost", detail="it is gone")
    state = stage.view.state()
    assert state.driver is not None
    assert state.gpus is not None
    assert [one.code for one in state.conditions] == ["gpu-lost"]


async def test_names_are_made_once_for_an_inventory(clock: FakeClock) -> None:
    """Twenty streams that tell events ask for the same names."""
    stage = Stage(clock)
    stage.bus.publish_state(Inventory(generation=1, gpus=(make_gpu(0, mig=make_mig(0, 1)),)), source="test")
    names = stage.view.names()
    assert stage.view.names() is names
    stage.bus.publish_state(Inventory(generation=2, gpus=(make_gpu(1),)), source="test")
    assert make_uuid(1) in stage.view.names()


async def test_readings_become_curves_and_nothing_else_does(clock: FakeClock) -> None:
    """The last minutes are remembered from what goes by; the page has them beside the history."""
    stage = Stage(clock)
    stage.view.note(NodeSample(time_seconds=5.0, gpus=(make_sample(0),)))
    stage.view.note("anything else")
    stage.bus.publish_state(DriverState(phase=DriverPhase.READY), source="test")
    page = stage.view.page()
    assert list(page.trend) == [make_uuid(0)]
    assert "DriverState" in [type(one.value).__name__ for one in page.history]


async def test_the_page_tells_what_happened_before_the_restart(clock: FakeClock) -> None:
    """Below what happened since, with its date and marked; the page of a GPU as well, where it is about it."""
    stage = Stage(clock)
    stage.bus.publish_state(Inventory(generation=1, gpus=(make_gpu(0), make_gpu(1))), source="test")
    about = {"gpu": make_uuid(0)}
    told = [
        EventRecord(seq=1, time_seconds=60.0, type="XidReported", source="s", value=about, text="XID 79!"),
        EventRecord(seq=2, time_seconds=61.0, type="GpuVanished", source="s", value={}, cause=1, text="it went"),
    ]
    assert "before the agent was restarted" not in read_events(stage.view.page(), "/")
    stage.view.note_stored_events(decode_events(encode_events(told)))
    stage.bus.publish_fact(XidReported(gpu=make_uuid(1), xid=31), source="test")
    html = read_events(stage.view.page(), "/")
    assert html.index("XID 31") < html.index("XID 79!") < html.index("it went")
    assert html.count("before the agent was restarted") == 1
    assert "1970-01-01<br>00:01:00 UTC" in html
    assert "XID 79!" in read_events(stage.view.page(), "/gpus/0")
    assert "XID 79!" not in read_events(stage.view.page(), "/gpus/1")


def read_events(view: PageView, path: str) -> str:
    page = finish(render_steps(path, view))
    assert page is not None
    return page.sections["events"]
