"""Laws of drains, for any holders, pods and times."""

from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.config.sections.repairers import DrainSettings
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.drains import BoundPod, DeviceUser, DrainStep
from nodeagent.model.ids import GpuUuid
from nodeagent.rules.repair.domains import describe_gpu, list_pods
from nodeagent.rules.repair.drain import Closing, decide_step, list_holders
from nodeagent.rules.signals import Hold
from tests.support.examples import examples
from tests.support.gpus import gpu_uuid, make_node

NODE = make_node(4)
INDEXES = st.integers(0, 3)
PODS = st.builds(lambda number: PodIdentity(namespace="team", name=f"p{number}", uid=f"u{number}"), st.integers(0, 3))
HOLDS = st.lists(st.builds(lambda pod, index: Hold(pod=pod, device=gpu_uuid(index)), PODS, INDEXES), max_size=6)
USERS = st.lists(
    st.builds(
        DeviceUser,
        pid=st.integers(1, 99),
        command=st.just("x"),
        minors=st.frozensets(INDEXES, max_size=2),
        pod_uid=st.sampled_from(["", "u0", "u1", "u9"]),
    ),
    max_size=4,
)
UUIDS = st.frozensets(INDEXES.map(gpu_uuid), min_size=1)
TOLD = st.builds(Closing, since_seconds=st.none() | st.floats(0, 4000), spared=st.frozensets(st.just("team")))
SEEN = st.none() | st.builds(
    BoundPod,
    pod=st.just(PodIdentity(namespace="team", name="p0", uid="u0")),
    version=st.just("1"),
    controller=st.sampled_from(["", "ReplicaSet", "DaemonSet"]),
    is_static=st.booleans(),
    is_going=st.booleans(),
)
SETTINGS = st.builds(DrainSettings, after_deadline=st.sampled_from(["stop", "delete_where_dead"]))


@settings(max_examples=examples(100))
@given(UUIDS, HOLDS, USERS, TOLD, SEEN, UUIDS, SETTINGS)
def test_the_laws_of_a_drain(
    uuids: frozenset[GpuUuid],
    holds: list[Hold],
    users: list[DeviceUser],
    told: Closing,
    seen: BoundPod | None,
    dead: frozenset[GpuUuid],
    drain: DrainSettings,
) -> None:
    """Nobody outside is asked; nothing without a pod is ended; a budget is passed by for a dead GPU alone."""
    domain = [describe_gpu(gpu) for gpu in NODE.gpus if gpu.uuid in uuids]
    minors = {gpu.minor for gpu in NODE.gpus if gpu.uuid in uuids}
    inside = {hold.pod.uid for hold in holds if hold.device in uuids}
    inside |= {user.pod_uid for user in users if user.minors & minors}
    holders = list_holders(domain, NODE, holds, None, users)
    assert {one.name for one in holders} >= {*list_pods(domain, NODE, holds)}
    for holder in holders:
        assert holder.gpus <= uuids
        decided = decide_step(holder, seen, told, dead, drain)
        if decided.step not in {DrainStep.EVICT, DrainStep.DELETE}:
            continue
        assert holder.pod is not None
        assert holder.pod.uid in inside
        assert holder.pod.namespace not in told.spared
        assert seen is not None
        assert (seen.is_static, seen.is_going) == (False, False)
        assert seen.controller != "DaemonSet"
        assert told.since_seconds is not None
        assert told.since_seconds >= drain.wait_seconds
        is_late = told.since_seconds >= drain.deadline_seconds
        assert is_late is (decided.step is DrainStep.DELETE)
        if decided.step is DrainStep.DELETE:
            assert holder.gpus & dead
            assert drain.after_deadline == "delete_where_dead"
