"""A plugin that is found through the kubelet's `plugins_registry`."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from nodeagent.edge.kubelet import registry_session
from nodeagent.edge.kubelet.registry_session import RegistrySession
from nodeagent.model.ids import ResourceName
from nodeagent.model.ports import DevicePlugin
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.support.waiting import wait_until
from tests.support.wire.kubelets import KubeletUnderTest, Standing, no_crash, running_stand_in

GPU = ResourceName("nvidia.com/gpu")


@asynccontextmanager
async def running_registry_session(plugin: DevicePlugin, kubelet: KubeletUnderTest) -> AsyncIterator[Standing]:
    """A plugin that is kept registered, started once it is."""
    standing = Standing()
    registration = kubelet.plugins_registry_dir / "gpu-reg.sock"
    session = RegistrySession(
        plugin,
        kubelet.plugins_registry_dir.parent / "gpu.sock",
        registration,
        report=standing.reports.append,
        report_crash=no_crash,
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(session.run)
        yield standing
        tasks.cancel_scope.cancel()


async def test_kubelet_finds_the_plugin(short_dir: Path) -> None:
    """The socket in the registry is found, the plugin offered, pods get devices, and at the end all is taken back."""
    plugin = FakeDevicePlugin()
    async with running_stand_in(short_dir) as kubelet:
        async with running_registry_session(plugin, kubelet) as standing:
            await kubelet.wait_offer(GPU, 8, 8)
            assert not await kubelet.run_pod("pod", {GPU: 4})
            await wait_until(lambda: standing.now.devices)
            assert standing.now.registered
        await kubelet.wait_offer(GPU, 8, 0)
        assert [path.name for path in kubelet.plugins_registry_dir.iterdir()] == []


async def test_kubelet_restart_needs_nothing_of_us(short_dir: Path) -> None:
    """A new kubelet process finds the socket that is still there; the plugin makes no new one."""
    async with running_stand_in(short_dir) as kubelet:
        async with running_registry_session(FakeDevicePlugin(), kubelet):
            await kubelet.wait_offer(GPU, 8, 8)
            before = (kubelet.plugins_registry_dir / "gpu-reg.sock").stat().st_ctime_ns
            for _ in range(2):
                await kubelet.restart()
                await kubelet.wait_offer(GPU, 8, 8)
            assert (kubelet.plugins_registry_dir / "gpu-reg.sock").stat().st_ctime_ns == before


async def test_dropped_list_needs_a_new_socket(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that the kubelet has dropped comes back through a registration socket made anew, and only then."""
    monkeypatch.setattr(registry_session, "RETURN_SECONDS", 0.05)
    async with running_stand_in(short_dir) as kubelet:
        async with running_registry_session(FakeDevicePlugin(), kubelet) as standing:
            await kubelet.wait_offer(GPU, 8, 8)
            kubelet.drop_plugin(GPU)
            await kubelet.wait_offer(GPU, 8, 0)
            await kubelet.wait_offer(GPU, 8, 8)
            assert any("does not follow" in report.last_error for report in standing.reports)


async def test_removed_registration_is_made_anew(short_dir: Path) -> None:
    """A registration socket that somebody has removed, which takes the plugin from the kubelet, comes back."""
    async with running_stand_in(short_dir) as kubelet:
        async with running_registry_session(FakeDevicePlugin(), kubelet):
            await kubelet.wait_offer(GPU, 8, 8)
            (kubelet.plugins_registry_dir / "gpu-reg.sock").unlink()
            await wait_until(lambda: len(kubelet.kubelet.registrations) == 2)
            await kubelet.wait_offer(GPU, 8, 8)


async def test_refusal_is_told(short_dir: Path) -> None:
    """Why the kubelet does not take a plugin stands in the report."""
    plugin = FakeDevicePlugin(make_devices(1), resource="gpu")
    async with running_stand_in(short_dir) as kubelet, anyio.create_task_group() as tasks:
        standing = Standing()
        session = RegistrySession(
            plugin,
            short_dir / "gpu.sock",
            kubelet.plugins_registry_dir / "gpu-reg.sock",
            report=standing.reports.append,
            report_crash=no_crash,
        )
        tasks.start_soon(session.run)
        await wait_until(lambda: standing.reports)
        assert not standing.now.registered
        assert 'the ResourceName "gpu" is invalid' in standing.now.last_error
        # The kubelet tries again by itself, with growing pauses.
        began, count = time.monotonic(), len(standing.reports)
        await wait_until(lambda: len(standing.reports) > count)
        assert time.monotonic() - began > 0.2
        tasks.cancel_scope.cancel()
