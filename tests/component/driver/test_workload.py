"""The validation of a node by a pod with a GPU, on virtual time, with a made-up API server."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from nodeagent.components.driver.workload_task import AGAIN_SECONDS, INVALID, NO_API, WorkloadValidation
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import DriverSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.edge.kube.errors import KubeError
from nodeagent.edge.kube.own_pod import KubeValidationPod
from nodeagent.model.cluster import ValidationPod
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState, WorkloadResult
from tests.support.virtual_time import FakeClock
from tests.unit.components.driver.test_plan_workload import offer

pytestmark = pytest.mark.virtual_time

RUNNING, DONE = ValidationPod(phase="Running"), ValidationPod(phase="Succeeded")
FAILED = ValidationPod(phase="Failed", message="no GPU's device node")
FULL = ValidationPod(phase="Failed", reason="OutOfnvidia.com/gpu", message="none free")
PASSED = WorkloadResult(passed=True)
LIMIT_SECONDS = 300.0


class FakeValidationPods(KubeValidationPod):
    """Pods that show `ends` one after the other, and the last for good; without one they run for ever."""

    def __init__(self, *ends: ValidationPod) -> None:
        self.ends = list(ends)
        self.made: list[tuple[str, float]] = []
        self.there = 0
        self.trouble = ""
        self.is_stuck = False

    async def create(self, resource: str, limit_seconds: float) -> None:
        await anyio.lowlevel.checkpoint()
        if self.trouble:
            raise KubeError(self.trouble)
        self.made.append((resource, limit_seconds))
        self.there += 1

    async def follow(self) -> AsyncGenerator[ValidationPod | None, None]:
        yield RUNNING
        await anyio.sleep(1)
        if not self.ends:
            await anyio.sleep_forever()
        yield self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        raise AssertionError("the pod has ended, and nobody looks any more")

    async def remove(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.is_stuck and self.there:
            raise KubeError("cannot remove the pod")
        self.there = 0


class Node:
    def __init__(self, clock: FakeClock, pods: FakeValidationPods | None) -> None:
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        driver = DriverSettings(workload_validation=True, workload_validation_seconds=LIMIT_SECONDS)
        self._component = WorkloadValidation(self.bus, self.conditions, LiveSettings(Settings(driver=driver)), pods)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: self._component.run(task_status=task_status))
            yield
            tasks.cancel_scope.cancel()

    def show(self, phase: DriverPhase = DriverPhase.READY, version: str = "570", *resources: str) -> None:
        self.bus.publish_state(DriverState(phase=phase, driver_version=version), source="test")
        self.bus.publish_state(offer(*(resources or ("nvidia.com/gpu",))), source="test")

    def read(self) -> WorkloadResult | None:
        return self.bus.read(WorkloadResult)

    @property
    def detail(self) -> str:
        return next((each.detail for each in self.conditions.all_set() if each.code == INVALID), "")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def test_a_node_is_validated_once_for_each_driver(clock: FakeClock) -> None:
    """By one pod, which is gone afterwards; other news are no reason for another pod."""
    pods = FakeValidationPods(DONE)
    node = Node(clock, pods)
    async with node.running():
        await anyio.sleep(100)
        assert (pods.made, node.read()) == ([], None)
        node.show()
        await anyio.sleep(2)
        assert (pods.made, pods.there, node.read()) == ([("nvidia.com/gpu", LIMIT_SECONDS)], 0, PASSED)
        node.bus.publish_state(offer("nvidia.com/gpu", "example.com/nic"), source="test")
        await anyio.sleep(1000)
        assert len(pods.made) == 1
        node.show(version="580")
        await anyio.sleep(0.5)
        assert node.read() is None, "the result of the driver before is void"
        await anyio.sleep(2)
        assert (len(pods.made), node.read(), node.detail) == (2, PASSED, "")


async def test_a_lost_driver_voids_the_result(clock: FakeClock) -> None:
    """A pod is made again once the driver is back."""
    pods = FakeValidationPods(DONE)
    node = Node(clock, pods)
    async with node.running():
        node.show()
        await anyio.sleep(2)
        node.show(DriverPhase.NOT_LOADED, "")
        await anyio.sleep(100)
        assert (node.read(), len(pods.made)) == (None, 1)
        node.show()
        await anyio.sleep(2)
        assert (node.read(), len(pods.made)) == (PASSED, 2)


async def test_no_pod_is_made_before_the_kubelet_has_a_healthy_device(clock: FakeClock) -> None:
    """Of a driver that is back the kubelet hears last, and an earlier pod would be refused."""
    pods = FakeValidationPods(DONE)
    node = Node(clock, pods)
    async with node.running():
        node.show()
        node.bus.publish_state(offer("nvidia.com/gpu", healthy=False), source="test")
        await anyio.sleep(AGAIN_SECONDS)
        assert (pods.made, node.read(), node.detail) == ([], None, "")
        node.bus.publish_state(offer("nvidia.com/gpu"), source="test")
        await anyio.sleep(2)
        assert (len(pods.made), node.read()) == (1, PASSED)


async def test_a_pod_that_fails_is_told_and_another_tried_later(clock: FakeClock) -> None:
    """The condition has the container's words, and goes with the first pod that passes."""
    pods = FakeValidationPods(FAILED, DONE)
    node = Node(clock, pods)
    async with node.running():
        node.show()
        await anyio.sleep(2)
        assert node.read() == WorkloadResult(passed=False, detail=FAILED.message)
        assert node.detail == FAILED.message
        await anyio.sleep(AGAIN_SECONDS - 2)
        assert len(pods.made) == 1
        await anyio.sleep(4)
        assert (node.read(), node.detail, len(pods.made)) == (PASSED, "", 2)


async def test_a_full_node_is_no_fault(clock: FakeClock) -> None:
    """Its GPUs are all at work: it is tried again, and nobody is woken."""
    pods = FakeValidationPods(FULL)
    node = Node(clock, pods)
    async with node.running():
        node.show()
        await anyio.sleep(2)
        result = node.read()
        assert result is not None
        assert (result.is_busy, result.passed, node.detail) == (True, False, "")


async def test_a_pod_that_does_not_end_is_ended(clock: FakeClock) -> None:
    """After the time that the settings give."""
    pods = FakeValidationPods()
    node = Node(clock, pods)
    async with node.running():
        node.show()
        await anyio.sleep(LIMIT_SECONDS - 1)
        assert (pods.there, node.read()) == (1, None)
        await anyio.sleep(2)
        assert (pods.there, node.detail) == (0, "the pod has not ended within 300 s: Running")


async def test_the_pod_goes_with_the_agent(clock: FakeClock) -> None:
    """Also one that is under way."""
    pods = FakeValidationPods()
    node = Node(clock, pods)
    async with node.running():
        node.show()
        await anyio.sleep(5)
        assert pods.there == 1
    assert pods.there == 0


async def test_a_result_for_a_driver_that_is_gone_is_not_told(clock: FakeClock) -> None:
    """The driver changed while the pod ran."""
    pods = FakeValidationPods(DONE)
    node = Node(clock, pods)
    async with node.running():
        node.show()
        await anyio.sleep(0.5)
        node.show(DriverPhase.NOT_LOADED, "")
        await anyio.sleep(5)
        assert (node.read(), len(pods.made)) == (None, 1)


async def test_a_refusal_is_told_with_its_remedy_and_tried_again(clock: FakeClock) -> None:
    """And a pod that cannot be removed ends at its own deadline."""
    pods = FakeValidationPods(DONE)
    pods.trouble = "cannot make the pod: forbidden"
    node = Node(clock, pods)
    async with node.running():
        node.show()
        await anyio.sleep(2)
        assert node.detail == pods.trouble
        pods.trouble, pods.is_stuck = "", True
        await anyio.sleep(AGAIN_SECONDS + 2)
        assert (node.read(), node.detail, pods.there) == (PASSED, "", 1)


async def test_without_an_api_server_it_is_told_that_nothing_is_validated(clock: FakeClock) -> None:
    node = Node(clock, None)
    async with node.running():
        node.show()
        await anyio.sleep(1)
        assert (node.detail, node.read()) == (NO_API, None)
