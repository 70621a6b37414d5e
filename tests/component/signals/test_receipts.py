"""Receipts between the bus and the folders: when a folder begins, what is written when, and when a folder goes."""

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.signals.receipts_task import (
    RETRY_SECONDS,
    SWEEP_SECONDS,
    UNWRITTEN,
    ReceiptFolders,
    Receipts,
)
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import SignalsSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.model.cluster import ReceiptCounts
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.errors import NodeagentError
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.journal import FractionTable
from nodeagent.model.plugin import ContainerMount
from nodeagent.rules.container_receipts import name_allocation_receipt
from tests.component.cluster.harness import settle
from tests.support.gpus import gpu_uuid, make_gpu, make_inventory
from tests.support.virtual_time import FakeClock
from tests.unit.rules.test_signals import GPU, OTHER, make_fault, make_pod, make_table

pytestmark = pytest.mark.virtual_time

NODE = make_inventory([make_gpu(0), make_gpu(1)])
ON = Settings(signals=SignalsSettings(receipts=True))
LIMITS = ContainerMount(container_path="/run/nodeagent/vgpu/limits", host_path="/parts/p01/limits")


class FullDisk(NodeagentError):
    """No room."""


class FakeReceiptFiles:
    """The port `ReceiptFiles` in memory; counts the writes, and fails while the disk is full."""

    def __init__(self) -> None:
        self.folders: dict[str, dict[str, bytes]] = {}
        self.points: dict[str, Collection[tuple[str, bool]]] = {}
        self.written: list[tuple[str, ...]] = []
        self.is_full = False

    def _check(self) -> None:
        if self.is_full:
            raise FullDisk("no space left on device")

    def locate(self, name: str) -> str:
        return f"/receipts/{name}"

    async def open(self, name: str, files: Mapping[str, bytes], points: Collection[tuple[str, bool]]) -> None:
        self._check()
        self.folders.setdefault(name, {}).update(files)
        self.points[name] = points

    async def write(self, files: Mapping[str, Mapping[str, bytes]]) -> None:
        self._check()
        self.written.append(tuple(sorted(files)))
        for name, content in files.items():
            self.folders.setdefault(name, {}).update(content)

    async def read(self) -> Mapping[str, Mapping[str, bytes]]:
        self._check()
        return {name: dict(files) for name, files in self.folders.items()}

    async def list_names(self) -> Sequence[str]:
        self._check()
        return tuple(self.folders)

    async def remove(self, name: str) -> None:
        del self.folders[name]


class Stage:
    """The component with its folders; `files` may be those of an earlier agent."""

    def __init__(self, clock: FakeClock, settings: Settings = ON, files: FakeReceiptFiles | None = None) -> None:
        self.clock, self.bus = clock, Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.files = files or FakeReceiptFiles()
        self.folders = ReceiptFolders(self.bus, self.conditions, LiveSettings(settings), self.files)
        self.journal: FractionTable | None = FractionTable()

    @asynccontextmanager
    async def running(self, inventory: Inventory | None = NODE) -> AsyncIterator["Stage"]:
        receipts = Receipts(self.bus, self.clock, self.folders, lambda: self.journal)
        if inventory is not None:
            self.bus.publish_state(inventory, source="test")
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: receipts.run(task_status=task_status))
            await settle()
            yield self
            tasks.cancel_scope.cancel()

    async def hold(self, *devices: str) -> list[str]:
        """Pods with these devices, one each; the names of their folders."""
        table = make_table(*((make_pod(f"p{number}"), device) for number, device in enumerate(devices)))
        self.bus.publish_state(table, source="test")
        await settle(1)
        return [name_allocation_receipt(each) for each in table.allocations]

    async def break_gpu(self, number: int = 79, **changes: Any) -> None:
        self.bus.publish_fact(make_fault(number, **changes), source="test")
        await settle()

    async def judge(self, verdict: Verdict) -> None:
        health = DeviceHealth(
            device=gpu_uuid(0), gpu=gpu_uuid(0), verdict=verdict, since_seconds=self.clock.wall(), returns="by itself"
        )
        self.bus.publish_state(HealthReport(generation=1, devices=(health,)), source="test")
        await settle(1)

    def read(self, name: str, file: str = "faults.json") -> Any:
        content = self.files.folders.get(name, {}).get(file)
        return None if content is None else json.loads(content)

    def detail(self) -> str:
        return "".join(each.detail for each in self.conditions.all_set() if each.code == UNWRITTEN)


async def test_a_container_reads_of_its_devices_and_of_their_faults_alone(clock: FakeClock) -> None:
    """The devices before anything happens; the fault at once, the agent's answer with the verdict."""
    async with Stage(clock).running() as stage:
        hit, other = await stage.hold(GPU, f"{OTHER}::1")
        assert [gpu["uuid"] for gpu in stage.read(hit, "gpus.json")["gpus"]] == [GPU]
        assert [(gpu["index"], gpu["uuid"]) for gpu in stage.read(other, "gpus.json")["gpus"]] == [(0, OTHER)]
        assert (stage.read(hit), stage.read(other)) == (None, None)
        await stage.break_gpu()
        told = stage.read(hit)
        assert [(each["number"], each["blame"], each["devices"]) for each in told["faults"]] == [(79, "hardware", [0])]
        assert told["devices"] == [{"index": 0, "uuid": GPU, "restart_here": False, "agent": "nothing"}]
        await stage.judge(Verdict.UNHEALTHY)
        (device,) = stage.read(hit)["devices"]
        assert (device["agent"], device["returns"]) == ("withholds", "by itself")
        await settle(10)
        await stage.judge(Verdict.HEALTHY)
        assert stage.read(hit)["devices"] == [{"index": 0, "uuid": GPU, "restart_here": True, "agent": "nothing"}]
        assert stage.read(other) is None


async def test_a_quiet_hour_writes_nothing(clock: FakeClock) -> None:
    """Neither do containers that come and go write the others' files."""
    async with Stage(clock).running() as stage:
        await stage.hold(GPU)
        before = list(stage.files.written)
        await stage.hold(GPU)
        stage.bus.publish_state(replace(NODE, generation=2), source="test")
        await settle(3600)
        assert stage.files.written == before
        names = await stage.hold(GPU, OTHER)
        assert stage.files.written[len(before) :] == [(names[1],)]


async def test_the_program_of_one_container_is_no_fault_of_another(clock: FakeClock) -> None:
    """On a shared GPU nobody is blamed."""
    async with Stage(clock).running() as stage:
        names = await stage.hold(f"{GPU}::0", f"{GPU}::1")
        await stage.break_gpu(31)
        assert [stage.read(name)["faults"][0]["blame"] for name in names] == ["unknown", "unknown"]


async def test_a_folder_goes_some_time_after_its_holder(clock: FakeClock) -> None:
    """And stays while the journal does not tell who holds what."""
    async with Stage(clock).running() as stage:
        (name,) = await stage.hold(GPU)
        stage.journal = None
        await stage.hold()
        await settle(3 * SWEEP_SECONDS)
        assert name in stage.files.folders
        stage.journal = FractionTable()
        await settle(3 * SWEEP_SECONDS)
        assert stage.files.folders == {}
        (again,) = await stage.hold(GPU)
        assert stage.read(again, "gpus.json") is not None


async def test_the_next_agent_adopts_what_stands(clock: FakeClock) -> None:
    """It writes nothing again, counts on, and knows the numbers of devices that have gone meanwhile."""
    async with Stage(clock).running() as stage:
        (name,) = await stage.hold(GPU)
        await stage.break_gpu(31)
    heir = Stage(clock, files=stage.files)
    before = list(stage.files.written)
    async with heir.running(make_inventory([make_gpu(1)])):
        assert await heir.hold(GPU) == [name]
        assert stage.files.written == before
        await heir.break_gpu(31)
        (line,) = heir.read(name)["faults"]
        assert (line["count"], line["devices"]) == (2, [0])


async def test_a_component_that_failed_goes_on_where_it_was(clock: FakeClock) -> None:
    """What it has in memory is newer than the files."""
    stage = Stage(clock)
    async with stage.running():
        (name,) = await stage.hold(GPU)
        await stage.break_gpu(31)
    before = list(stage.files.written)
    async with stage.running():
        assert stage.files.written == before
        await stage.break_gpu(31)
        assert stage.read(name)["faults"][0]["count"] == 2


async def test_a_fault_waits_until_the_holders_are_known(clock: FakeClock) -> None:
    """As after a start, where the kernel log has it before the journal is read."""
    stage = Stage(clock)
    stage.journal = None
    async with stage.running():
        await stage.break_gpu()
        stage.journal = FractionTable()
        (name,) = await stage.hold(GPU)
        assert [line["number"] for line in stage.read(name)["faults"]] == [79]


async def test_without_gpus_nothing_is_known(clock: FakeClock) -> None:
    """The devices are numbered as soon as the inventory has them."""
    async with Stage(clock).running(None) as stage:
        (name,) = await stage.hold(GPU)
        assert stage.files.folders == {}
        stage.bus.publish_state(NODE, source="test")
        await settle(1)
        assert stage.read(name, "gpus.json") is not None


async def test_a_full_disk_is_a_condition_and_is_tried_again(clock: FakeClock) -> None:
    """Whatever has happened meanwhile is in the file then."""
    async with Stage(clock).running() as stage:
        (name,) = await stage.hold(GPU)
        stage.files.is_full = True
        await stage.break_gpu()
        await settle(31)
        assert stage.detail() == "no space left on device"
        failed = stage.bus.read(ReceiptCounts)
        assert failed is not None
        assert (failed.written, failed.failed > 0) == (1, True)
        await stage.break_gpu()
        await settle(SWEEP_SECONDS)
        stage.files.is_full = False
        assert await stage.folders.open_receipt("p01", (GPU,), ()) != ()
        assert stage.detail() != ""
        await settle(RETRY_SECONDS)
        assert (stage.detail(), stage.read(name)["faults"][0]["count"]) == ("", 2)
        told = stage.bus.read(ReceiptCounts)
        assert told is not None
        assert told.written == 3


async def test_folders_that_cannot_be_read_are_a_condition(clock: FakeClock) -> None:
    """The next write clears it."""
    stage = Stage(clock)
    stage.files.is_full = True
    async with stage.running():
        assert stage.detail()
        stage.files.is_full = False
        await stage.hold(GPU)
        assert stage.detail() == ""


async def test_a_folder_is_open_before_its_container_starts(clock: FakeClock) -> None:
    """With the devices, and with places for the mounts below it, as nobody can make them later."""
    async with Stage(clock).running() as stage:
        mounts = await stage.folders.open_receipt("p01", (OTHER, GPU), (LIMITS,))
        assert mounts == (ContainerMount(container_path="/run/nodeagent", host_path="/receipts/p01"),)
        assert [gpu["uuid"] for gpu in stage.read("p01", "gpus.json")["gpus"]] == [GPU, OTHER]
        assert stage.files.points["p01"] == (("vgpu/limits", False),)
        assert stage.files.written == []


async def test_a_folder_that_cannot_be_opened_keeps_no_container_from_its_start(clock: FakeClock) -> None:
    """It starts without the mount, which would have no source; the next that can be opened clears the condition."""
    async with Stage(clock).running() as stage:
        stage.files.is_full = True
        assert await stage.folders.open_receipt("p01", (GPU,), ()) == ()
        assert stage.detail() == "no space left on device"
        stage.files.is_full = False
        assert await stage.folders.open_receipt("p01", (GPU,), ()) != ()
        assert stage.detail() == ""


async def test_a_folder_without_known_devices_is_open_all_the_same(clock: FakeClock) -> None:
    """A MIG device made for a claim is newer than the inventory."""
    async with Stage(clock).running(None) as stage:
        assert await stage.folders.open_receipt("c-1", (GPU,), ()) != ()
        assert stage.files.folders == {"c-1": {}}
        stage.bus.publish_state(NODE, source="test")
        assert await stage.folders.open_receipt("c-2", ("MIG-new",), ()) != ()
        assert stage.files.folders["c-2"] == {}


async def test_switched_off_nobody_gets_a_receipt_and_who_has_one_reads_on(clock: FakeClock) -> None:
    """A running container keeps its mount."""
    async with Stage(clock).running() as stage:
        (name,) = await stage.hold(GPU)
    off = Stage(clock, Settings(), stage.files)
    async with off.running():
        assert await off.folders.open_receipt("p01", (GPU,), ()) == ()
        await off.hold(GPU, OTHER)
        assert list(off.files.folders) == [name]
        await off.break_gpu()
        assert off.read(name) is not None
