"""Metadata files through a claim's life: written in every Prepare, and in nobody's way where they cannot be."""

import json
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from nodeagent.components.claims.component import NODE_PATIENCE_SECONDS
from nodeagent.components.claims.metadata import ClaimMetadata
from nodeagent.components.claims.reconcile import POLL_INTERVAL_SECONDS
from nodeagent.components.signals.receipts_task import ReceiptFolders
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.claims import ClaimsSettings
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import CdiSpecsWritten
from nodeagent.model.ids import PciAddress
from tests.component.claims.harness import ONE, World, api
from tests.component.signals.test_receipts import ON, FakeReceiptFiles
from tests.support.claims import DRIVER, make_claim, make_reference, make_result
from tests.support.gpus import gpu_uuid
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time
CODE = "claim-metadata-not-written"
PLACE = f"/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c1/gpu/{DRIVER}-metadata.json"


@pytest.fixture
def world(clock: FakeClock) -> World:
    world = World(clock)
    world.kubelet_version = "v1.37.2"
    return world


def read(world: World, uid: str = "claim-1", request: str = "gpu") -> Any:
    return json.loads(world.metadata.files[uid][request].splitlines()[0])


def mounts(world: World, uid: str = "claim-1") -> list[tuple[str, str]]:
    return [(one.host_path, one.container_path) for each in world.specs.files[uid] for one in each.mounts]


async def test_a_claim_has_its_files_before_it_is_answered_and_none_after_its_end(world: World) -> None:
    """The mount comes with the device, read only."""
    api(world)
    async with world.running():
        world.bus.publish_state(DriverState(phase=DriverPhase.READY, driver_version="580.65.06"), source="driver")
        assert await world.prepare() == {"claim-1": ONE}
        assert mounts(world) == [("/metadata/claim-1/gpu.json", PLACE)]
        assert all(one.read_only for each in world.specs.files["claim-1"] for one in each.mounts)
        (device,) = read(world)["requests"][0]["devices"]
        assert (device["name"], device["attributes"]["driverVersion"]) == ("gpu-0", {"version": "580.65.6"})
        await world.prepare()
        assert (world.metadata.written, read(world)["metadata"]["generation"]) == (1, 1)
        assert await world.unprepare() == {"claim-1": ""}
        assert (world.metadata.files, world.codes) == ({}, [])


async def test_each_device_of_a_claim_brings_the_receipt_of_the_claim(world: World) -> None:
    """Whichever requests a container names; without devices to look at, and none for a claim of these alone."""
    assert world.api is not None
    results = [make_result("gpu-0", "a"), make_result("gpu-2", "b"), make_result("gpu-1", "look", is_admin=True)]
    world.api.put(make_claim(*results), make_claim(make_result("gpu-1", is_admin=True), uid="claim-2", name="c2"))
    files = FakeReceiptFiles()
    receipts = ReceiptFolders(world.bus, world.conditions, LiveSettings(ON), files)
    world.makers = world.makers._replace(receipts=receipts)
    async with world.running():
        await world.prepare()
        await world.prepare(make_reference("claim-2", "c2"))
        hosts = [[one.host_path for one in each.mounts] for each in world.specs.files["claim-1"]]
        assert [each[0] for each in hosts] == [files.locate("c-claim-1")] * 3
        told = json.loads(files.folders["c-claim-1"]["gpus.json"])["gpus"]
        assert [(each["index"], each["uuid"]) for each in told] == [(0, gpu_uuid(0)), (1, gpu_uuid(2))]
        assert list(files.folders) == ["c-claim-1"]


async def test_the_first_device_of_each_request_brings_the_file_of_the_request(world: World) -> None:
    """A container gets the devices of the requests that it names, and with them the files."""
    assert world.api is not None
    results = [make_result("gpu-0", "a"), make_result("gpu-1", "a"), make_result("gpu-2", "b")]
    world.api.put(make_claim(*results, pod_claim_name="gpus"))
    async with world.running():
        await world.prepare()
        found = {each.name: [one.host_path for one in each.mounts] for each in world.specs.files["claim-1"]}
        assert found == {
            "claim-1-gpu-0": ["/metadata/claim-1/a.json"],
            "claim-1-gpu-1": [],
            "claim-1-gpu-2": ["/metadata/claim-1/b.json"],
        }
        assert "/resourceclaimtemplates/gpus/a/" in mounts(world)[0][1]
        assert [one["name"] for one in read(world, request="a")["requests"][0]["devices"]] == ["gpu-0", "gpu-1"]


async def test_two_requests_for_one_device_have_a_file_each(world: World) -> None:
    """As where one of them is to look at it; the device has one name, and brings both."""
    assert world.api is not None
    world.api.put(make_claim(make_result("gpu-0", "a"), make_result("gpu-0", "b", is_admin=True)))
    async with world.running():
        await world.prepare()
        brought = [[one.host_path for one in each.mounts] for each in world.specs.files["claim-1"]]
        assert brought == [["/metadata/claim-1/a.json", "/metadata/claim-1/b.json"]] * 2


@pytest.mark.parametrize(("choice", "version", "has"), [("false", "v1.37.2", False), ("true", "v1.34.0", True)])
async def test_a_setting_decides_before_the_version(world: World, choice: Any, version: str, *, has: bool) -> None:
    api(world)
    world.kubelet_version = version
    world.live.replace(Settings(claims=ClaimsSettings(enabled=True, metadata_files=choice)))
    async with world.running():
        await world.prepare()
        assert ("claim-1" in world.metadata.files) is has
        assert bool(mounts(world)) is has


async def test_a_claim_keeps_what_was_decided_for_it(world: World) -> None:
    """A container that starts again in its pod finds what it found before, whatever is set since."""
    api(world)
    async with world.running():
        await world.prepare()
    world.live.replace(Settings(claims=ClaimsSettings(enabled=True, metadata_files="false")))
    async with world.running():
        await world.prepare(make_reference(), make_reference("claim-2", "c2"))
        assert mounts(world) == [("/metadata/claim-1/gpu.json", PLACE)]
        assert mounts(world, "claim-2") == []


async def test_the_first_claim_waits_for_the_version_and_no_later_one_does(world: World, clock: FakeClock) -> None:
    """An agent that has just started is asked before it knows its node; one that never hears of it is not held up."""
    api(world)
    world.knows_node = False
    async with world.running():
        began = clock.monotonic()
        await world.prepare()
        assert clock.monotonic() - began == NODE_PATIENCE_SECONDS
        began = clock.monotonic()
        await world.prepare(make_reference("claim-2", "c2"))
        assert clock.monotonic() == began
        assert world.metadata.files == {}


async def test_a_boot_that_takes_the_files_takes_them_from_no_claim(world: World) -> None:
    """They are written when the agent starts, before the kubelet asks, and whenever the node's own files are."""
    api(world)
    async with world.running():
        await world.prepare()
    before = world.metadata.files.pop("claim-1")
    world.specs.files.clear()
    async with world.running():
        world.bus.publish_fact(CdiSpecsWritten(written=(), removed=(), generation=1), source="cdi")
        await anyio.sleep(0.1)
        assert world.metadata.files["claim-1"] == before
        assert mounts(world) == [("/metadata/claim-1/gpu.json", PLACE)]


async def test_a_successor_of_the_same_name_keeps_its_own_files(world: World) -> None:
    """The end of the one before may come when the next is there already."""
    assert world.api is not None
    world.api.put(make_claim(make_result()))
    async with world.running():
        await world.prepare()
        world.api.put(make_claim(make_result("gpu-1"), uid="next"))
        await world.prepare(make_reference("next"))
        assert await world.unprepare() == {"claim-1": ""}
        assert list(world.metadata.files) == ["next"]
        assert read(world, "next")["requests"][0]["devices"][0]["name"] == "gpu-1"


async def test_a_claim_whose_files_cannot_be_written_is_prepared_without(world: World) -> None:
    """A program that misses a file may go on without; a pod that never starts cannot."""
    api(world)
    world.metadata.broken = "cannot write /metadata: no space left"
    async with world.running():
        assert await world.prepare() == {"claim-1": ONE}
        assert (mounts(world), world.codes) == ([], [CODE])
        (told,) = world.conditions.all_set()
        assert (told.key, told.detail) == ("claim-1", "ns/c1: cannot write /metadata: no space left")
        world.metadata.broken = ""
        assert await world.prepare() == {"claim-1": ONE}
        assert (mounts(world), world.codes) == ([("/metadata/claim-1/gpu.json", PLACE)], [])


async def test_each_claim_without_files_is_told_once(world: World) -> None:
    """The second says nothing of the first anew."""
    api(world)
    world.metadata.broken = "no space left"
    with capture_logs() as lines:
        async with world.running():
            await world.prepare()
            await world.prepare(make_reference("claim-2", "c2"))
            assert [one.key for one in world.conditions.all_set()] == ["claim-1", "claim-2"]
    assert [line["uid"] for line in lines if line["event"] == "claim_metadata_not_written"] == ["claim-1", "claim-2"]


async def test_a_file_that_cannot_be_written_anew_stays_where_it_is(world: World) -> None:
    """A container that starts again finds the one before."""
    api(world)
    async with world.running():
        await world.prepare()
        world.metadata.broken = "no space left"
        world.bus.publish_state(DriverState(phase=DriverPhase.READY, driver_version="590.1"), source="driver")
        await world.prepare()
        assert (mounts(world), world.codes) == ([("/metadata/claim-1/gpu.json", PLACE)], [CODE])


async def test_files_that_cannot_be_removed_keep_no_pod_from_ending(world: World) -> None:
    """They are removed with those that nobody knows."""
    api(world)
    async with world.running():
        await world.prepare()
        world.metadata.broken = "read-only file system"
        assert await world.unprepare() == {"claim-1": ""}
        assert world.codes == [CODE]
        await anyio.sleep(POLL_INTERVAL_SECONDS + 1)
        assert [(one.code, one.key) for one in world.conditions.all_set()] == [(CODE, "")]
        world.metadata.broken = ""
        await anyio.sleep(POLL_INTERVAL_SECONDS + 1)
        assert (world.metadata.files, world.codes) == ({}, [])


async def test_what_a_claim_has_is_not_removed_with_what_nobody_knows(world: World) -> None:
    api(world)
    world.metadata.files["left"] = {"gpu": b"{}"}
    async with world.running():
        await world.prepare()
        await anyio.sleep(POLL_INTERVAL_SECONDS + 1)
        assert list(world.metadata.files) == ["claim-1"]


async def test_the_tree_above_a_gpu_is_told_where_it_can_be_read(world: World) -> None:
    """Where it cannot, the claim is prepared, and the condition says so."""
    api(world)
    asked: list[frozenset[PciAddress]] = []

    async def read_roots(addresses: Any) -> dict[PciAddress, str]:
        asked.append(addresses)
        if len(asked) > 1:
            raise NodeagentError("/sys does not answer")
        return dict.fromkeys(addresses, "pci0000:00")

    world.makers = world.makers._replace(metadata=ClaimMetadata(world.metadata, DRIVER, read_roots))
    async with world.running():
        await world.prepare()
        (device,) = read(world)["requests"][0]["devices"]
        assert device["attributes"]["resource.kubernetes.io/pcieRoot"] == {"string": "pci0000:00"}
        assert asked == [{world.inventory.gpus[0].pci.address}]
        assert await world.prepare() == {"claim-1": ONE}
        assert world.codes == [CODE]
