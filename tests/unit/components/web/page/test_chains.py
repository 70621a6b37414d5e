"""Chains of causes: what led to what, in the order in which it is told."""

from msgspec.structs import replace

from nodeagent.components.web.api.stream import build_event
from nodeagent.components.web.page.chains import (
    CHAIN_LENGTH,
    ROUTINE_MAX,
    Chain,
    build_chains,
    describe_history,
    describe_records,
    find_about,
)
from nodeagent.components.web.page.event_words import Teller
from nodeagent.model.events import (
    DevicesAdvertised,
    DevicesAllocated,
    GpuAppeared,
    GpuVanished,
    VerdictChanged,
    XidReported,
)
from nodeagent.model.gpu import Inventory, StoredGpu
from nodeagent.model.health import Verdict
from nodeagent.model.ids import DeviceId, DeviceUuid, ResourceName
from nodeagent.model.telemetry import NodeSample
from nodeagent.rules.ids import build_names
from tests.support.nodes import make_envelope
from tests.support.samples import make_gpu, make_mig, make_uuid

RESOURCE = ResourceName("nvidia.com/gpu")
ADVERTISED = DevicesAdvertised(resource=RESOURCE, healthy=7, total=8)
LOST = Inventory(generation=2, gpus=(make_gpu(0, lost="x"),))
CHAIN = (
    make_envelope(1, XidReported(gpu=make_uuid(0), xid=79), time=1.0),
    make_envelope(2, GpuAppeared(gpu=make_uuid(1), generation=1), time=1.2),
    make_envelope(3, LOST, time=1.3, cause=1),
    make_envelope(4, NodeSample(time_seconds=1.0), time=1.3, cause=3),
    make_envelope(5, GpuVanished(gpu=make_uuid(0), generation=2), time=1.4, cause=4),
    make_envelope(6, XidReported(gpu=make_uuid(0), xid=154), time=1.45, cause=1),
    make_envelope(7, ADVERTISED, time=1.5, cause=5),
)


def outline(chain: Chain) -> list[tuple[int, int]]:
    return [(link.seq, link.depth) for link in chain.links]


def test_what_one_event_led_to_stands_below_it() -> None:
    """Each effect stands under its own cause, through events that say nothing, whatever else happened meanwhile."""
    other, chain = build_chains(describe_history(CHAIN, {}))
    assert outline(chain) == [(1, 0), (5, 1), (7, 2), (6, 1)]
    assert outline(other) == [(2, 0)]


def test_nearness_in_time_joins_nothing() -> None:
    """Two events of one moment that nobody joined are two chains."""
    history = [make_envelope(seq, XidReported(gpu=make_uuid(seq), xid=31), time=1.0) for seq in (1, 2)]
    assert [outline(chain) for chain in build_chains(describe_history(history, {}))] == [[(2, 0)], [(1, 0)]]


def test_a_summary_is_told_only_where_it_begins() -> None:
    """The inventory of the start begins a chain; inside one its facts say more."""
    (chain,) = build_chains(describe_history([make_envelope(1, LOST)], {}))
    assert [link.text for link in chain.links] == ["inventory 2: 1 GPUs, 1 lost"]


def test_chains_are_newest_first_and_limited() -> None:
    """A reader sees the last ones, and of a storm its beginning and how much more there was."""
    storm = [make_envelope(seq, XidReported(gpu=make_uuid(0), xid=31), cause=1) for seq in range(2, 42)]
    history = [make_envelope(1, XidReported(gpu=make_uuid(0), xid=48)), *storm, make_envelope(50, ADVERTISED)]
    newest, older = build_chains(describe_history(history, {}))
    assert outline(newest) == [(50, 0)]
    assert (len(older.links), older.left_out) == (CHAIN_LENGTH, 41 - CHAIN_LENGTH)
    assert build_chains(describe_history(history, {}), 1) == (newest,)


def test_a_chain_of_any_length_can_be_told() -> None:
    """Thousands of events, each led to by the one before, are walked without recursion."""
    history = [make_envelope(seq, ADVERTISED, cause=seq - 1 or None) for seq in range(1, 5000)]
    (chain,) = build_chains(describe_history(history, {}), length=5000)
    assert chain.links[-1].depth == 4998


def test_allocations_do_not_push_out_what_matters() -> None:
    """Pods that come and go all day are told in few lines, and the XID before them is still there."""
    pod = DevicesAllocated(resource=RESOURCE, devices=(DeviceId("GPU-a"),), number=1)
    history = [make_envelope(1, XidReported(gpu=make_uuid(0), xid=79))]
    history += [make_envelope(seq, pod) for seq in range(2, 60)]
    chains = build_chains(describe_history(history, {}))
    assert len(chains) == ROUTINE_MAX + 1
    assert outline(chains[-1]) == [(1, 0)]


def test_a_cause_that_history_has_forgotten_begins_a_chain() -> None:
    """An effect whose cause is long gone is told by itself."""
    (chain,) = build_chains(describe_history([make_envelope(9, ADVERTISED, cause=2)], {}))
    assert outline(chain) == [(9, 0)]


def test_a_gpus_chains_are_whole() -> None:
    """Asked about one GPU, a chain that names it is told to its end, and chains of others are not."""
    about = find_about(((one.seq, one.value) for one in CHAIN), {make_uuid(0)})
    assert about == {1, 5, 6}
    (chain,) = build_chains(describe_history(CHAIN, {}), about=about)
    assert 7 in {link.seq for link in chain.links}


def test_what_an_event_is_about_reads_alike_in_json() -> None:
    """The terminal, which has plain JSON, and the page, which has values, find the same events."""
    pod = {"resource": "nvidia.com/gpu", "devices": ["GPU-a::3", 5]}
    events = [(1, {"gpu": "GPU-a"}), (2, {"device": "GPU-a"}), (3, pod), (4, {"gpu": None}), (5, "GPU-a"), (6, {})]
    assert find_about(events, {"GPU-a"}) == {1, 2, 3}


def test_the_api_and_the_page_tell_the_same_chains() -> None:
    """What a script gets is enough to draw the page's chains."""
    teller = Teller({})
    records = [build_event(one, teller) for one in CHAIN]
    assert build_chains(describe_records(records)) == build_chains(describe_history(CHAIN, {}))


def test_what_happens_to_many_devices_is_told_once() -> None:
    """Eight GPUs that appear together are one line; one to which something else happens keeps its own."""
    names = {str(make_uuid(number)): f"GPU {number}" for number in range(8)}
    history = [make_envelope(1, LOST)]
    history += [
        make_envelope(2 + number, GpuAppeared(gpu=make_uuid(number), generation=1), cause=1) for number in range(6)
    ]
    history.append(make_envelope(8, GpuVanished(gpu=make_uuid(6), generation=1, reason="x"), cause=1))
    history.append(make_envelope(9, GpuAppeared(gpu=make_uuid(7), generation=1), cause=1))
    (chain,) = build_chains(describe_history(history, names))
    assert [link.text for link in chain.links[1:]] == [
        "GPU 0, GPU 1 and 4 more appeared",
        "GPU 6 is lost: x",
        "GPU 7 appeared",
    ]


def test_what_happens_to_all_parts_of_a_gpu_is_told_once() -> None:
    """The GPU, its MIG devices of any profile, and one that is gone: they are named as everywhere."""
    gpu = make_gpu(0, mig=make_mig(0, 2))
    profiles = ("1g.10gb", "1c.2g.20gb+me")
    assert gpu.mig is not None
    devices = tuple(replace(one, profile=each) for one, each in zip(gpu.mig.devices, profiles, strict=True))
    gone = StoredGpu(uuid=make_uuid(9), name="H100", index=9, address=gpu.pci.address)
    cut = replace(gpu, mig=replace(gpu.mig, devices=devices))
    names = build_names(Inventory(generation=1, gpus=(cut,), vanished=(gone,)))
    history = [make_envelope(1, LOST)]
    uuids: list[DeviceUuid] = [gpu.uuid, *(one.uuid for one in devices), gone.uuid]
    for number, uuid in enumerate(uuids):
        changed = VerdictChanged(device=uuid, before=Verdict.UNKNOWN, after=Verdict.HEALTHY)
        history.append(make_envelope(2 + number, changed, cause=1))
    (chain,) = build_chains(describe_history(history, names))
    assert [link.text for link in chain.links[1:]] == ["GPU 0, GPU 0:0 (1g.10gb) and 2 more unknown → healthy"]


def test_a_summary_that_says_the_same_again_is_not_told() -> None:
    """A look that finds what the last one found is no news to a reader."""
    other = make_envelope(3, ADVERTISED)
    history = [make_envelope(1, LOST), make_envelope(2, LOST), other, make_envelope(4, LOST)]
    assert [outline(chain) for chain in build_chains(describe_history(history, {}))] == [[(3, 0)], [(1, 0)]]


def test_what_followed_from_a_summary_stays_together() -> None:
    """Also where it says what the last one said: a GPU that becomes suspect changes no count."""
    history = [make_envelope(1, LOST), make_envelope(2, LOST), make_envelope(3, ADVERTISED, cause=2)]
    history.append(make_envelope(4, ADVERTISED, cause=2))
    assert [outline(chain) for chain in build_chains(describe_history(history, {}))] == [
        [(2, 0), (3, 1), (4, 1)],
        [(1, 0)],
    ]
