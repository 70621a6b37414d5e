"""Records, events and commands."""

import pytest
from msgspec import json
from msgspec.structs import replace

from nodeagent.components.web.api.admin import (
    may_command,
)
from nodeagent.components.web.api.build import Identity, build_state
from nodeagent.components.web.api.gpu_records import find_gpu_record, join_gpus
from nodeagent.components.web.api.index import INDEX
from nodeagent.components.web.api.latest import ReadLatest
from nodeagent.components.web.api.records import (
    ComponentRecord,
    ConditionRecord,
    EventRecord,
    GateRecord,
    GpusRecord,
    StateRecord,
)
from nodeagent.components.web.api.stream import (
    QueryMalformed,
    parse_query,
    render_event,
)
from nodeagent.components.web.page.condition import DEFINITIONS
from nodeagent.components.web.page.details import is_page, render_path
from nodeagent.components.web.page.gpus import describe_vacancy, render_gpus
from nodeagent.components.web.page.markup import condition_path
from nodeagent.components.web.page.overview import render_document
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Gpu, Inventory, Mig
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceId, DeviceUuid, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, OfferSummary, PluginState
from nodeagent.model.telemetry import GpuSample, NodeSample
from tests.support.nodes import make_reader, make_view
from tests.support.samples import make_gpu, make_inventory, make_mig, make_uuid
from tests.support.texts.html import Page

HOSTILE = "<script>alert(1)</script>\"'&\n\x1b[2J"
IDENTITY = Identity(
    version="1.2.3", node="node-a", gpu_source="simulated:x", pid=7, started_seconds=10.0, notices=("note",)
)


def _allocation(number: int, device: str, pod: PodIdentity | None = None) -> Allocation:
    return Allocation(
        number=number,
        resource=ResourceName("nvidia.com/gpu"),
        devices=(DeviceId(device),),
        since_seconds=20.0,
        pod=pod,
        container="main",
    )


def _known(gpus: tuple[Gpu, ...]) -> ReadLatest:
    sample = GpuSample(
        uuid=make_uuid(0),
        gpu_utilization_percent=42,
        memory_used_bytes=1 << 30,
        memory_total_bytes=1 << 36,
        power_milliwatts=350_400,
        gpu_temperature_celsius=61,
    )
    health = DeviceHealth(
        device=make_uuid(0), gpu=make_uuid(0), verdict=Verdict.UNHEALTHY, since_seconds=1.0, reason=HOSTILE
    )
    return make_reader(
        DriverState(phase=DriverPhase.READY, driver_version="580.1", cuda_version=(13, 0)),
        Inventory(generation=3, gpus=gpus),
        NodeSample(time_seconds=95.0, gpus=(sample,)),
        HealthReport(generation=3, devices=(health,)),
        AllocationTable(
            allocations=(
                _allocation(1, f"{make_uuid(0)}::2", PodIdentity(namespace="ml", name=HOSTILE)),
                _allocation(2, "GPU-other"),
            )
        ),
    )


def _state(known: ReadLatest) -> StateRecord:
    return build_state(
        IDENTITY,
        known,
        [GateRecord(name="g", open=False, since_seconds=1.0), GateRecord(name="h", open=True, since_seconds=1.0)],
        [
            ComponentRecord(
                name="part",
                phase="backing_off",
                since_seconds=5.0,
                vital=True,
                restarts=2,
                last_error=HOSTILE,
                waiting_for=("g",),
            ),
            ComponentRecord(name="web", phase="running", since_seconds=5.0, vital=True),
        ],
        [
            ConditionRecord(
                code="c", severity="error", title="t", remedy="r", since_seconds=1.0, detail=HOSTILE, key=HOSTILE
            ),
            ConditionRecord(code="d", severity="warning", title="t", remedy="r", since_seconds=1.0),
        ],
        now_seconds=100.0,
    )


@pytest.mark.parametrize(
    ("age", "period", "is_old"), [(1.9, 0.1, False), (2.1, 0.1, True), (59.0, 30.0, False), (61.0, 30.0, True)]
)
def test_a_reading_is_old_after_two_periods(age: float, period: float, *, is_old: bool) -> None:
    """And after two seconds at least; one that there is not is not old."""
    gpus = (make_gpu(0), make_gpu(1))
    inventory = Inventory(generation=1, gpus=gpus)
    sample = NodeSample(time_seconds=100.0, period_seconds=period, gpus=(GpuSample(uuid=gpus[0].uuid),))
    joined = join_gpus(inventory, make_reader(sample), None, {}, now_seconds=100.0 + age).gpus
    assert [record.sample_is_old for record in joined] == [is_old, False]


def test_nobody_can_have_a_gpu_that_is_lost() -> None:
    """That nobody holds it does not make it free."""
    known = _known((make_gpu(5), make_gpu(6, lost="fell off")))
    tiles = render_gpus(_state(known), {}).split('<li class="tile')
    assert ["free" in tile for tile in tiles[1:]] == [True, False]
    assert "held by nobody" in tiles[2]


def test_a_gpu_that_mig_left_without_a_device_is_not_free() -> None:
    """Nobody can get it before a device is made; on the page of the GPU it is not said to be free either."""
    bare = make_gpu(6, mig=Mig(enabled=True, pending=True))
    state = _state(_known((make_gpu(5, mig=Mig(enabled=False, pending=False)), bare, make_gpu(7, mig=make_mig(7, 1)))))
    tiles = render_gpus(state, {}).split('<li class="tile')
    assert ['<p class="held dim">free</p>' in tile for tile in tiles[1:]] == [True, False, True]
    assert "held by nobody" in tiles[2]
    assert state.gpus is not None
    assert [describe_vacancy(record) for record in state.gpus.gpus] == ["free", "", "free"]


def offer(*devices: str, registered: bool = True) -> PluginState:
    listed = tuple(AdvertisedDevice(id=DeviceId(device), healthy=True) for device in devices)
    resource = AdvertisedResource(name=ResourceName("a"), socket="s", registered=registered, devices=listed)
    return PluginState(resources=(resource,), account=OfferSummary(gpus=1, devices_offered=len(devices)))


def judge(device: DeviceUuid, gpu: Gpu, verdict: Verdict) -> DeviceHealth:
    return DeviceHealth(device=device, gpu=gpu.uuid, verdict=verdict, since_seconds=1.0, reason="r")


CUT = make_gpu(7, mig=make_mig(7, 2))
MIG = [device.uuid for device in CUT.mig_devices]


@pytest.mark.parametrize(
    ("gpu", "plugin", "verdicts", "said"),
    [
        (CUT, offer(*MIG), {}, "free"),
        (CUT, offer(*MIG), dict.fromkeys(MIG, Verdict.SUSPECT), "free"),
        (CUT, offer(*MIG), {MIG[0]: Verdict.UNHEALTHY}, "1 of 2 MIG devices free"),
        (CUT, offer(MIG[1]), {}, "1 of 2 MIG devices free"),
        (CUT, offer(), {}, ""),
        (CUT, offer(*MIG, registered=False), {}, ""),
        (CUT, offer(CUT.uuid), {}, "free"),
        (make_gpu(1), offer(f"{make_uuid(1)}::0", f"{make_uuid(1)}::1"), {}, "free"),
        (make_gpu(1), offer(), {}, ""),
        (make_gpu(1, lost="fell off"), offer(make_uuid(1)), {}, ""),
        (make_gpu(1), PluginState(), {}, "free"),
    ],
)
def test_free_is_what_the_kubelet_may_hand_out(
    gpu: Gpu, plugin: PluginState, verdicts: dict[DeviceUuid, Verdict], said: str
) -> None:
    """Tile, page and blocks say the same; a loss counts before the kubelet has heard of it, and suspects are given."""
    health = HealthReport(generation=1, devices=tuple(judge(device, gpu, each) for device, each in verdicts.items()))
    known = make_reader(Inventory(generation=1, gpus=(gpu,)), plugin, health)
    state = _state(known)
    assert state.gpus is not None
    (record,) = state.gpus.gpus
    assert describe_vacancy(record) == said
    tile = render_gpus(state, {})
    assert f'<p class="held dim">{said or "held by nobody"}</p>' in tile
    free = {mig for mig in MIG if f"{mig}, free" in tile}
    assert free == (set(MIG) & set(record.free or ()))


def test_records_join_what_is_known_of_a_gpu() -> None:
    """Sample, age, verdict and holders stand with the GPU they belong to; a replica counts for its GPU."""
    state = _state(_known((make_gpu(0), make_gpu(1))))
    assert state.gpus is not None
    first, second = state.gpus.gpus
    assert first.sample is not None
    assert first.sample_age_seconds == 5.0
    assert [one.number for one in first.allocations] == [1]
    assert first.health[0].verdict is Verdict.UNHEALTHY
    assert (second.sample, second.sample_age_seconds, second.allocations, second.health) == (None, None, (), ())


def test_an_agent_that_knows_nothing_yet_says_so() -> None:
    """Before the first readout every part of the record is empty, not invented."""
    state = build_state(IDENTITY, make_reader(), [], [], [], now_seconds=11.0)
    assert (state.gpus, state.driver, state.allocations) == (None, None, ())
    joined = join_gpus(make_inventory(1), make_reader(), None, {}, now_seconds=1.0)
    assert joined.gpus[0].sample is None


def test_the_state_reads_back_equal() -> None:
    """What scripts get is what the agent meant, and the command line reads the same record."""
    state = _state(_known((make_gpu(0, mig=make_mig(0, 2)),)))
    assert json.decode(json.encode(state), type=StateRecord) == state


def test_a_gpu_is_found_by_each_of_its_names() -> None:
    """Index, UUID, PCI address and MIG UUID all lead to the same record."""
    gpu = make_gpu(1, mig=make_mig(1, 1))
    records = join_gpus(Inventory(generation=1, gpus=(make_gpu(0), gpu)), make_reader(), None, {}, now_seconds=0.0)
    for name in ("1", gpu.uuid, gpu.pci.address, gpu.mig_devices[0].uuid):
        found = find_gpu_record(records, name)
        assert found is not None
        assert found.gpu is gpu
    assert find_gpu_record(records, "9") is None
    assert find_gpu_record(GpusRecord(generation=0), "0") is None


def test_events_are_one_line_each() -> None:
    """A hostile value cannot end an event early, and cause and number travel with it."""
    event = EventRecord(seq=4, time_seconds=1.0, type="XidReported", source="inventory", value={"m": HOSTILE}, cause=2)
    lines = render_event(event).split(b"\n")
    assert lines[:2] == [b"id: 4", b"event: XidReported"]
    assert json.decode(lines[2].removeprefix(b"data: "), type=EventRecord) == event
    assert lines[3:] == [b"", b""]


@pytest.mark.parametrize(
    ("query", "wanted", "unwanted"),
    [
        ({}, {"XidReported", "Inventory"}, {"NodeSample"}),
        ({"types": "NodeSample, Inventory"}, {"NodeSample", "Inventory"}, {"XidReported"}),
        ({"types": " , "}, {"XidReported"}, {"NodeSample"}),
    ],
)
def test_a_client_chooses_its_events(query: dict[str, str], wanted: set[str], unwanted: set[str]) -> None:
    """Samples are left out unless asked for, and a choice is exact."""
    asked = parse_query({}, query)
    assert all(asked.wants(name) for name in wanted)
    assert not any(asked.wants(name) for name in unwanted)


def test_a_reconnect_names_the_last_event() -> None:
    """Browsers send a header, scripts a parameter; a header that is nonsense counts as nothing."""
    assert parse_query({"last-event-id": "12"}, {}).last_seen == 12
    assert parse_query({}, {"since": "7"}).last_seen == 7
    assert parse_query({"last-event-id": "x"}, {}).last_seen is None
    assert parse_query({}, {}).last_seen is None


def test_a_list_is_whole_and_a_stream_begins_where_it_was_left() -> None:
    """Who names no last event gets all in a list, and in a stream only what comes."""
    events = [EventRecord(seq=seq, time_seconds=0.0, type="A", source="s", value={}) for seq in (1, 2, 3)]
    events.append(replace(events[0], seq=4, type="NodeSample"))
    for since, listed, replayed in (("", [1, 2, 3], []), ("2", [3], [3]), ("0", [1, 2, 3], [1, 2, 3])):
        asked = parse_query({}, {"since": since})
        assert [one.seq for one in asked.select(events)] == listed
        assert [one.seq for one in events if asked.misses(one)] == replayed


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "²", "9" * 5000, " 1"])
def test_a_parameter_that_is_no_number_is_refused(text: str) -> None:
    """Whoever typed it is told what it takes; no length of digits is a fault of the server."""
    with pytest.raises(QueryMalformed, match=r"\?since= takes the seq of an event"):
        parse_query({}, {"since": text})


def test_following_is_asked_for_in_two_words() -> None:
    """A stream where the reader meant a list would hang a script, so that a typing error is refused."""
    assert parse_query({}, {}).is_followed
    assert not parse_query({}, {"follow": "false"}).is_followed
    with pytest.raises(QueryMalformed, match="follow"):
        parse_query({}, {"follow": "no"})


@pytest.mark.parametrize(("peer", "own", "allowed"), [(0, 5, True), (5, 5, True), (6, 5, False), (-1, 0, False)])
def test_only_the_owner_and_root_may_command(peer: int, own: int, *, allowed: bool) -> None:
    """A TCP peer has no uid the kernel vouches for, and never may."""
    assert may_command(peer, own) is allowed


def test_the_index_names_every_call_once() -> None:
    """The list of calls is for people; a call listed twice would be a lie about one of them."""
    calls = [endpoint.call for endpoint in INDEX.calls]
    assert len(calls) == len(set(calls))


def test_every_condition_has_a_page_whether_it_is_so_or_not() -> None:
    """An alert may link to any code for good; the page is whole and says what to do."""
    view = replace(make_view(), state=replace(make_view().state, conditions=()))
    for definition in CATALOGUE:
        path = condition_path(definition.code)
        assert is_page(path)
        page = render_path(path, view)
        assert page is not None
        document = Page(render_document(page, "1"))
        assert document.find_faults() == []
        assert definition.title in document.text
        assert "it is not so now" in document.text


def test_an_active_condition_is_shown_with_its_details() -> None:
    """What is so now stands above what the code means in general, with its own detail and age."""
    state = make_view().state
    active = replace(state.conditions[0], code="gpu-lost")
    view = replace(make_view(), state=replace(state, conditions=(active,)))
    page = render_path(condition_path(active.code), view)
    assert page is not None
    text = Page(render_document(page, "1")).text
    assert active.detail in text
    assert "it is not so now" not in text


def test_a_condition_names_what_hides_it() -> None:
    """Where one follows from another, the page leads there."""
    code = next(code for code, one in DEFINITIONS.items() if one.depends_on)
    page = render_path(condition_path(code), make_view())
    assert page is not None
    links = {one["href"] for one in Page(render_document(page, "1")).all("a")}
    assert {condition_path(parent) for parent in DEFINITIONS[code].depends_on} <= links


def test_a_code_that_there_is_not_has_no_page() -> None:
    """A typing error is a problem document, not an empty page."""
    assert not is_page("/conditions/no-such")
    assert render_path("/conditions/no-such", make_view()) is None
