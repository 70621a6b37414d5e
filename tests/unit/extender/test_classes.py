"""Pods with parts of a class's devices: placed on the nodes that give them, beside the driver's GPUs."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.config.sections.extender import ExtenderSettings
from nodeagent.extender.explain import explain_pod
from nodeagent.extender.program import plan_profiles
from nodeagent.model.ids import GpuUuid
from nodeagent.model.scheduling import SeenNode
from nodeagent.rules.fractions.bound import render_bound
from nodeagent.rules.fractions.by_class import CLASSES_ANNOTATION, CLASSES_BOUND_ANNOTATION, render_by_class
from nodeagent.rules.fractions.published import ANNOTATION
from tests.support.fractions import make_parted, part
from tests.support.gpus import gpu_uuid
from tests.support.scheduling import FakeScheduler, bind_pod, limit, make_pod, publish

AMD = "amd.com/gpu"
SETTINGS = Settings(extender=ExtenderSettings(classes=(AMD,)))


def ask(cores: int, blocks: int = 0) -> Mapping[str, str]:
    return {f"{AMD}-core": str(cores), f"{AMD}-memory": str(blocks)}


def make_node(name: str, *, gpus: bool = False, devices: bool = True, bound: str = "") -> SeenNode:
    """Two devices or two GPUs, or both, of 32 GiB each."""
    text = publish(make_parted(2))
    said = {ANNOTATION: text} if gpus else {}
    said |= {CLASSES_ANNOTATION: render_by_class({AMD: text})} if devices else {}
    said |= {CLASSES_BOUND_ANNOTATION: render_by_class({AMD: bound})} if bound else {}
    return SeenNode(name=name, annotations=said)


@pytest.fixture
def scheduler() -> FakeScheduler:
    made = FakeScheduler()
    made.cluster.profiles = plan_profiles(SETTINGS)
    for node in (make_node("amd"), make_node("both", gpus=True), make_node("nvidia", gpus=True, devices=False)):
        made.cluster.note_node(node)
    return made


def test_a_pod_goes_where_its_devices_are(scheduler: FakeScheduler) -> None:
    found = scheduler.ask(make_pod("one", ask(30, 8)))
    assert set(found.fitting) == {"amd", "both"}
    assert found.hopeless["nvidia"] == "this node gives out no parts of GPUs"
    assert set(scheduler.ask(make_pod("two", limit(30, 8))).fitting) == {"both", "nvidia"}


def test_each_kind_has_an_account_of_its_own(scheduler: FakeScheduler) -> None:
    """The fullest device takes the next part, and whole GPUs beside it stay free."""
    node, gpus = scheduler.schedule(make_pod("one", ask(30, 8)))
    assert scheduler.schedule(make_pod("two", ask(60, 8))) == (node, gpus)
    assert {scheduler.schedule(make_pod(f"whole-{number}", limit(200)))[0] for number in "ab"} == {"both", "nvidia"}
    assert scheduler.schedule(make_pod("all", ask(200)))[0] == ({"amd", "both"} - {node}).pop()


def test_what_is_full_is_full(scheduler: FakeScheduler) -> None:
    for number in range(4):
        assert scheduler.schedule(make_pod(f"whole-{number}", ask(100)))[0]
    found = scheduler.ask(make_pod("more", ask(1, 1)))
    assert found.fitting == ()
    assert set(found.failed) == {"amd", "both"}


def test_the_nodes_own_word_counts_first() -> None:
    """Which container has what is told by class."""
    scheduler = FakeScheduler()
    scheduler.cluster.profiles = plan_profiles(SETTINGS)
    pod = make_pod("one", ask(30, 8), node="n")
    bound = render_bound([bind_pod(pod, "c0", part(1, 80, 8))], make_parted(2)).text
    scheduler.cluster.note_node(make_node("n", gpus=True, bound=bound))
    scheduler.cluster.note_pod(pod, 0.0)
    account = scheduler.cluster.find_space("n", AMD)
    assert account is not None
    assert [room.cores_used for room in account.space.rooms] == [0, 80]
    of_gpus = scheduler.cluster.find_space("n")
    assert of_gpus is not None
    assert [room.cores_used for room in of_gpus.space.rooms] == [0, 0]
    scheduler.cluster.prepare(["n"])
    story = explain_pod(scheduler.cluster, scheduler.decider, scheduler.read(pod))
    assert story.state == f"bound to n, on {gpu_uuid(1)}"
    assert story.counted is not None
    assert [line.free_cores for line in story.counted.gpus] == [100, 20]


def test_a_choice_on_the_pod_is_read_by_class(scheduler: FakeScheduler) -> None:
    chosen = {"tencent.com/predicate-node": "amd", "tencent.com/predicate-gpu-uuid-0": GpuUuid(gpu_uuid(1))}
    scheduler.cluster.note_pod(make_pod("one", ask(30, 8), annotations=chosen), 0.0)
    account = scheduler.cluster.find_space("amd", AMD)
    assert account is not None
    assert [room.cores_used for room in account.space.rooms] == [0, 30]


def test_parts_of_both_kinds_in_one_pod_are_refused(scheduler: FakeScheduler) -> None:
    found = scheduler.ask(make_pod("both", limit(30, 8), ask(30, 8)))
    assert all("ask for parts of GPUs by different names" in text for text in found.hopeless.values())


def test_a_node_whose_word_cannot_be_read_says_so(scheduler: FakeScheduler) -> None:
    scheduler.cluster.note_node(replace(make_node("amd"), annotations={CLASSES_ANNOTATION: "{"}))
    assert (
        scheduler.ask(make_pod("one", ask(30, 8))).failed["amd"].startswith("cannot read nvidia.com/device-fractions")
    )


def test_without_the_class_in_its_settings_the_extender_looks_at_none() -> None:
    scheduler = FakeScheduler(make_node("amd"))
    assert scheduler.cluster.read_pod(make_pod("one", ask(30, 8))) is None
    assert scheduler.cluster.find_space("amd", AMD) is None
