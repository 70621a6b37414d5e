"""MPS daemons in the way of a reset."""

import pytest
from msgspec.structs import replace

from nodeagent.model.mps import MpsClient, MpsDaemon, MpsLimits, MpsPhase, MpsServer, MpsState
from nodeagent.rules.repair.mps_daemons import list_holders, list_processes, list_running
from tests.support.gpus import gpu_uuid

ONE, TWO = gpu_uuid(1), gpu_uuid(2)
SHARED = MpsDaemon(
    name="nvidia.com/gpu",
    gpus=(ONE, TWO),
    owner="nvidia.com/gpu",
    limits=MpsLimits(),
    phase=MpsPhase.READY,
    pid=70,
    servers=(MpsServer(pid=71),),
)
NAME = "the MPS daemon nvidia.com/gpu"


def serve(*clients: MpsClient) -> MpsDaemon:
    return replace(SHARED, servers=(MpsServer(pid=71, clients=clients),))


def test_a_daemon_without_clients_is_no_holder_and_runs_until_its_process_is_gone() -> None:
    state = MpsState(daemons=(SHARED,))
    assert list_holders((TWO,), state) == ()
    assert list_running((TWO,), state) == (NAME,)
    assert list_processes(state) == {70, 71}
    gone = replace(SHARED, phase=MpsPhase.WAITING, pid=None, servers=())
    assert list_running((TWO,), MpsState(daemons=(gone,))) == ()
    assert list_running((TWO,), MpsState(daemons=(replace(gone, phase=MpsPhase.STARTING),))) == (NAME,)


@pytest.mark.parametrize(
    ("daemon", "obstacle"),
    [
        (
            serve(MpsClient(pid=9, pod="team/train"), MpsClient(pid=8), MpsClient(pid=7, pod="team/train")),
            "it serves process 8, team/train, and quits without clients only",
        ),
        (
            replace(SHARED, phase=MpsPhase.BROKEN, reason="it does not answer within 5 s"),
            "it does not answer within 5 s: a person has to end process 70",
        ),
    ],
)
def test_a_daemon_that_would_not_quit_is_a_holder(daemon: MpsDaemon, obstacle: str) -> None:
    """Also for clients on another GPU of the daemon: a daemon quits as a whole."""
    (holder,) = list_holders((TWO,), MpsState(daemons=(daemon,)))
    assert (holder.name, holder.gpus, holder.obstacle, holder.pod) == (NAME, frozenset({TWO}), obstacle, None)


def test_daemons_of_other_gpus_and_a_node_without_daemons_are_left_out() -> None:
    state = MpsState(daemons=(serve(MpsClient(pid=9)), replace(SHARED, phase=MpsPhase.BROKEN, pid=None)))
    assert (list_holders((gpu_uuid(3),), state), list_running((gpu_uuid(3),), state)) == ((), ())
    assert (list_holders((ONE,), None), list_running((ONE,), None), list_processes(None)) == ((), (), frozenset())
    assert [one.obstacle[:8] for one in list_holders((ONE,), state)] == ["it serve"]
