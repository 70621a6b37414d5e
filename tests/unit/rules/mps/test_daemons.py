"""Which daemons there are to be, what is written down of them, and which a claim may have."""

import pytest
from msgspec.structs import replace

from nodeagent.model.errors import MpsRefused
from nodeagent.model.ids import ResourceName
from nodeagent.model.journal import Change, Step
from nodeagent.model.mps import MpsLimits
from nodeagent.rules.mps.daemons import (
    OWNER,
    DaemonKind,
    Engagement,
    EngagementUnreadable,
    engage_step,
    plan_claim_daemon,
    plan_replica_daemons,
    read_engagement,
    refuse_claim,
)
from nodeagent.rules.mps.limits import MIB
from nodeagent.rules.offer.devices import Candidate, Offered
from tests.support.gpus import gpu_uuid, make_gpu

GPU = ResourceName("nvidia.com/gpu")
A, B = gpu_uuid(0), gpu_uuid(1)


def offered(index: int, replicas: int, *, by_mps: bool = True, withheld: str = "", mebibytes: int = 1000) -> Offered:
    gpu = replace(make_gpu(index), memory_total_bytes=mebibytes * MIB)
    device = Candidate(gpu=gpu, withheld=withheld)
    return Offered(device=device, base=GPU, resource=GPU, replicas=replicas, by_mps=by_mps)


def test_each_gpu_has_a_daemon_of_its_own() -> None:
    """A fault of one then costs nobody on another; who takes turns, or is withheld, has none."""
    first, second = plan_replica_daemons(
        [offered(0, 4), offered(1, 2), offered(2, 2, by_mps=False), offered(3, 2, withheld="no")], "gpu"
    )
    assert (first.name, first.gpus, first.owner, first.kind) == (A, (A,), GPU, DaemonKind.SHARES)
    assert first.limits == MpsLimits(thread_percentage=25, memory_mib={A: 250})
    assert second.limits == MpsLimits(thread_percentage=50, memory_mib={B: 500})


@pytest.mark.parametrize(("mebibytes", "limit"), [(40_960, {A: 13_653}), (0, {})])
def test_a_replica_has_its_part_of_memory_and_threads_rounded_down(mebibytes: int, limit: dict[str, int]) -> None:
    """40,960 MiB by three is 13,653 and a rest; memory that is not told has no limit, as naught would leave nothing."""
    (daemon,) = plan_replica_daemons([offered(0, 3, mebibytes=mebibytes)], "gpu")
    assert (daemon.limits.thread_percentage, daemon.limits.memory_mib) == (33, limit)


def test_one_daemon_of_a_resource_has_what_holds_for_all_its_gpus() -> None:
    """Memory by GPU; threads once, so as few as one of its shares promises."""
    (daemon,) = plan_replica_daemons([offered(0, 4), offered(1, 2)], "resource")
    assert (daemon.name, daemon.gpus) == (GPU, (A, B))
    assert daemon.limits == MpsLimits(thread_percentage=25, memory_mib={A: 250, B: 500})


def test_a_claim_s_daemon_is_named_by_claim_and_gpus() -> None:
    """Whatever the order; requests of one claim that are configured apart have one each."""
    one, again = (plan_claim_daemon("uid", gpus, MpsLimits()) for gpus in ((B, A), (A, B)))
    assert one == again
    assert (one.gpus, one.owner) == ((A, B), "uid")
    assert one.name.startswith("claim-uid-")
    assert plan_claim_daemon("uid", (A,), MpsLimits()).name != one.name


def test_what_is_written_down_is_read_again() -> None:
    """It says all that is needed in order to go on, or to give back."""
    engagement = Engagement(wanted=plan_claim_daemon("uid", (A,), MpsLimits(memory_mib={A: 5})), compute_mode=1)
    change = Change(number=3, owner=OWNER, gpu=A, steps=(engage_step(engagement, 1.5),))
    assert read_engagement(change) == engagement
    with pytest.raises(EngagementUnreadable, match=f"change 3 of {A}"):
        read_engagement(replace(change, steps=(Step(name="engage", at_seconds=0.0, payload='{"x": 1}'),)))


def test_a_gpu_has_one_daemon() -> None:
    """The same claim with the same limits is no other; all else is told who has it."""
    shares = plan_replica_daemons([offered(0, 2)], "gpu")[0]
    claim = plan_claim_daemon("uid", (A,), MpsLimits())
    refuse_claim(claim, [claim, plan_claim_daemon("other", (B,), MpsLimits())])
    for other, said in (
        (shares, "for the shares of nvidia.com/gpu:"),
        (plan_claim_daemon("other", (A, B), MpsLimits()), "for the claim other:"),
        (plan_claim_daemon("uid", (A,), MpsLimits(thread_percentage=1)), "for the claim uid with other limits:"),
    ):
        with pytest.raises(MpsRefused, match=said):
            refuse_claim(claim, [other])
