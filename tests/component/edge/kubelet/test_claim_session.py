"""A driver of claims, as the kubelet finds it and asks it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from nodeagent.core.channels.gathered import Gathered
from nodeagent.edge.grpc.errors import SocketUnavailable
from nodeagent.edge.kubelet import claim_server
from nodeagent.edge.kubelet.call_times import CallTimes
from nodeagent.edge.kubelet.claim_server import HEALTH_SERVICES, VERSIONS
from nodeagent.edge.kubelet.claim_session import ClaimSession
from nodeagent.model.claims import ClaimReference, ClaimStanding, DeviceAnswer, DeviceHealth
from tests.support.claims import DRIVER, POOL, make_reference
from tests.support.waiting import wait_until
from tests.support.wire.claim_kubelet import registered
from tests.support.wire.kubelets import no_crash

ANSWER = DeviceAnswer(
    requests=("gpu",), pool=POOL, device="gpu-0", cdi_names=("k8s.gpu.nvidia.com/claim=u-gpu-0",), share_id="s1"
)


class FakeDriver:
    """Gives everybody the same device, but for those who are called `refused`."""

    def __init__(self) -> None:
        self.health: Gathered[tuple[DeviceHealth, ...]] = Gathered(())

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, tuple[DeviceAnswer, ...] | str]:
        return {one.uid: "no such device" if one.name == "refused" else (ANSWER,) for one in claims}

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, str]:
        return {one.uid: "in use" if one.name == "refused" else "" for one in claims}

    async def wait_health(self, known: tuple[DeviceHealth, ...] | None) -> tuple[DeviceHealth, ...]:
        return await self.health.wait_other(known, 0.0)


class Served:
    """A driver that is kept registered."""

    def __init__(self, directory: Path, name: str = "dra") -> None:
        self.registry, self.plugins = directory / "plugins_registry", directory / "plugins"
        self.driver, self.reports, self.times = FakeDriver(), list[ClaimStanding](), CallTimes()
        self.session = ClaimSession(
            self.driver,
            DRIVER,
            self.plugins / DRIVER / f"{name}.sock",
            self.registry / f"{DRIVER}-{name}-reg.sock",
            report=self.reports.append,
            report_crash=no_crash,
            times=self.times,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        opened = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.session.run, opened.set)
            await opened.wait()
            yield
            tasks.cancel_scope.cancel()


@pytest.fixture
def served(short_dir: Path) -> Served:
    (short_dir / "plugins_registry").mkdir()
    return Served(short_dir)


async def test_the_kubelet_is_told_who_is_there_and_the_newest_version_first(served: Served) -> None:
    """It takes the first that it knows; at the end nothing is left of the sockets."""
    async with served.running():
        assert not served.reports[-1].registered
        async with registered(served.registry) as kubelet:
            assert (kubelet.info.type, kubelet.info.name) == ("DRAPlugin", DRIVER)
            assert tuple(kubelet.info.supported_versions) == VERSIONS
            assert VERSIONS[:2] == ("v1.DRAPlugin", "v1beta1.DRAPlugin")
            assert VERSIONS[2:] == HEALTH_SERVICES
            assert kubelet.info.endpoint == str(served.plugins / DRIVER / "dra.sock")
            assert (served.reports[-1].registered, served.reports[-1].last_error) == (True, "")
        async with registered(served.registry, error="no such version"):
            assert (served.reports[-1].registered, served.reports[-1].last_error) == (False, "no such version")
    assert list(served.registry.iterdir()) == list((served.plugins / DRIVER).iterdir()) == []


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_each_claim_has_its_answer_in_either_version(served: Served, version: str) -> None:
    """A device has a share in the newer one alone; how long the answers took is counted."""
    refused = make_reference("b", "refused")
    async with served.running(), registered(served.registry, version=version) as kubelet:
        answers = await kubelet.prepare(make_reference("a"), refused)
        (device,) = answers["a"].devices
        assert (device.pool_name, device.device_name, list(device.request_names)) == (POOL, "gpu-0", ["gpu"])
        assert list(device.cdi_device_ids) == list(ANSWER.cdi_names)
        assert getattr(device, "share_id", "") == ("s1" if version == "v1" else "")
        assert (answers["a"].error, answers["b"].error, len(answers["b"].devices)) == ("", "no such device", 0)
        ends = await kubelet.unprepare(make_reference("a"), refused)
        assert (ends["a"].error, ends["b"].error) == ("", "in use")
        assert dict(await kubelet.prepare()) == {}
    counted = {(call.method, call.outcome) for call in served.times.times}
    assert counted == {
        ("NodePrepareResources", "refused"),
        ("NodePrepareResources", "ok"),
        ("NodeUnprepareResources", "refused"),
    }


@pytest.mark.parametrize("service", ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"])
async def test_health_is_told_when_it_changes_and_again_before_it_is_out_of_date(
    served: Served, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    """Kubelets from 1.37 ask under another name than those before."""
    monkeypatch.setattr(claim_server, "HEALTH_SECONDS", 0.05)
    well, ill, dark = (DeviceHealth(pool=POOL, device="gpu-0", is_healthy=one) for one in (True, False, None))
    async with served.running(), registered(served.registry) as kubelet:
        messages = kubelet.watch_health(service)
        served.driver.health.put((well,))
        first = await messages.__anext__()
        again = await messages.__anext__()
        for message in (first, again):
            (device,) = message.devices
            assert (device.device.pool_name, device.device.device_name, device.health) == (POOL, "gpu-0", 1)
            assert device.health_check_timeout_seconds == 30
        for state, number in ((ill, 2), (dark, 0)):
            served.driver.health.put((state,))
            with anyio.fail_after(5):
                while (await messages.__anext__()).devices[0].health != number:
                    pass
        await messages.aclose()


async def test_a_socket_that_somebody_removes_comes_back(served: Served) -> None:
    """Either of them, and the folder with it; the kubelet finds the driver anew."""
    serving, registration = served.plugins / DRIVER / "dra.sock", served.registry / f"{DRIVER}-dra-reg.sock"
    async with served.running():
        for path in (serving, registration):
            async with registered(served.registry):
                path.unlink()
            if path is serving:
                serving.parent.rmdir()
            await wait_until(lambda: any("put back" in one.last_error for one in served.reports))
            await wait_until(lambda: serving.exists() and registration.exists())
            served.reports.clear()
        async with registered(served.registry) as kubelet:
            assert (await kubelet.prepare(make_reference("a")))["a"].error == ""


@pytest.mark.long
async def test_another_driver_in_our_place_is_told_and_not_fought(served: Served) -> None:
    registration = served.registry / f"{DRIVER}-dra-reg.sock"
    async with served.running():
        other = Served(served.registry.parent)
        async with other.running():
            await wait_until(lambda: "another driver" in served.reports[-1].last_error)
            async with registered(served.registry):
                assert other.reports[-1].registered
        await wait_until(registration.exists)
        async with registered(served.registry):
            assert served.reports[-1].registered


async def test_two_agents_with_sockets_of_their_own_stand_beside_each_other(served: Served) -> None:
    """Each takes away only its own, so that one can take over from the other without a gap."""
    other = Served(served.registry.parent, "dra-2")
    async with served.running():
        async with other.running():
            assert len(list(served.registry.iterdir())) == 2
        async with registered(served.registry) as kubelet:
            assert (await kubelet.prepare(make_reference("a")))["a"].error == ""


async def test_a_folder_that_cannot_be_made_is_told(short_dir: Path) -> None:
    (short_dir / "plugins_registry").mkdir()
    (short_dir / "plugins").write_text("a file")
    with pytest.raises(SocketUnavailable, match=r"dra.sock: (Not a directory|File exists)"):
        await Served(short_dir).session.run(lambda: None)
