"""Where files lie, and what containers are given."""

from pathlib import Path

import pytest

from nodeagent.config.schema import Settings
from nodeagent.config.sections.mps import MpsSettings
from nodeagent.model.errors import RequestInvalid
from nodeagent.model.ids import DeviceId
from nodeagent.model.mps import MpsPhase, MpsState
from nodeagent.model.plugin import ContainerMount
from nodeagent.rules.mps.access import plan_place, plan_private_access, plan_replica_access
from nodeagent.rules.mps.daemons import explain_daemon
from nodeagent.rules.offer.devices import PluginDevice
from tests.support.gpus import gpu_uuid
from tests.support.mps import daemon_of

RESOURCE = "nvidia.com/gpu"
A, B = gpu_uuid(0), gpu_uuid(1)


def device(gpu: str, share: int, *, by_mps: bool = True) -> PluginDevice:
    uuid = gpu_uuid(int(gpu))
    return PluginDevice(id=DeviceId(f"{uuid}::{share}"), uuid=uuid, gpu=uuid, index=gpu, replica=share, by_mps=by_mps)


def test_a_share_comes_with_the_pipe_and_the_memory_of_its_daemon() -> None:
    """Within the container both are where NVIDIA's device plugin has them."""
    access = plan_replica_access(Settings(), RESOURCE, [device("0", 1), device("0", 2)])
    assert access is not None
    assert access.environment == {"CUDA_MPS_PIPE_DIRECTORY": "/mps/nvidia.com/gpu/pipe"}
    assert access.mounts == (
        ContainerMount(
            container_path="/mps/nvidia.com/gpu/pipe", host_path=f"/run/nvidia/mps/{A}/pipe", read_only=False
        ),
        ContainerMount(container_path="/dev/shm", host_path="/run/nvidia/mps/shm", read_only=False),
    )


def test_shares_of_two_gpus_need_one_daemon_for_both() -> None:
    """A process is the client of one."""
    both = [device("0", 0), device("1", 0)]
    with pytest.raises(RequestInvalid, match=r"`mps\.daemon_per` to resource"):
        plan_replica_access(Settings(), RESOURCE, both)
    access = plan_replica_access(Settings(mps=MpsSettings(daemon_per="resource")), RESOURCE, both)
    assert access is not None
    assert access.mounts[0].host_path == "/run/nvidia/mps/nvidia.com/gpu/pipe"


def test_who_takes_turns_gets_nothing_of_it() -> None:
    """Nor does a whole GPU."""
    assert plan_replica_access(Settings(), RESOURCE, [device("0", 0, by_mps=False)]) is None


def test_the_host_s_memory_may_be_shared() -> None:
    """Where daemons may not have mount namespaces."""
    place = plan_place(Settings(mps=MpsSettings(shared_memory="host")), "claim-x")
    assert not place.has_own_memory
    assert place.logs == Path("/run/nvidia/mps/claim-x/log")
    access = plan_private_access(place)
    assert [(mount.container_path, mount.host_path) for mount in access.mounts] == [
        ("/tmp/nvidia-mps", "/run/nvidia/mps/claim-x/pipe"),
        ("/dev/shm", "/dev/shm"),
    ]
    assert plan_place(Settings(), "x").has_own_memory


def test_a_share_is_fit_when_its_daemon_is_ready() -> None:
    """And what is not shared so, when there is no daemon in its way."""
    ready = MpsState(daemons=(daemon_of(A),))
    down = MpsState(daemons=(daemon_of(A, MpsPhase.BROKEN, "it ended"),))
    assert not explain_daemon(A, ready, by_mps=True)
    assert explain_daemon(A, down, by_mps=True) == "its MPS daemon is broken: it ended"
    assert "has not said" in explain_daemon(A, MpsState(daemons=(daemon_of(A, MpsPhase.STARTING),)), by_mps=True)
    assert "not started yet" in explain_daemon(B, ready, by_mps=True)
    assert "nobody looks after MPS daemons" in explain_daemon(A, None, by_mps=True)
    assert explain_daemon(A, down, by_mps=False) == "its MPS daemon has yet to end: it ended"
    assert explain_daemon(A, ready, by_mps=False) == "its MPS daemon has yet to end: ready"
    assert not explain_daemon(B, ready, by_mps=False)
    assert not explain_daemon(A, None, by_mps=False)


def test_those_in_trouble_are_told_apart() -> None:
    state = MpsState(daemons=(daemon_of(A, MpsPhase.BROKEN), daemon_of(B, MpsPhase.WAITING)))
    assert [one.name for one in state.list_troubled()] == [A]
