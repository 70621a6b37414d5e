"""The operations whose cost is drawn as curves, each made for a node of a given size.

The same functions that the components call, with values in place of the hardware, the kubelet and the disk.
"""

import asyncio
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Literal

import msgspec
from msgspec.structs import replace

from nodeagent.components.allocations.component import Allocations
from nodeagent.components.allocations.journal_format import encode_records
from nodeagent.components.allocations.journal_task import Journal
from nodeagent.components.allocations.ledger import Ledger, Node, Record, open_record, replay
from nodeagent.components.allocations.reconcile import PodListPoll, reconcile
from nodeagent.components.allocations.recovery import Found, recover_ledger
from nodeagent.components.allocations.refuse import KubeletRun
from nodeagent.components.allocations.roles.grants import Entry, Freed, Granted
from nodeagent.components.allocations.tabulate import tabulate_living
from nodeagent.components.cdi.plan_specs import SpecOptions, plan_specs, render_specs
from nodeagent.components.deviceplugin.advertise import View, plan_list
from nodeagent.components.deviceplugin.answer import plan_answer, select_devices
from nodeagent.components.exporter.catalogue.selection import select_defaults
from nodeagent.components.exporter.exposition import join_text
from nodeagent.components.exporter.series.node_series import Knowledge, NodeSeries, SeriesSelection
from nodeagent.components.inventory.diff import decide_inventory, diff_inventories
from nodeagent.components.web.api.gpu_records import join_gpus
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.config.sections.sharing import SharedResource, SharingSettings, TimeSlicing
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.edge.kubelet.plugin_server import render_devices
from nodeagent.model.allocation import Allocation, AllocationTable, PodIdentity
from nodeagent.model.cdi import DriverFiles, DriverNode
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.gpu import Gpu, GpuPair, GpuReadout, Inventory, PathKind
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceId, DeviceUuid, ResourceName
from nodeagent.model.plugin import HandoutFacts
from nodeagent.model.ports import ContainerDevices, PodListing
from nodeagent.model.telemetry import NodeSample
from nodeagent.rules.cdi_names import PUBLIC_KINDS
from nodeagent.rules.offer.devices import Resource
from nodeagent.rules.offer.resources import plan_resources
from nodeagent.rules.placement.prefer import Preference
from nodeagent.rules.placement.topology import plan_topology
from tests.bench.curves import Operation, Work
from tests.fakes.journal_store import FakeKubelet, FakeStore
from tests.support.nodes import make_reader
from tests.support.samples import make_gpu, make_mig
from tests.unit.components.exporter.builders import START, make_mig_shares, make_sample

GPU = ResourceName("nvidia.com/gpu")
RUN = KubeletRun(identity="now", since_seconds=-1000.0)
MIG_EACH, GPUS = 7, 8
NOBODY = AllocationTable()


def _make_node(gpus: int, mig: int = 0) -> Inventory:
    """So many GPUs behind switches, each cut into so many MIG devices."""
    indices = range(gpus)
    made = tuple(make_gpu(index, mig=make_mig(index, mig) if mig else None) for index in indices)
    pairs = tuple(
        GpuPair(left=made[left].uuid, right=made[right].uuid, path=PathKind.NODE, nvlink_count=18, through_switch=True)
        for right in indices
        for left in range(right)
    )
    return Inventory(generation=1, gpus=made, pairs=pairs)


def _make_sample(inventory: Inventory) -> NodeSample:
    mig = len(inventory.gpus[0].mig_devices)
    gpus = tuple(make_sample(gpu.index, mig=make_mig_shares(gpu.index, mig) if mig else ()) for gpu in inventory.gpus)
    return NodeSample(time_seconds=START, gpus=gpus)


def _judge(inventory: Inventory) -> HealthReport:
    devices = (
        DeviceHealth(device=uuid, gpu=gpu.uuid, verdict=Verdict.HEALTHY, since_seconds=1.0)
        for gpu in inventory.gpus
        for uuid in _list_uuids(gpu)
    )
    return HealthReport(generation=1, devices=tuple(devices))


def _list_uuids(gpu: Gpu) -> tuple[DeviceUuid, ...]:
    return gpu.uuid, *(device.uuid for device in gpu.mig_devices)


def _plan_resource(inventory: Inventory, replicas: int = 1) -> Resource:
    shared = TimeSlicing(resources=(SharedResource(name="gpu", replicas=replicas),)) if replicas > 1 else None
    strategy: Literal["none", "single"] = "single" if inventory.gpus[0].mig_devices else "none"
    settings = Settings(
        sharing=SharingSettings(timeSlicing=shared) if shared is not None else SharingSettings(),
        device_plugin=DevicePluginSettings(mig_strategy=strategy),
    )
    (resource,) = plan_resources(inventory, settings).resources
    return resource


# The device plugin.


def _prefer(resource: Resource, inventory: Inventory, size: int) -> Work:
    """A question that is new each time: nothing is remembered from the one before."""
    topology, chance = plan_topology(inventory), Random(1)
    ids = [device.id for device in resource.devices]
    known = {device.id: device for device in resource.devices}
    settings, facts = DevicePluginSettings(), HandoutFacts()

    def work() -> object:
        preference = Preference(resource, topology, "distributed")
        chosen = preference.prefer(chance.sample(ids, len(ids)), (), size)
        return plan_answer(select_devices(resource, known, chosen), settings, facts, "token")

    return work


def _prefer_some(inventory: Inventory) -> Work:
    """Half of the GPUs, or one MIG device: as pods ask for them."""
    resource = _plan_resource(inventory)
    is_cut = bool(inventory.gpus[0].mig_devices)
    return _prefer(resource, inventory, 1 if is_cut else max(1, len(resource.devices) // 2))


def _tell_list(resource: Resource, inventory: Inventory) -> Work:
    view = View(inventory, _judge(inventory))
    return lambda: render_devices(plan_list(resource, view)).SerializeToString()


# The hardware, and what is made of it.


def _compare(inventory: Inventory) -> Work:
    """A readout that found nothing new, which is what nearly all of them do."""
    readout = GpuReadout(gpus=inventory.gpus, pairs=inventory.pairs)
    again = msgspec.json.decode(msgspec.json.encode(readout), type=GpuReadout)

    def work() -> object:
        after = decide_inventory(inventory, again)
        return diff_inventories(inventory, after)

    return work


def _render(inventory: Inventory, table: AllocationTable = NOBODY) -> Work:
    series, sample, known = NodeSeries(), _make_sample(inventory), Knowledge(inventory, None, table)
    requests, seconds = SeriesSelection(select_defaults()), iter(range(1_000_000_000))
    return lambda: join_text(list(series.render(replace(sample, time_seconds=START + next(seconds)), known, requests)))


def _join_state(inventory: Inventory, table: AllocationTable | None = None) -> Work:
    read = make_reader(_make_sample(inventory), _judge(inventory))
    return lambda: msgspec.json.encode(join_gpus(inventory, read, table, {}, now_seconds=START))


def _write_spec(inventory: Inventory) -> Work:
    capabilities: dict[str, int] = {}
    for gpu in inventory.gpus:
        for device in gpu.mig_devices:
            instance = f"gpu{gpu.minor}/gi{device.gpu_instance_id}"
            for name in (f"{instance}/access", f"{instance}/ci{device.compute_instance_id}/access"):
                capabilities[name] = len(capabilities) + 3
    paths = [
        *(f"/dev/nvidia{gpu.minor}" for gpu in inventory.gpus),
        *(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in capabilities.values()),
    ]
    nodes = tuple(DriverNode(path=path, host_path=path) for path in paths)
    files = DriverFiles(nodes=nodes, capability_minors=capabilities)
    return lambda: render_specs(plan_specs(inventory, files, SpecOptions(kinds=PUBLIC_KINDS)))


# Pods.


def _make_ledger(pods: int) -> Ledger:
    """Each holds a share of one of eight GPUs, and the kubelet has named it."""
    return replay(_grant(pods), 0)


def _grant(pods: int) -> Iterator[Record]:
    for number in range(1, pods + 1):
        allocation = Allocation(
            number=number,
            resource=GPU,
            devices=(_share(number),),
            since_seconds=START,
            pod=PodIdentity(namespace="team", name=f"pod-{number}"),
            container="main",
        )
        yield Granted(entry=Entry(allocation=allocation, seen_by=RUN.identity))


def _share(number: int) -> DeviceId:
    return DeviceId(f"{make_gpu(number % GPUS).uuid}::{number}")


def _list_pods(ledger: Ledger) -> PodListing:
    held = tuple(
        ContainerDevices(pod=one.pod, container=one.container, resource=one.resource, devices=one.devices)
        for one in ledger.table.allocations
        if one.pod is not None
    )
    return PodListing(pods=tuple(each.pod for each in held), containers=held)


def _admit(pods: int) -> Work:
    """One more pod's whole way through the keeper of allocations, with a disk that takes no time."""
    return _Admission(pods).admit


class _Sink(FakeStore):
    """A journal that is never full."""

    @property
    def size_bytes(self) -> int:
        return 0

    async def append(self, content: bytes, *, durable: bool = True) -> None:
        """Nothing is kept: what is measured is the way to here."""


class _Admission:
    """A keeper of allocations as it is while so many pods run."""

    def __init__(self, pods: int) -> None:
        clock, live, kubelet = SystemClock(), LiveSettings(Settings()), FakeKubelet()
        kubelet.run_name = RUN.identity
        kubelet.listing = _list_pods(_make_ledger(pods))
        content, _ = encode_records([open_record(_make_ledger(pods), "machine", "boot")], 0)
        bus = Bus(clock)
        conditions = Conditions(bus, clock, CATALOGUE)
        self._journal = Journal(
            bus,
            conditions,
            clock,
            live,
            kubelet,  # type: ignore[arg-type]  # as far as it is used
            open_store=lambda: _Sink(content),  # type: ignore[arg-type,return-value]  # likewise
            read_node=lambda: Node("machine", "boot"),
        )
        component = Allocations(bus, conditions, clock, live, self._journal)
        self._loop = asyncio.new_event_loop()
        weakref.finalize(self, self._loop.close)
        self._loop.run_until_complete(self._journal.start())
        self._loop.run_until_complete(component._recover())
        self._journal.tended.value = component._look

    def admit(self) -> object:
        """What is doubtful is asked for at each preference, then devices are recorded; always the same ones."""
        doubtful, recorded = (
            self._journal.doubtful(),
            self._loop.run_until_complete(self._journal.record(GPU, (_share(0),))),
        )
        self._journal.publish_granted()
        return doubtful, recorded


def _recover(pods: int) -> Work:
    """A journal to which each pod came and was named, and half of them went."""
    records: list[Record] = [open_record(Ledger(), "machine", "boot")]
    for number, granted in enumerate(_grant(2 * pods)):
        records.append(granted)
        if number % 2:
            records.append(Freed(number=number, at_seconds=START, why="given back"))
    content, _ = encode_records(records, 0)
    return lambda: recover_ledger(Found(current=content, previous=None), "machine", "boot", 1000)


def _begin_anew(pods: int) -> Work:
    ledger = _make_ledger(pods)
    return lambda: encode_records([open_record(ledger, "machine", "boot")], 0)


def _look(pods: int) -> Work:
    ledger = _make_ledger(pods)
    look = PodListPoll(
        listing=_list_pods(ledger),
        run=RUN,
        numbers_below=ledger.next_number,
        now_seconds=START,
        monotonic_seconds=0.0,
        free_after_seconds=30.0,
    )
    return lambda: reconcile(ledger, look, {})


def _list_operations() -> Iterator[Operation]:
    for axis, make in (("GPUs", _make_node), ("MIG devices", lambda size: _make_node(size // MIG_EACH, MIG_EACH))):
        yield from _list_node_operations(axis, make)
    shared = _make_node(GPUS)
    yield Operation("prefer and answer", "replicas", lambda size: _prefer(_share_out(size), shared, 1))
    yield Operation("list of devices", "replicas", lambda size: _tell_list(_share_out(size), shared))
    yield Operation("admission, decided and recorded", "pods", _admit, flat=True)
    yield Operation("recovery from the journal", "pods", _recover)
    yield Operation("journal begun anew", "pods", _begin_anew)
    yield Operation("look at the kubelet's list", "pods", _look)
    yield Operation("metrics", "pods", lambda size: _render(shared, _make_ledger(size).table))
    yield Operation("GPUs and holders for the API", "pods", lambda size: _join_state(shared, _make_ledger(size).table))
    yield Operation(
        "who holds what for the API", "pods", lambda size: partial(tabulate_living, _make_ledger(size).table)
    )


def _share_out(size: int) -> Resource:
    """So many replicas, on as few of the eight GPUs as a whole number of them allows."""
    return _plan_resource(_make_node(GPUS), max(1, size // GPUS))


def _list_node_operations(axis: str, make: Callable[[int], Inventory]) -> Iterator[Operation]:
    def on(work: Callable[[Inventory], Work]) -> Callable[[int], Work]:
        return lambda size: work(make(size))

    yield Operation("resources planned", axis, on(lambda node: partial(_plan_resource, node)))
    yield Operation("prefer and answer", axis, on(_prefer_some))
    yield Operation("list of devices", axis, on(lambda node: _tell_list(_plan_resource(node), node)))
    yield Operation("metrics", axis, on(_render))
    yield Operation("inventory compared", axis, on(_compare))
    yield Operation("GPUs for the API", axis, on(_join_state))
    yield Operation("CDI specification", axis, on(_write_spec))


OPERATIONS: Sequence[Operation] = tuple(_list_operations())
