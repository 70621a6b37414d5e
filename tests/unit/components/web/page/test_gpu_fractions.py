"""Parts of GPUs in the API's records and on the page: who has which, what is used of each."""

import pytest
from msgspec import json
from msgspec.structs import replace

from nodeagent.components.usage.measure import measure
from nodeagent.components.web.api.build import Identity, build_state
from nodeagent.components.web.api.fractions import FractionsRecord, list_fraction_holders, record_fractions
from nodeagent.components.web.api.records import GpuRecord, StateRecord
from nodeagent.components.web.page.details import render_path, render_pod_page
from nodeagent.components.web.page.gpus import describe_vacancy, render_gpus
from nodeagent.components.web.page.overview import PageView
from nodeagent.components.web.page.sections import render_allocations
from nodeagent.components.web.page.stats import render_stats
from nodeagent.model.allocation import AllocationTable
from nodeagent.model.journal import Binding, FractionTable
from nodeagent.model.mps import MpsClient, MpsPhase, MpsState
from nodeagent.model.offering import AllocationMode, GpuAllocationMode, Offering
from nodeagent.model.usage import FractionUsage
from tests.support.mps import daemon_of
from tests.support.nodes import make_reader
from tests.support.samples import make_address, make_gpu, make_inventory, make_uuid
from tests.unit.components.exporter.builders import allocate
from tests.unit.components.usage.builders import GIB, START, bind, place, run, sample, tabulate

IDENTITY = Identity(version="1", node="node-a", gpu_source="nvml", pid=1, started_seconds=START)
TABLE = tabulate(bind(1, "a"), bind(2, "b", cores=0, gib=2), bind(3, "a", "side", gpus=(1,)))
USAGE = measure(TABLE, make_inventory(), sample(run(10, 12, 3)), {10: place("a")}, {})


def make_door(index: int, *, is_open: bool = True) -> GpuAllocationMode:
    return GpuAllocationMode(
        gpu=make_uuid(index),
        index=index,
        address=make_address(index),
        door=AllocationMode.FRACTIONS,
        wanted=AllocationMode.FRACTIONS,
        reason="a rule",
        is_open=is_open,
    )


def make_state(table: FractionTable = TABLE, usage: FractionUsage | None = USAGE, *devices: str) -> StateRecord:
    """Two GPUs that are given in parts; `devices` are held whole."""
    known = make_reader(
        make_inventory(),
        AllocationTable(allocations=tuple(allocate("whole", one) for one in devices)),
        Offering(doors=(make_door(0), make_door(1))),
        table,
        usage,
    )
    return build_state(IDENTITY, known, (), (), (), now_seconds=START)


def describe(state: StateRecord, gpu: int = 0) -> list[tuple[str, str, str, str]]:
    assert state.gpus is not None
    return [
        (one.pod.name, one.container, one.use.describe_cores(), one.use.describe_memory())
        for one in state.gpus.gpus[gpu].parts
    ]


def test_each_gpu_names_who_has_parts_of_it() -> None:
    """With what was measured; the record reads back as it was sent."""
    state = make_state()
    assert describe(state) == [
        ("a", "main", "12 of 30", "3 GiB of 8 GiB"),
        ("b", "main", "0 of any", "0 B of 2 GiB"),
    ]
    assert describe(state, 1) == [("a", "side", "- of 30", "- of 8 GiB")]
    assert json.decode(json.encode(state), type=StateRecord) == state


def test_what_is_written_down_counts_before_what_was_measured() -> None:
    """Limits that have just changed, a container that has just come, one that has just gone."""
    grown = replace(bind(1, "a", cores=60, gib=20), core_limit=80)
    holders = list_fraction_holders(tabulate(grown, bind(9, "new")), USAGE)[make_uuid(0)]
    assert [(one.number, one.use.cores, one.use.cores_max, one.use.cores_used) for one in holders] == [
        (1, 60, 80, 12),
        (9, 30, None, None),
    ]
    assert holders[0].use.memory_bytes == 20 * GIB
    assert list_fraction_holders(FractionTable(), USAGE) == {}


def test_the_list_of_parts_has_their_use() -> None:
    (first, _, third) = record_fractions(TABLE, None, USAGE).bound
    assert [one.cores_used for one in first.used] == [12]
    assert [one.cores_used for one in third.used] == [None]
    assert [len(one.used) for one in record_fractions(TABLE, None).bound] == [1, 1, 1]
    assert record_fractions(None, None) == FractionsRecord()


def test_a_tile_names_pods_and_their_use() -> None:
    """Beside who has it whole, if anybody does."""
    page = render_gpus(make_state(), {})
    assert '<a href="/pods/ml/a">ml/a</a> <span class="small dim">12 of 30 cores, 3 GiB of 8 GiB</span>' in page
    assert '<a href="/pods/ml/b">ml/b</a> <span class="small dim">0 of any cores, 0 B of 2 GiB</span>' in page
    mixed = render_gpus(make_state(TABLE, USAGE, make_uuid(0)), {})
    assert "whole</a><br>" in mixed


def test_a_gpu_in_parts_that_nobody_has_is_free_in_parts() -> None:
    """Unless its door is closed, or it is lost."""
    state = make_state(FractionTable(), None)
    assert state.gpus is not None
    (record, _) = state.gpus.gpus
    assert describe_vacancy(record) == "free, in parts"
    assert "free, in parts" in render_gpus(state, {})
    assert describe_vacancy(replace(record, door=make_door(0, is_open=False))) == ""
    assert describe_vacancy(GpuRecord(gpu=make_gpu(lost="gone"), door=make_door(0))) == ""


def test_parts_are_a_table_among_the_allocations() -> None:
    """Devices and parts a table each, and a sentence where there is neither."""
    parts = render_allocations(make_state())
    assert "Who has parts of GPUs" in parts
    assert "Who holds what" not in parts
    assert "3 GiB of 8 GiB" in parts
    both = render_allocations(make_state(TABLE, USAGE, make_uuid(1)))
    assert "Who has parts of GPUs" in both
    assert "Who holds what" in both
    assert "No device is handed out" in render_allocations(make_state(FractionTable(), None))


def test_mps_daemons_are_a_table_among_the_allocations() -> None:
    """With their clients, and with the reason of one that is not ready."""
    daemons = (
        daemon_of(make_uuid(0), clients=(MpsClient(pid=10, pod="ml/train"), MpsClient(pid=11))),
        daemon_of(make_uuid(1), MpsPhase.BROKEN, "it <ended>"),
    )
    page = render_allocations(replace(make_state(FractionTable(), None), mps=MpsState(daemons=daemons)))
    assert "MPS daemons" in page
    assert "ml/train<br>process 11" in page
    assert "it &lt;ended&gt;" in page
    assert "MPS daemons" not in render_allocations(replace(make_state(FractionTable(), None), mps=MpsState()))


def test_a_gpu_with_parts_is_in_use() -> None:
    """One of two, where one has parts alone."""
    assert "<dd>1 <small>of 2</small></dd>" in render_stats(make_state(tabulate(bind(1)), None))


@pytest.mark.parametrize(("name", "gpus"), [("a", 2), ("b", 1)])
def test_the_page_of_a_pod_has_its_parts(name: str, gpus: int) -> None:
    page = render_pod_page("ml", name, PageView(make_state(), {}, ()))
    assert page.status == 200
    assert page.sections["verdict"].count("GPU ") == gpus
    assert page.sections["holders"].count("<tr>") == gpus + 1
    assert render_pod_page("ml", "c", PageView(make_state(), {}, ())).status == 404


def test_the_page_of_a_gpu_has_its_parts() -> None:
    for table, said in ((TABLE, "Who has parts of GPUs"), (FractionTable(), "Nobody: free, in parts.")):
        view = PageView(make_state(table, None), {}, ())
        page = render_path(f"/gpus/{make_uuid(0)}", view)
        assert page is not None
        assert said in page.sections["holders"]


def test_names_from_outside_are_no_markup() -> None:
    """A pod's name cannot be one, a container's is escaped all the same."""
    evil: Binding = bind(1, "<b>", "<i>&")
    page = render_gpus(make_state(tabulate(evil), None), {}) + render_allocations(make_state(tabulate(evil), None))
    assert "<b>" not in page
    assert "<i>" not in page
    assert "&lt;i&gt;&amp;" in page
