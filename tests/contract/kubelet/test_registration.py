"""How a kubelet takes plugins, and why it does not, whichever kubelet `open_kubelet` opens."""

import anyio
import pytest
from anyio.abc import TaskStatus

from nodeagent.edge.grpc.caller import call_unary
from nodeagent.edge.grpc.errors import AnswerRefused, Status
from nodeagent.edge.kubelet.errors import RegistrationRefused
from nodeagent.edge.kubelet.proto.device_plugin_pb2 import RegisterRequest
from nodeagent.edge.kubelet.registrar import register_plugin
from nodeagent.edge.kubelet.registration import PluginCard, Registration
from nodeagent.edge.kubelet.registry_session import RegistrySession
from nodeagent.model.ids import ResourceName
from nodeagent.model.plugin import PluginOptions
from nodeagent_sim.kubelet.registration import FIRST_WITH_PATHS
from tests.fakes.device_plugin import FakeDevicePlugin, make_devices
from tests.support.waiting import wait_until
from tests.support.wire.kubelets import KubeletUnderTest, OpenKubelet, Standing, no_crash, running_session

GPU = ResourceName("nvidia.com/gpu")


async def register(kubelet: KubeletUnderTest, request: RegisterRequest) -> tuple[Status, str]:
    """What the kubelet says to a plugin that registers by itself; it must be a refusal."""
    with pytest.raises(AnswerRefused) as refused:
        await call_unary(
            kubelet.device_plugins_dir / "kubelet.sock",
            "/v1beta1.Registration/Register",
            request.SerializeToString(),
            timeout_seconds=30,
        )
    return refused.value.status, refused.value.text


@pytest.mark.parametrize(
    ("version", "resource", "text"),
    [
        (
            "v9",
            GPU,
            'requested API version "v9" is not supported by kubelet. Supported version is ["v1beta1"]',
        ),
        ("v1beta1", "gpu", 'the ResourceName "gpu" is invalid'),
        ("v1beta1", "kubernetes.io/gpu", 'the ResourceName "kubernetes.io/gpu" is invalid'),
    ],
)
async def test_what_cannot_be_registered_is_said(
    open_kubelet: OpenKubelet, version: str, resource: str, text: str
) -> None:
    """Another version of the interface, and a name that no resource may have."""
    request = RegisterRequest(version=version, resource_name=resource, endpoint="n.sock")
    async with open_kubelet() as kubelet:
        assert await register(kubelet, request) == (Status.UNKNOWN, text)


async def test_plugin_is_found_through_the_registry(open_kubelet: OpenKubelet) -> None:
    """The kubelet finds the registration socket by itself, again after its restart, and gives pods the devices."""
    standing = Standing()
    async with open_kubelet() as kubelet:
        session = RegistrySession(
            FakeDevicePlugin(),
            kubelet.plugins_registry_dir.parent / "gpu.sock",
            kubelet.plugins_registry_dir / "gpu-reg.sock",
            report=standing.reports.append,
            report_crash=no_crash,
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(session.run)
            await kubelet.wait_offer(GPU, 8, 8)
            assert not await kubelet.run_pod("pod-a", {GPU: 2})
            await kubelet.restart()
            await kubelet.wait_offer(GPU, 8, 8)
            assert not await kubelet.run_pod("pod-b", {GPU: 2})
            await wait_until(lambda: standing.now.registered)
            tasks.cancel_scope.cancel()
        await kubelet.wait_offer(GPU, 8, 0)


@pytest.mark.parametrize(
    ("kind", "name", "versions", "words"),
    [
        ("Nonsense", GPU, "v1beta1", "no handler registered for plugin type: Nonsense at socket "),
        (
            "DevicePlugin",
            GPU,
            "v9",
            "plugin validation failed with err: manager version, v1beta1, is not among plugin supported versions [v9]",
        ),
        (
            "DevicePlugin",
            "gpu",
            "v1beta1",
            'plugin validation failed with err: invalid name of device plugin socket: the ResourceName "gpu" is',
        ),
    ],
    ids=["type", "version", "name"],
)
async def test_what_the_registry_does_not_take_is_told_why(
    open_kubelet: OpenKubelet, kind: str, name: str, versions: str, words: str
) -> None:
    """A type that nobody handles, a version that nobody knows, and a name that is none: the plugin hears the reason."""
    told: list[tuple[bool, str]] = []
    async with open_kubelet() as kubelet:
        card = PluginCard(kind, name, kubelet.plugins_registry_dir.parent / "nobody.sock", (versions,))
        registration = Registration(card, lambda is_registered, why: told.append((is_registered, why)))
        async with registration.open(kubelet.plugins_registry_dir / "odd-reg.sock", no_crash):
            await wait_until(lambda: bool(told))
    assert not told[0][0]
    assert told[0][1].startswith(f"RegisterPlugin error -- {words}")


async def test_update_with_overlap_heals(open_kubelet: OpenKubelet) -> None:
    """The end of an older plugin of the same resource leaves the newer one offered.

    Kubelets up to 1.36 disconnect the newer one at that moment, which registers again.
    """
    async with open_kubelet() as kubelet, anyio.create_task_group() as tasks:
        leave = anyio.Event()

        async def run_old(*, task_status: TaskStatus[None]) -> None:
            async with running_session(FakeDevicePlugin(), kubelet.device_plugins_dir, "old.sock"):
                await kubelet.wait_offer(GPU, 8, 8)
                task_status.started()
                await leave.wait()

        await tasks.start(run_old)
        async with running_session(
            FakeDevicePlugin(make_devices(4)), kubelet.device_plugins_dir, "new.sock"
        ) as standing:
            await kubelet.wait_offer(GPU, 4, 4)
            leave.set()
            if kubelet.minor < FIRST_WITH_PATHS:
                await wait_until(lambda: any("does not follow" in report.last_error for report in standing.reports))
            await kubelet.wait_offer(GPU, 4, 4)
            assert not await kubelet.run_pod("pod", {GPU: 1})
            assert any("does not follow" in report.last_error for report in standing.reports) == (
                kubelet.minor < FIRST_WITH_PATHS
            )


async def test_a_path_is_refused_while_its_stream_is_open_and_then_for_ever(open_kubelet: OpenKubelet) -> None:
    """By kubelets from 1.37: the refusal makes the kubelet forget to look at the end of that stream.

    Its devices stay on offer, and another path is taken. Kubelets before take the second registration for the first.
    """
    async with open_kubelet() as kubelet:
        registry = kubelet.device_plugins_dir / "kubelet.sock"
        async with running_session(FakeDevicePlugin(), kubelet.device_plugins_dir):
            await kubelet.wait_offer(GPU, 8, 8)
            if kubelet.minor < FIRST_WITH_PATHS:
                await register_plugin(registry, GPU, "n.sock", PluginOptions())
                return
            for _ in range(2):
                with pytest.raises(RegistrationRefused, match=r"device plugin already connected: /.*/n\.sock$"):
                    await register_plugin(registry, GPU, "n.sock", PluginOptions())
            assert not await kubelet.run_pod("beside", {GPU: 1})
        async with running_session(FakeDevicePlugin(), kubelet.device_plugins_dir) as standing:
            await wait_until(lambda: standing.reports and standing.now.registered)
            assert standing.now.socket.endswith("/n-2.sock")
            await kubelet.wait_offer(GPU, 8, 8)
            assert not await kubelet.run_pod("after", {GPU: 1})
        await kubelet.restart()
        async with running_session(FakeDevicePlugin(), kubelet.device_plugins_dir) as standing:
            await wait_until(lambda: standing.reports and standing.now.registered)
            assert standing.now.socket.endswith("/n.sock")


async def test_a_pod_for_a_plugin_that_is_away_is_refused(open_kubelet: OpenKubelet) -> None:
    """While nobody serves a resource, a pod that asks for it and comes past the scheduler fails for good."""
    async with open_kubelet() as kubelet:
        async with running_session(FakeDevicePlugin(), kubelet.device_plugins_dir):
            await kubelet.wait_offer(GPU, 8, 8)
        await kubelet.wait_offer(GPU, 8, 0)
        why = await kubelet.force_pod("late", {GPU: 1})
        cause = f"no healthy devices present; cannot allocate unhealthy devices {GPU}"
        assert why == f"Pod was rejected: Allocate failed due to {cause}, which is unexpected"
