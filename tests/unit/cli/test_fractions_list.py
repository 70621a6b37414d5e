"""`nodeagent fractions list`: who has which part, and uses how much of it."""

from typing import Any, get_origin

import pytest
from msgspec.structs import replace

from nodeagent.cli.answers import asking, orders
from nodeagent.cli.answers.answer import NoAgent
from nodeagent.cli.answers.table import Layout, lay_out
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.gpu.fractions import _list_undivided, tabulate
from nodeagent.components.usage.measure import measure
from nodeagent.components.web.api.fractions import FractionsRecord, record_fractions
from nodeagent.components.web.api.records import DeviceClassRecord, DeviceRecord, GpusRecord
from nodeagent.model.devices import HostDevice
from nodeagent.model.fractions import FractionDecisions
from nodeagent.model.ids import DeviceId, GpuUuid
from nodeagent.model.journal import Enforcement, FractionTable
from tests.support.programs.command_line import run_here
from tests.support.samples import make_inventory, make_uuid
from tests.unit.components.usage.builders import START, bind, place, run, sample
from tests.unit.components.usage.builders import tabulate as table_of

NAMES = {str(make_uuid(0)): "0"}


def show(record: FractionsRecord, *, wide: bool = False) -> list[str]:
    return lay_out(tabulate(record, NAMES, now_seconds=START), Layout(width=200, wide=wide))


def test_what_is_used_stands_before_what_is_promised() -> None:
    """A part of any size of compute is one, too; what is not known is not zero."""
    table = table_of(bind(1, "a"), bind(2, "b", cores=0), bind(3, "c", gpus=(7,)))
    usage = measure(table, make_inventory(), sample(run(10), run(11)), {10: place("a"), 11: place("a")}, {})
    lines = show(record_fractions(table, FractionDecisions(waiting={"ml/d (main)": ("because no room",)}), usage))
    head, a, b, c, d = (" ".join(line.split()) for line in lines)
    assert head == "POD CONTAINER GPU CORES MEMORY FOR WHY"
    assert a == "ml/a main 0 20 of 30 2 GiB of 8 GiB 1 min share"
    assert b == "ml/b main 0 0 of any 0 B of 8 GiB 1 min share"
    assert c == "ml/c main gone - of 30 - of 8 GiB 1 min share"
    assert d == "ml/d main waits - - - no room"


def test_who_enforces_is_told_where_there_is_room() -> None:
    """And before anything was measured, nothing is used that anybody knows of."""
    lines = show(record_fractions(table_of(bind(1, "a")), None), wide=True)
    assert " ".join(lines[0].split()) == "POD CONTAINER GPU CORES MEMORY HELD BY FOR WHY"
    assert " ".join(lines[1].split()) == "ml/a main 0 - of 30 - of 8 GiB advise 1 min share"


def test_what_cannot_be_divided_is_a_line_of_its_own() -> None:
    """No container is charged with what may be its neighbour's."""
    table = table_of(bind(1, "a", "left"), bind(2, "a", "right"))
    usage = measure(table, make_inventory(), sample(run(10)), {10: place("a", "l")}, {})
    assert _list_undivided(record_fractions(table, None, usage)) == [
        "of GPU 0, 10 cores and 1 GiB are used in ml/a: by left or right, the container runtime has not told which"
    ]


def test_without_parts_it_says_where_to_look() -> None:
    """Whether parts are given at all stands with the doors."""
    (line,) = show(FractionsRecord())
    assert line.startswith("no container has a part of a GPU; `nodeagent gpu doors` says")


class Simulation:
    """An agent of which nobody knows that it is a simulation before it has answered."""

    where, simulated = "simulation 1", ""

    def give(self, _order: object, _command: object) -> str:
        self.simulated = "t4"
        return "done"


@pytest.mark.may_block("commands read files in their own short-lived loop")
def test_a_change_in_a_simulation_says_so_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "find_agent", lambda *_, **__: Simulation())
    code, out, _ = run_here("fractions", "set", "ml/train", "--cores", "5")
    assert code == ExitCode.OK
    assert out.splitlines() == ["simulation 1: a made-up t4; nothing of this is about this machine", "done"]


class DividedNode(NoAgent):
    """An agent of a node without GPU, where somebody has a part of a class's device."""

    def read(self, path: str, kind: Any) -> Any:
        table = table_of(bind(1, "a"))
        part = replace(table.bindings[1].parts[0], gpu=GpuUuid("DEV-gpu-0-d0"))
        held = replace(table.bindings[1], parts=(part,), enforcement=Enforcement.COUNTED)
        device = HostDevice(id=DeviceId(part.gpu), name="/dev/dri/card0", nodes=("/dev/dri/card0",))
        record = DeviceClassRecord(resource="amd.com/gpu", replicas=1, devices=(DeviceRecord(device=device),))
        answers: dict[str, Any] = {
            "/api/v1/parts": record_fractions(FractionTable(bindings={1: held}), None),
            "/api/v1/gpus": GpusRecord(generation=0),
            "/api/v1/devices": (record,),
        }
        assert isinstance(answers[path], get_origin(kind) or kind)
        return answers[path]


@pytest.mark.may_block("commands read files in their own short-lived loop")
def test_devices_of_classes_are_called_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "find_agent", lambda _settings, _environ: DividedNode())
    code, out, _ = run_here("fractions", "list")
    assert code == ExitCode.OK
    assert "/dev/dri/card0" in out
