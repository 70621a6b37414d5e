"""Two stories of nodes that ate pods, told again with the stand-in kubelet, a real journal and the brake."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from nodeagent.components.offering.component import OfferingComponent
from nodeagent.core.clock import SystemClock
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.model.offering import Offering
from nodeagent.model.orders import UNCORDON_GPU, UncordonCommand
from nodeagent_sim.kubelet.kubelet import StandInKubelet
from nodeagent_sim.kubelet.pods import AdmissionRefused
from tests.component.deviceplugin.test_with_kubelet import GPU, Agent
from tests.support.gpus import gpu_uuid
from tests.unit.rules.test_signals import make_fault

BAD = gpu_uuid(3)
LOSSES, REFUSALS = 3, 5
"""After which a GPU is closed."""


@asynccontextmanager
async def braked(agent: Agent) -> AsyncIterator[OrderHandlers]:
    """The agent with its brake."""
    orders = OrderHandlers()
    async with agent.running(), anyio.create_task_group() as tasks:
        offering = OfferingComponent(agent.bus, agent.conditions, SystemClock(), agent.live, agent.journal, orders)
        await tasks.start(lambda *, task_status: offering.run(task_status=task_status))
        yield orders
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def node(short_dir: Path) -> AsyncIterator[tuple[StandInKubelet, Agent]]:
    kubelet = StandInKubelet(short_dir / "kubelet")
    async with anyio.create_task_group() as tasks:
        await tasks.start(kubelet.run)
        with anyio.fail_after(60):
            yield kubelet, Agent(short_dir, kubelet)
        tasks.cancel_scope.cancel()


async def hold_all_but_the_bad(kubelet: StandInKubelet) -> None:
    for number in range(8):
        await kubelet.add_pod("team", f"good-{number}", {GPU: 1})
    bad = kubelet.holders()[BAD]
    kubelet.delete_pod(bad.namespace, bad.name)


async def test_a_gpu_on_which_every_pod_dies_takes_four_at_most(short_dir: Path) -> None:
    """The others of the queue wait, also for a restarted agent, until a person opens the GPU."""
    async with node(short_dir) as (kubelet, agent):
        async with braked(agent):
            await hold_all_but_the_bad(kubelet)
            lost = 0
            # The end of the last pod may be known only by the request of the next.
            while lost <= LOSSES and kubelet.offers()[GPU].allocatable == 8:
                await kubelet.add_pod("team", f"train-{lost}", {GPU: 1})
                assert kubelet.holders()[BAD].name == f"train-{lost}"
                agent.bus.publish_fact(make_fault(94, gpu=BAD, devices=(BAD,), index=3), source="test")
                kubelet.delete_pod("team", f"train-{lost}")
                lost += 1
            await kubelet.wait_until(lambda: kubelet.offers()[GPU].allocatable == 7)
            assert lost >= LOSSES
            assert [each.code for each in agent.conditions.all_set() if each.key == BAD] == ["gpu-braked"]
        async with braked(agent) as orders:
            await kubelet.wait_until(lambda: kubelet.offers()[GPU].allocatable == 7)
            await orders.give(UNCORDON_GPU, UncordonCommand(gpu="3", who="ann"))
            await kubelet.wait_until(lambda: kubelet.offers()[GPU].allocatable == 8)
            await kubelet.add_pod("team", "at-last", {GPU: 1})


async def test_programs_that_crash_by_themselves_close_nothing(short_dir: Path) -> None:
    """With a user's XID and without one; the GPU is as free as before."""
    async with node(short_dir) as (kubelet, agent), braked(agent):
        await hold_all_but_the_bad(kubelet)
        for number in range(20):
            await kubelet.add_pod("team", f"train-{number}", {GPU: 1})
            if number % 2:
                agent.bus.publish_fact(make_fault(31, gpu=BAD, devices=(BAD,), index=3), source="test")
            kubelet.delete_pod("team", f"train-{number}")
        offering = agent.bus.read(Offering)
        assert offering is not None
        assert all(each.is_open for each in offering.doors)


async def test_a_node_that_refuses_every_pod_is_sent_five_at_most(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a full disk nothing can be recorded, a closing neither: all GPUs are closed nevertheless."""

    def fill(_: int) -> None:
        raise OSError(28, "no space left on device")

    async with node(short_dir) as (kubelet, agent), braked(agent):
        for sync in ("fdatasync", "fsync"):
            monkeypatch.setattr(os, sync, fill)
        for number in range(REFUSALS):
            with pytest.raises(AdmissionRefused):
                await kubelet.add_pod("team", f"train-{number}", {GPU: 1})
        await kubelet.wait_until(lambda: kubelet.offers()[GPU].allocatable == 0)
        assert len([each for each in agent.conditions.all_set() if each.code == "gpu-braked"]) == 8
        monkeypatch.undo()
