"""Two plugins offer one resource on one node: told, not fought, and healed when the other one leaves."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus

from nodeagent.edge.kubelet import list_check
from nodeagent.edge.kubelet.errors import PodResourcesUnavailable
from nodeagent.edge.kubelet.kubelet_state import KubeletState
from nodeagent.edge.kubelet.list_check import ListCheck, ListVerdict, judge_list
from nodeagent.edge.kubelet.socket_watch import POLL_EVERY_SECONDS
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.support.waiting import wait_until
from tests.support.wire.kubelets import StandIn, Standing, running_session, running_stand_in

GPU = ResourceName("nvidia.com/gpu")
Allocatable = Mapping[ResourceName, frozenset[DeviceId]]


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_check, "POLL_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(list_check, "CONFIRM_SECONDS", 0.02)


@asynccontextmanager
async def running_ours(root: Path, minor: int) -> AsyncIterator[tuple[StandIn, Standing]]:
    """A kubelet with our plugin, registered."""
    async with running_stand_in(root, minor=minor) as kubelet:
        with closing(KubeletState(kubelet.device_plugins_dir, kubelet.pod_resources_socket)) as account:
            async with running_session(
                FakeDevicePlugin(), kubelet.device_plugins_dir, "ours.sock", account.read_allocatable
            ) as standing:
                await kubelet.wait_offer(GPU, 8, 8)
                yield kubelet, standing


class Foreign:
    """Another plugin of the same resource, until told to leave."""

    def __init__(self, kubelet: StandIn, endpoint: str, count: int) -> None:
        self._kubelet, self._endpoint, self._count = kubelet, endpoint, count
        self.leave = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        plugin = FakeDevicePlugin(make_devices(self._count, prefix="foreign-"))
        async with running_session(plugin, self._kubelet.device_plugins_dir, self._endpoint):
            await self._kubelet.wait_offer(GPU, self._count, self._count)
            task_status.started()
            await self.leave.wait()


def count_registrations(kubelet: StandIn) -> int:
    return kubelet.kubelet.registrations.count(GPU)


@pytest.mark.long
@pytest.mark.parametrize(("minor", "endpoint"), [(36, "theirs.sock"), (36, "ours.sock"), (37, "theirs.sock")])
async def test_another_plugin_is_told_and_not_fought_and_outlived(short_dir: Path, minor: int, endpoint: str) -> None:
    """While it is there we stay as we are and say so; after its end the kubelet has our list, whatever its socket.

    Kubelets up to 1.36 drop our plugin at that end, kubelets from 1.37 go on with the other plugin's list.
    """
    async with running_ours(short_dir, minor) as (kubelet, standing), anyio.create_task_group() as tasks:
        foreign = Foreign(kubelet, endpoint, 4)
        await tasks.start(foreign.run)
        await wait_until(lambda: standing.now.contested)
        await anyio.sleep(3 * POLL_EVERY_SECONDS)
        assert count_registrations(kubelet) == 2
        assert kubelet.kubelet.offers()[GPU].capacity == 4
        assert standing.now.registered
        foreign.leave.set()
        await kubelet.wait_offer(GPU, 8, 8)
        await wait_until(lambda: standing.now.registered and not standing.now.contested)
        assert count_registrations(kubelet) == (3 if minor == 36 else 2)
        assert not await kubelet.run_pod("after", {GPU: 8})


async def test_a_path_taken_from_us_is_ours_again(short_dir: Path) -> None:
    """A kubelet from 1.37 refuses the other plugin, whose socket lies in the place of ours, until it goes."""
    async with running_ours(short_dir, 37) as (kubelet, standing):
        directory = kubelet.device_plugins_dir
        async with running_session(FakeDevicePlugin(make_devices(4)), directory, "ours.sock") as foreign:
            await wait_until(lambda: foreign.reports and "already connected" in foreign.now.last_error)
            await wait_until(lambda: "in place of" in standing.now.contested or foreign.now.registered)
        await kubelet.wait_offer(GPU, 8, 8)
        await wait_until(lambda: not standing.now.contested)
        assert not await kubelet.run_pod("after", {GPU: 8})


async def test_a_list_taken_as_sent_is_never_contested(short_dir: Path) -> None:
    """Health that changes, and pods that come, are no reason to suspect anybody."""
    plugin = FakeDevicePlugin()
    async with running_stand_in(short_dir) as kubelet, AsyncExitStack() as stack:
        account = stack.enter_context(closing(KubeletState(kubelet.device_plugins_dir, kubelet.pod_resources_socket)))
        async with running_session(
            plugin, kubelet.device_plugins_dir, "ours.sock", account.read_allocatable
        ) as standing:
            await kubelet.wait_offer(GPU, 8, 8)
            assert not await kubelet.run_pod("pod", {GPU: 8})
            for healthy in (True, False) * 3:
                devices = tuple(
                    AdvertisedDevice(id=each.id, healthy=healthy or number > 0)
                    for number, each in enumerate(make_devices(8))
                )
                plugin.set_devices(devices)
                await anyio.sleep(POLL_EVERY_SECONDS)
            assert not any(report.contested for report in standing.reports)
            assert kubelet.kubelet.registrations == (GPU,)


@pytest.mark.parametrize(
    ("healthy", "allocatable", "verdict"),
    [
        ("ab", "ab", ListVerdict.AS_SENT),
        ("", "", ListVerdict.AS_SENT),
        ("ab", "a", ListVerdict.ANOTHER),
        ("ab", "cd", ListVerdict.ANOTHER),
        ("", "c", ListVerdict.ANOTHER),
        ("ab", "", ListVerdict.NONE),
    ],
)
def test_judged_by_healthy_devices(healthy: str, allocatable: str, verdict: ListVerdict) -> None:
    """Unhealthy devices of ours do not count, for the kubelet does not offer them."""
    sent = [AdvertisedDevice(id=DeviceId(name), healthy=name in healthy) for name in "abx"]
    assert judge_list(sent, frozenset(map(DeviceId, allocatable))) is verdict


def answering(*answers: str | Exception) -> Callable[[], Awaitable[Allocatable]]:
    left = list(answers)

    async def read() -> Allocatable:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {GPU: frozenset(map(DeviceId, answer))}

    return read


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("answers", "verdicts"),
    [
        (("ab", "c", "c", "ab", "ab"), "AS_SENT AS_SENT ANOTHER ANOTHER AS_SENT"),
        (("", "ab", "", ""), "AS_SENT AS_SENT AS_SENT NONE"),
        (("c", "", "c", "c"), "AS_SENT AS_SENT AS_SENT ANOTHER"),
        (("c", PodResourcesUnavailable("ask", "socket", "down"), "c", "c"), "AS_SENT AS_SENT AS_SENT ANOTHER"),
    ],
)
async def test_a_difference_counts_when_it_is_seen_twice_in_a_row(
    answers: tuple[str | Exception, ...], verdicts: str
) -> None:
    """One look may fall between a list and its arrival; silence proves nothing."""
    sent = tuple(AdvertisedDevice(id=DeviceId(name), healthy=True) for name in "ab")
    check = ListCheck(GPU, answering(*answers), dict)
    found = []
    for _ in answers:
        await anyio.sleep(1)
        found.append((await check.look(sent)).name)
    assert " ".join(found) == verdicts


@pytest.mark.virtual_time
async def test_a_list_that_changes_meanwhile_begins_anew() -> None:
    """What was suspected of the list before says nothing of this one."""
    check = ListCheck(GPU, answering("c", "c", "c"), dict)
    for count, verdict in ((1, "AS_SENT"), (2, "AS_SENT"), (2, "ANOTHER")):
        await anyio.sleep(1)
        sent = tuple(AdvertisedDevice(id=DeviceId(str(number)), healthy=True) for number in range(count))
        assert (await check.look(sent)).name == verdict


@pytest.mark.virtual_time
async def test_a_kubelet_that_does_not_answer_in_time_is_not_waited_for() -> None:
    """The registration is watched on; a slow account is no account."""

    async def hang() -> Allocatable:
        await anyio.sleep_forever()
        raise AssertionError

    check = ListCheck(GPU, hang, dict)
    await anyio.sleep(1)
    began = anyio.current_time()
    assert await check.look(()) is ListVerdict.AS_SENT
    assert anyio.current_time() - began == pytest.approx(list_check.ANSWER_SECONDS)


async def test_without_an_account_there_is_no_suspicion() -> None:
    """Where nobody can be asked everything is taken to be as sent."""
    assert await ListCheck(GPU, None, dict).look(make_devices(3)) is ListVerdict.AS_SENT
