"""What the kubelet holds and the journal has lost: believed in order, and bound where its container runs."""

from collections.abc import Mapping, Sequence

import pytest

from nodeagent.components.fractions.adopt import Adoption, list_unknown_names, plan_adoptions
from nodeagent.components.fractions.judge import FractionPoll
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.fractions import ContainerState, FractionLimit, PodContainer
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.journal import FractionTable, GpuFraction
from nodeagent.model.ports import ContainerDevices, KubeletCheckpoint, PodListing
from nodeagent.rules.fractions.device_ids import FractionId, FractionIdKind, name_group, render_fraction_id
from tests.support.fractions import make_pod, make_promise, make_table, make_view, part
from tests.support.gpus import gpu_uuid
from tests.support.journals import CORE, MEMORY

SHARE = ResourceName("nvidia.com/gpu")
PART = "k8s.device-plugin.nvidia.com/part"
BLOCKS = tuple(DeviceId(f"m{number}") for number in range(4))
NUMBERED = PodIdentity(namespace="", name="", uid="uid-a")
NAMED = PodIdentity(namespace="ns", name="a")


def tokens(index: int, count: int, kind: FractionIdKind = FractionIdKind.CORE) -> tuple[DeviceId, ...]:
    group = name_group(gpu_uuid(index))
    return tuple(render_fraction_id(FractionId(kind, None, group, number)) for number in range(count))


def hold(
    devices: Sequence[DeviceId], *, container: str = "main", name: str = "p1", resource: ResourceName = CORE
) -> ContainerDevices:
    names = (f"{PART}={name}",) if name else ()
    return ContainerDevices(
        pod=NUMBERED, container=container, resource=resource, devices=tuple(devices), cdi_names=names
    )


def see(
    *noted: ContainerDevices, running: Sequence[str] | None = ("main",), users: Mapping[int, str] | None = None
) -> FractionPoll:
    """All but init containers stand in the list too; the users of GPUs are pods by uid."""
    listed = tuple(
        ContainerDevices(pod=NAMED, container=each.container, resource=each.resource, devices=each.devices)
        for each in noted
        if not each.container.startswith("init")
    )
    containers = [
        PodContainer(id=name, pod_uid="uid-a", name=name, state=ContainerState.RUNNING) for name in running or ()
    ]
    return FractionPoll(
        PodListing(pods=(NAMED,), containers=listed),
        KubeletCheckpoint(containers=noted),
        None if running is None else tuple(containers),
        {gpu_uuid(index): frozenset({uid}) for index, uid in (users or {}).items()},
        0.0,
    )


def adopt(
    look: FractionPoll, limits: Mapping[str, Sequence[FractionLimit]] | None = None, profile: str = "tencent"
) -> tuple[Adoption, ...]:
    return plan_adoptions(FractionTable(), look, make_view(profile=profile), limits or {})


PAIR = (hold(tokens(1, 30)), hold(BLOCKS, resource=MEMORY, name=""))
LIMIT = FractionLimit(gpu=gpu_uuid(0), memory_bytes=1 << 30, cores=30, cores_max=30)


@pytest.mark.parametrize(
    ("limits", "users", "parts", "source"),
    [
        ({"p1": (LIMIT,)}, {1: "uid-a"}, (part(0, 30, 1),), "the limits that it was given"),
        ({"p1": (FractionLimit(gpu=gpu_uuid(0)),)}, {}, (part(0, 30, 32),), "the limits that it was given"),
        ({"p1": (FractionLimit(gpu=gpu_uuid(9)),)}, {}, (part(1, 30, 1),), "the GPUs that its ids stand for"),
        ({}, {0: "uid-a", 1: "uid-b"}, (part(0, 30, 1),), "where its processes are"),
        ({}, {}, (part(1, 30, 1),), "the GPUs that its ids stand for"),
    ],
)
def test_the_most_certain_source_is_believed(
    limits: Mapping[str, Sequence[FractionLimit]], users: Mapping[int, str], parts: tuple[GpuFraction, ...], source: str
) -> None:
    """What it was told, then what it does, then what its ids hint at."""
    (found,) = adopt(see(*PAIR, users=users), limits)
    assert (found.parts, found.source) == (parts, source)
    assert (found.pod, found.container) == (make_pod(), "main")
    assert [(each.resource, each.cdi_name) for each in found.promises] == [(CORE, f"{PART}=p1"), (MEMORY, "")]


def test_whole_gpus_and_shares_are_adopted_too() -> None:
    (whole,) = adopt(see(hold(tokens(1, 100))))
    assert whole.parts == (part(1, 100, 32),)
    (share,) = adopt(see(hold(tokens(1, 1, FractionIdKind.SHARE), resource=SHARE)), profile="hami")
    assert (share.parts, len(share.promises)) == ((part(1, 100, 32),), 1)


@pytest.mark.parametrize(("limit", "parts"), [(8 << 30, part(1, 0, 8)), (None, part(1, 100, 32))])
def test_a_share_that_is_held_to_its_memory_is_no_whole_gpu(limit: int | None, parts: GpuFraction) -> None:
    """Others have shares of that GPU too; one that is held to nothing may have all of it."""
    noted = see(hold(tokens(1, 1, FractionIdKind.SHARE), resource=SHARE))
    (found,) = adopt(noted, {"p1": (FractionLimit(gpu=gpu_uuid(1), memory_bytes=limit),)}, profile="hami")
    assert found.parts == (parts,)


@pytest.mark.parametrize("running", [(), ("other",)])
def test_what_does_not_run_is_promised_and_not_bound(running: Sequence[str]) -> None:
    """Its GPU is chosen when it starts."""
    (found,) = adopt(see(*PAIR, running=running))
    assert (found.parts, found.source, len(found.promises)) == ((), "its container has not started", 2)


@pytest.mark.parametrize("running", [("main",), None])
def test_init_containers_are_adopted_beside_the_one_after_them(running: Sequence[str] | None) -> None:
    """With the same ids they are one; with others they are promised what they had, and nothing is counted twice."""
    shared = see(hold(tokens(1, 30), container="init", name="p0"), *PAIR, running=running)
    (one,) = adopt(shared, {"p1": (LIMIT,)})
    assert [each.cdi_name for each in one.promises] == [f"{PART}=p1", "", f"{PART}=p0"]
    assert (one.container, one.parts) == ("main", (part(0, 30, 1),))
    apart = see(hold(tokens(1, 20), container="init", name="p0"), *PAIR, running=running)
    first, second = adopt(apart)
    assert (first.container, first.pod, first.parts) == ("init", make_pod(), ())
    assert second.parts == (part(1, 30, 1),)
    assert list_unknown_names(FractionTable(), apart, make_view()) == ("p0", "p1")


def test_what_is_known_or_gone_or_cannot_be_seen_is_left_alone() -> None:
    """In the journal, not in the kubelet's list any more, or one of its records is silent."""
    known = make_table([make_promise(1, tokens(1, 30))])
    assert plan_adoptions(known, see(*PAIR), make_view(), {}) == ()
    gone = see(*PAIR)._replace(listing=PodListing())
    for look in (gone, see(*PAIR)._replace(listing=None), see(*PAIR)._replace(checkpoint=None)):
        assert adopt(look) == ()
    (nameless,) = adopt(see(hold(tokens(1, 30), name="")))
    assert nameless.promises[0].cdi_name == ""
