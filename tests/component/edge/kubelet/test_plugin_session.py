"""A plugin stays registered through everything that kubelets, and people, do to it."""

import socket
import time
from pathlib import Path

import anyio
import pytest

from nodeagent.edge.grpc.errors import SocketUnavailable
from nodeagent.edge.kubelet import plugin_server, plugin_session, registrar
from nodeagent.edge.kubelet.errors import KubeletUnavailable, RegistrationRefused
from nodeagent.edge.kubelet.plugin_session import PluginSession
from nodeagent.edge.kubelet.registrar import register_plugin
from nodeagent.edge.kubelet.socket_watch import POLL_EVERY_SECONDS
from nodeagent.model.ids import ResourceName
from nodeagent.model.plugin import PluginOptions
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.support.waiting import wait_until
from tests.support.wire.kubelets import no_crash, running_session, running_stand_in

GPU = ResourceName("nvidia.com/gpu")


async def test_waits_for_a_kubelet_that_is_not_there_yet(short_dir: Path) -> None:
    """A plugin that is up before the kubelet registers when it comes, even when its directory is not there."""
    async with running_session(FakeDevicePlugin(), short_dir / "device-plugins") as standing:
        await anyio.wait_all_tasks_blocked()
        assert standing.reports == []
        async with running_stand_in(short_dir) as kubelet:
            await kubelet.wait_offer(GPU, 8, 8)


async def test_dropped_list_is_healed_at_once(short_dir: Path) -> None:
    """When the kubelet drops the list of devices, which it never asks for again, the plugin registers again."""
    async with running_stand_in(short_dir) as kubelet:
        async with running_session(FakeDevicePlugin(), kubelet.device_plugins_dir) as standing:
            for _ in range(3):
                await kubelet.wait_offer(GPU, 8, 8)
                await wait_until(lambda: standing.now.devices and standing.now.registered)
                kubelet.drop_plugin(GPU)
                await kubelet.wait_offer(GPU, 8, 0)
            await kubelet.wait_offer(GPU, 8, 8)
            assert any("does not follow" in report.last_error for report in standing.reports)
            assert kubelet.kubelet.registrations == (GPU,) * 4


async def test_one_registration_is_enough(short_dir: Path) -> None:
    """A plugin whose list is followed never registers again just in case."""
    async with running_stand_in(short_dir) as kubelet:
        async with running_session(FakeDevicePlugin(), kubelet.device_plugins_dir):
            await kubelet.wait_offer(GPU, 8, 8)
            await anyio.sleep(4 * POLL_EVERY_SECONDS)
            assert kubelet.kubelet.registrations == (GPU,)


async def test_removed_socket_file_is_put_back(short_dir: Path) -> None:
    """A socket file that somebody has removed is back within a second, without a new registration."""
    async with running_stand_in(short_dir) as kubelet:
        path = kubelet.device_plugins_dir / "n.sock"
        async with running_session(FakeDevicePlugin(), kubelet.device_plugins_dir):
            await kubelet.wait_offer(GPU, 8, 8)
            path.unlink()
            await wait_until(path.exists)
            assert kubelet.kubelet.registrations == (GPU,)
            assert not await kubelet.run_pod("pod", {GPU: 1})


async def test_kubelet_that_was_killed_leaves_a_dead_socket(short_dir: Path) -> None:
    """A socket file with nobody behind it is tried again, and the next kubelet is not kept waiting."""
    directory = short_dir / "device-plugins"
    directory.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(directory / "kubelet.sock"))
    async with running_session(FakeDevicePlugin(), directory) as standing:
        await wait_until(lambda: standing.reports)
        assert not standing.now.registered
        assert "cannot register nvidia.com/gpu" in standing.now.last_error
        async with running_stand_in(short_dir) as kubelet:
            await kubelet.wait_offer(GPU, 8, 8)


async def test_new_kubelet_process_beside_a_living_stream(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When another kubelet takes the socket over, the old list is ended before the new registration."""
    monkeypatch.setattr(plugin_server, "HANG_UP_SECONDS", 0.2)
    async with running_stand_in(short_dir / "a") as old, running_stand_in(short_dir / "b") as new:
        async with running_session(FakeDevicePlugin(), old.device_plugins_dir) as standing:
            await old.wait_offer(GPU, 8, 8)
            (new.device_plugins_dir / "kubelet.sock").replace(old.device_plugins_dir / "kubelet.sock")
            (new.device_plugins_dir / "n.sock").symlink_to(old.device_plugins_dir / "n.sock")
            await new.wait_offer(GPU, 8, 8)
            await old.wait_offer(GPU, 8, 0)
            assert any("another kubelet" in report.last_error for report in standing.reports)


async def test_kubelet_that_never_asks_is_asked_again(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet that has taken the registration and does not ask for the list has lost it."""
    monkeypatch.setattr(plugin_session, "FIRST_STREAM_SECONDS", 0.05)
    async with running_stand_in(short_dir) as kubelet:
        kubelet.ignore_registrations(2)
        async with running_session(FakeDevicePlugin(), kubelet.device_plugins_dir) as standing:
            await kubelet.wait_offer(GPU, 8, 8)
            assert any("does not follow" in report.last_error for report in standing.reports)


async def test_start_is_told_once_registered(short_dir: Path) -> None:
    """Whoever starts a session learns when the resource is registered for the first time, not earlier."""
    async with running_stand_in(short_dir) as kubelet, anyio.create_task_group() as tasks:
        session = PluginSession(
            FakeDevicePlugin(), kubelet.device_plugins_dir, "n.sock", report=lambda _: None, report_crash=no_crash
        )
        await tasks.start(session.run)
        assert kubelet.kubelet.registrations == (GPU,)
        kubelet.drop_plugin(GPU)
        await kubelet.wait_offer(GPU, 8, 8)
        tasks.cancel_scope.cancel()


async def test_unusable_socket_ends_the_session(short_dir: Path) -> None:
    """A socket that cannot be opened beside the kubelet's is an error that names it."""
    async with running_stand_in(short_dir) as kubelet:
        session = PluginSession(
            FakeDevicePlugin(), kubelet.device_plugins_dir, "x" * 120, report=lambda _: None, report_crash=no_crash
        )
        with pytest.raises(SocketUnavailable, match="bytes too long"):
            await session.run()


async def test_registration_errors_are_told_apart(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kubelet, a silent kubelet and a kubelet that says no are three different things."""
    async with running_stand_in(short_dir) as kubelet:
        path = kubelet.device_plugins_dir / "kubelet.sock"
        with pytest.raises(RegistrationRefused, match=r'ResourceName "gpu" is invalid'):
            await register_plugin(path, ResourceName("gpu"), "n.sock", PluginOptions())
        with pytest.raises(RegistrationRefused, match="failed to dial"):
            await register_plugin(path, GPU, "nobody.sock", PluginOptions())
    with pytest.raises(KubeletUnavailable, match="cannot register"):
        await register_plugin(path, GPU, "n.sock", PluginOptions())
    monkeypatch.setattr(registrar, "REGISTER_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(short_dir / "silent.sock"))
        silent.listen()
        with pytest.raises(KubeletUnavailable, match=r"no answer within 0\.1 s"):
            await register_plugin(short_dir / "silent.sock", GPU, "n.sock", PluginOptions())


async def test_other_versions_are_refused(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet that speaks another version of the interface says which."""
    monkeypatch.setattr(registrar, "API_VERSION", "v2")
    async with running_stand_in(short_dir) as kubelet:
        with pytest.raises(RegistrationRefused, match="v1beta1"):
            await register_plugin(kubelet.device_plugins_dir / "kubelet.sock", GPU, "n.sock", PluginOptions())


async def test_kubelet_restart_is_healed_within_a_second(short_dir: Path) -> None:
    """From the new kubelet's first breath to devices offered again is one look at the socket and a registration."""
    async with running_stand_in(short_dir) as kubelet:
        async with running_session(FakeDevicePlugin(), kubelet.device_plugins_dir):
            await kubelet.wait_offer(GPU, 8, 8)
            took = []
            for _ in range(5):
                await kubelet.restart()
                began = time.monotonic()
                await kubelet.wait_offer(GPU, 8, 8)
                took.append(time.monotonic() - began)
    assert sorted(took)[2] < 1.0


async def test_quick_changes_are_not_queued(short_dir: Path) -> None:
    """Of many changes in a row the kubelet need not see each, but it ends with the newest list."""
    plugin = FakeDevicePlugin(make_devices(1))
    async with running_stand_in(short_dir) as kubelet:
        async with running_session(plugin, kubelet.device_plugins_dir):
            await kubelet.wait_offer(GPU, 1, 1)
            for size in range(2, 300):
                plugin.set_devices(make_devices(size))
            await kubelet.wait_offer(GPU, 299, 299)


async def test_a_path_that_the_kubelet_refuses_is_followed_by_another_name(short_dir: Path) -> None:
    """Kubelets from 1.37 refuse the path of a stream that they believe alive; the refusal lasts until their restart."""
    async with running_stand_in(short_dir) as kubelet:
        async with running_session(FakeDevicePlugin(), kubelet.device_plugins_dir) as standing:
            await kubelet.wait_offer(GPU, 8, 8)
            with pytest.raises(RegistrationRefused, match="already connected") as refused:
                await register_plugin(kubelet.device_plugins_dir / "kubelet.sock", GPU, "n.sock", PluginOptions())
            assert refused.value.is_path_spent
            assert not await kubelet.run_pod("before", {GPU: 4})
        await kubelet.wait_offer(GPU, 8, 8)  # the end of the stream went by unnoticed
        async with running_session(FakeDevicePlugin(), kubelet.device_plugins_dir) as standing:
            await wait_until(lambda: standing.reports and standing.now.registered)
            assert Path(standing.now.socket).name == "n-2.sock"
            assert not (kubelet.device_plugins_dir / "n.sock").exists()
            assert not await kubelet.run_pod("after", {GPU: 4})
            await kubelet.restart()
            await kubelet.wait_offer(GPU, 8, 8)
            assert Path(standing.now.socket).name == "n-2.sock"
