"""The stand-in's plugin watcher turns away what it cannot use, and says why."""

from pathlib import Path

import pytest

from nodeagent.edge.grpc.calls import Methods, Unary
from nodeagent.edge.grpc.server import open_grpc_server
from nodeagent.edge.kubelet.plugin_server import PluginServer
from nodeagent.edge.kubelet.proto import plugin_registration_pb2 as wire
from nodeagent_sim.kubelet import registry_watch
from tests.fakes.device_plugin import FakeDevicePlugin
from tests.support.waiting import wait_until
from tests.support.wire.kubelets import no_crash, running_stand_in

GPU = "nvidia.com/gpu"


class Registration:
    """The registration socket of some plugin, which remembers what it is told."""

    def __init__(self, **info: object) -> None:
        self.info = wire.PluginInfo(**info)  # type: ignore[arg-type]  # each test gives what it needs
        self.told: list[tuple[bool, str]] = []

    def methods(self) -> Methods:
        service = "/pluginregistration.Registration"
        return {
            f"{service}/GetInfo": Unary(wire.InfoRequest, self._get_info),
            f"{service}/NotifyRegistrationStatus": Unary(wire.RegistrationStatus, self._take_status),
        }

    async def _get_info(self, _request: wire.InfoRequest) -> wire.PluginInfo:
        return self.info

    async def _take_status(self, status: wire.RegistrationStatus) -> wire.RegistrationStatusResponse:
        self.told.append((status.plugin_registered, status.error))
        return wire.RegistrationStatusResponse()


@pytest.mark.parametrize(
    ("info", "why"),
    [
        (
            {"type": "CSIPlugin", "name": "csi.x", "supported_versions": ["1.0.0"]},
            "no handler registered for plugin type: CSIPlugin",
        ),
        ({"type": "DevicePlugin", "name": GPU, "supported_versions": ["v2"]}, "is not among plugin supported versions"),
        ({"type": "DevicePlugin", "name": "gpu", "supported_versions": ["v1beta1"]}, 'ResourceName "gpu" is invalid'),
        (
            {"type": "DevicePlugin", "name": GPU, "supported_versions": ["v1beta1"], "endpoint": "/nowhere/x.sock"},
            "failed to dial device plugin",
        ),
    ],
)
async def test_unusable_plugins_are_told_why(short_dir: Path, info: dict[str, object], why: str) -> None:
    """A plugin of another kind, version, name or address is refused with the reason, and tried again."""
    registration = Registration(**info)
    async with running_stand_in(short_dir) as kubelet:
        path = kubelet.plugins_registry_dir / "x.sock"
        async with open_grpc_server(path, registration.methods(), no_crash):
            await wait_until(lambda: registration.told)
    registered, error = registration.told[0]
    assert not registered
    assert why in error


async def test_one_socket_may_do_both(short_dir: Path) -> None:
    """A plugin that names no endpoint is served on its registration socket."""
    registration = Registration(type="DevicePlugin", name=GPU, supported_versions=["v1beta1"])
    plugin = PluginServer(FakeDevicePlugin(), no_crash, lambda _: None)
    async with running_stand_in(short_dir) as kubelet:
        path = kubelet.plugins_registry_dir / "x.sock"
        async with open_grpc_server(path, {**registration.methods(), **plugin.methods()}, no_crash):
            await kubelet.wait_offer(GPU, 8, 8)
            assert registration.told == [(True, "")]


async def test_silent_sockets_are_left_alone_ever_longer(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that cannot say who it is costs little, and does not keep others from being registered."""
    monkeypatch.setattr(registry_watch, "FIRST_PAUSE_SECONDS", 0.01)
    asked = 0

    async def fail(_request: wire.InfoRequest) -> wire.PluginInfo:
        nonlocal asked
        asked += 1
        raise RuntimeError("no idea")

    silent = {"/pluginregistration.Registration/GetInfo": Unary(wire.InfoRequest, fail)}
    good = Registration(type="DevicePlugin", name=GPU, supported_versions=["v1beta1"])
    plugin = PluginServer(FakeDevicePlugin(), no_crash, lambda _: None)
    async with running_stand_in(short_dir) as kubelet:
        directory = kubelet.plugins_registry_dir
        async with open_grpc_server(directory / "a.sock", silent, lambda *_: None):
            await wait_until(lambda: asked > 1)
            async with open_grpc_server(directory / "b.sock", {**good.methods(), **plugin.methods()}, no_crash):
                await kubelet.wait_offer(GPU, 8, 8)
            await kubelet.wait_offer(GPU, 8, 0)
