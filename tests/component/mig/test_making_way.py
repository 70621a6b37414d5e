"""Others make way for a change where that is wanted: pods are evicted, DaemonSets paused, and nobody is left so."""

from collections.abc import Mapping, Sequence

import anyio
import pytest

from nodeagent.components.mig.clients import GIVE_BACK_SECONDS
from nodeagent.components.mig.component import KNOWN_SECONDS
from nodeagent.components.mig.request import Remembered, decode_remembered, encode_remembered
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.cluster import DEPLOY_LABEL, PAUSED_FOR_MIG, Eviction
from nodeagent.model.errors import DriverUnavailable, NodeagentError
from tests.component.mig.harness import World
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

EXPORTER = f"{DEPLOY_LABEL}dcgm-exporter"
SEVEN = ["1g.10gb"] * 7


class Cluster:
    """The ports to the API server: pods go when they are asked, and labels are kept."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.answers: list[Eviction | NodeagentError] = []
        self.asked: list[PodIdentity] = []
        self.labels = {EXPORTER: "true", f"{DEPLOY_LABEL}dcgm": "false"}
        self.written: list[tuple[str, str]] = []
        self.pods: tuple[str, ...] = ()
        self.is_away = False

    async def evict_pod(self, pod: PodIdentity) -> Eviction:
        self.asked.append(pod)
        answer = self.answers.pop(0) if self.answers else Eviction.ASKED
        if isinstance(answer, NodeagentError):
            raise answer
        if answer is Eviction.ASKED:
            self.world.hold()
        return answer

    async def read_labels(self) -> Mapping[str, str]:
        self._reach()
        return dict(self.labels)

    async def write_label(self, key: str, value: str) -> None:
        self._reach()
        self.labels[key] = value
        self.written.append((key, value))

    async def list_pods(self, applications: Sequence[str]) -> tuple[str, ...]:
        self._reach()
        assert applications == ("nvidia-dcgm-exporter",)
        return self.pods

    def _reach(self) -> None:
        if self.is_away:
            raise DriverUnavailable("reach the API server", "it is away")


def meet(world: World) -> Cluster:
    """A world with a cluster round it."""
    cluster = world.cluster = Cluster(world)
    return cluster


async def test_pods_are_evicted_as_their_budgets_allow(clock: FakeClock) -> None:
    """Asked again while a budget or the API server says no; what keeps them is told."""
    world = World(clock, when_busy="evict")
    cluster = meet(world)
    cluster.answers = [Eviction.BLOCKED, DriverUnavailable("evict", "it is away")]
    async with world.running():
        world.hold((await world.look()).gpus[0].uuid)
        world.ask("all-1g.10gb")
        state = await world.until(lambda state: any("budget" in one.doing for one in state.changes))
        assert state.changes[0].doing == (
            "evicts ns/train-0 (main); the disruption budget of ns/train-0 allows no eviction now"
        )
        await world.until(lambda state: any("it is away" in one.doing for one in state.changes))
        await world.until_standing("success")
        assert await world.profiles() == [SEVEN] * 8
        assert [pod.uid for pod in cluster.asked] == ["uid-0"] * 3
        assert not world.codes()


async def test_pods_that_do_not_go_end_the_change(clock: FakeClock) -> None:
    """After the time that is set, with nothing changed."""
    world = World(clock, when_busy="evict", evict_timeout_seconds=30.0)
    cluster = meet(world)
    cluster.answers = [Eviction.BLOCKED] * 100
    async with world.running():
        world.hold((await world.look()).gpus[0].uuid)
        world.ask("all-1g.10gb")
        state = await world.until_standing("failed")
        assert state.detail.startswith("GPU 0 is still used by ns/train-0 (main) after 30 s")
        assert len(cluster.asked) <= 7
        assert (await world.profiles())[0] == ["whole"]


async def test_without_an_api_server_pods_are_waited_for(clock: FakeClock) -> None:
    """And it is said why nobody evicts them."""
    world = World(clock, when_busy="evict")
    async with world.running():
        world.hold((await world.look()).gpus[0].uuid)
        world.ask("all-1g.10gb")
        await world.until(lambda state: any("waits" in one.doing for one in state.changes))
        (waiting,) = [one for one in world.conditions.all_set() if one.code == "mig-change-waits"]
        assert "there is no API server that could evict them" in waiting.detail
        world.hold()
        await world.until_standing("success")


async def test_other_daemonsets_are_paused_and_given_back(clock: FakeClock) -> None:
    """Once for all GPUs, after nobody is waited for any more; what is switched off stays off."""
    world = World(clock, pause_clients=True)
    cluster = meet(world)
    cluster.pods = ("gpu/dcgm-exporter-x",)
    async with world.running():
        world.hold(*(gpu.uuid for gpu in (await world.look()).gpus))
        world.ask("all-1g.10gb")
        await world.until(lambda state: all("waits" in one.doing for one in state.changes))
        assert cluster.written == []
        world.hold()
        await world.until(lambda state: any("to be gone: gpu/dcgm-exporter-x" in one.doing for one in state.changes))
        assert (await world.profiles())[0] == ["whole"]
        cluster.is_away = True
        await world.until(lambda state: any("it is away" in one.doing for one in state.changes))
        cluster.is_away, cluster.pods = False, ()
        await world.until_standing("success")
        assert cluster.written == [(EXPORTER, PAUSED_FOR_MIG), (EXPORTER, "true")]
        assert cluster.labels == {EXPORTER: "true", f"{DEPLOY_LABEL}dcgm": "false"}


async def test_a_pause_ends_while_somebody_is_waited_for(clock: FakeClock) -> None:
    """A pod may keep the second GPU for days."""
    world = World(clock, pause_clients=True)
    cluster = meet(world)
    async with world.running():
        world.hold((await world.look()).gpus[1].uuid)
        world.ask("all-1g.10gb")
        await world.until(lambda state: any("train-0" in one.doing for one in state.changes))
        await anyio.sleep(1)
        assert cluster.labels[EXPORTER] == "true"
        assert (await world.profiles())[0] == SEVEN
        world.hold()
        await world.until_standing("success")
        assert cluster.labels[EXPORTER] == "true"


async def test_a_change_that_fails_leaves_nobody_paused(clock: FakeClock) -> None:
    """Neither where the driver refuses, nor where what is paused does not go."""
    world = World(clock, pause_clients=True)
    cluster = meet(world)
    async with world.running():
        await world.gpus.inject("mig-refuse", ["create"])
        world.ask("all-1g.10gb")
        await world.until_standing("failed")
        assert cluster.labels[EXPORTER] == "true"
        cluster.pods = ("gpu/dcgm-exporter-x",)
        world.ask("all-balanced")
        state = await world.until(lambda state: state.layout == "all-balanced" and state.standing == "failed", 600)
        assert state.detail == "after 300 s others are still paused and not gone: gpu/dcgm-exporter-x"
        assert cluster.labels[EXPORTER] == "true"


@pytest.mark.parametrize("step", [1, 3])
async def test_whoever_is_killed_gives_back_afterwards(clock: FakeClock, step: int) -> None:
    """What was owed was remembered before anything was paused."""
    world = World(clock, pause_clients=True)
    cluster = meet(world)
    async with world.running():
        world.book.kill_at, end = step, world.book.kill

        def kill() -> None:
            cluster.is_away = True  # a kill leaves no time to give anything back
            end()

        world.book.kill = kill
        world.ask("all-1g.10gb")
        await anyio.sleep_forever()
    assert cluster.labels[EXPORTER] == PAUSED_FOR_MIG
    cluster.is_away = False
    world.book.kill_at = 0
    async with world.running():
        await world.until_standing("success")
        assert cluster.labels[EXPORTER] == "true"


async def test_an_api_server_that_is_away_is_asked_until_it_is_back(clock: FakeClock) -> None:
    """And people are told meanwhile."""
    world = World(clock)
    cluster = meet(world)
    cluster.labels[EXPORTER] = PAUSED_FOR_MIG
    cluster.is_away = True
    world.store.body = encode_remembered(Remembered(paused={EXPORTER: "true"}))
    async with world.running():
        await anyio.sleep(30)
        assert "mig-clients-paused" in world.codes()
        cluster.labels[EXPORTER] = f"{PAUSED_FOR_MIG}_paused-for-driver-upgrade"
        cluster.is_away = False
        await anyio.sleep(10)
        assert "mig-clients-paused" in world.codes()
        cluster.labels[EXPORTER] = PAUSED_FOR_MIG
        await anyio.sleep(10)
        assert cluster.labels[EXPORTER] == "true"
        assert not world.codes()


async def test_nobody_is_paused_who_could_be_forgotten(clock: FakeClock) -> None:
    """Where it cannot be remembered what is owed, nothing changes."""
    world = World(clock, pause_clients=True)
    cluster = meet(world)
    async with world.running():
        world.store.trouble = "no space left on device"
        world.ask("all-1g.10gb")
        state = await world.until_standing("failed")
        assert "could not be remembered: no space left on device" in state.detail
        assert cluster.written == []


async def test_what_was_given_back_is_owed_until_that_is_remembered(clock: FakeClock) -> None:
    """A disk that fails meanwhile is told, and keeps neither the change nor those who were paused."""
    world = World(clock, pause_clients=True)
    cluster = meet(world)
    cluster.pods = ("gpu/dcgm-exporter-x",)
    async with world.running():
        world.ask("all-1g.10gb")
        await world.until(lambda state: any("to be gone" in one.doing for one in state.changes))
        world.store.trouble, cluster.pods = "no space left on device", ()
        await world.until_standing("success")
        assert cluster.labels[EXPORTER] == "true"
        assert [(one.code, one.detail) for one in world.conditions.all_set()] == [
            ("mig-clients-paused", "no space left on device")
        ]
        world.store.trouble = ""
        await anyio.sleep(GIVE_BACK_SECONDS + 1)  # of virtual time: the next attempt
        assert not world.codes()
        assert world.store.body is not None
        assert not decode_remembered(world.store.body).paused
        assert cluster.written == [(EXPORTER, PAUSED_FOR_MIG), (EXPORTER, "true")]


async def test_what_is_owed_without_an_api_server_is_told(clock: FakeClock) -> None:
    """Somebody has taken the credentials away meanwhile."""
    world = World(clock)
    world.store.body = encode_remembered(Remembered(paused={EXPORTER: "true"}))
    async with world.running():
        await anyio.sleep(30)
        assert "mig-clients-paused" in world.codes()


async def test_a_driver_that_never_comes_back_keeps_nobody_paused(clock: FakeClock) -> None:
    """What was begun is waited for a while, then they are given back all the same."""
    world = World(clock)
    cluster = meet(world)
    cluster.labels[EXPORTER] = PAUSED_FOR_MIG
    world.store.body = encode_remembered(Remembered(paused={EXPORTER: "true"}))
    world.book.is_known = False
    async with world.running():
        await anyio.sleep(KNOWN_SECONDS - 1)
        assert cluster.labels[EXPORTER] == PAUSED_FOR_MIG
        cluster.is_away = True
        await anyio.sleep(30)
        assert "mig-clients-paused" in world.codes()
        cluster.is_away = False
        await anyio.sleep(10)
        assert cluster.labels[EXPORTER] == "true"
        assert not world.codes()
