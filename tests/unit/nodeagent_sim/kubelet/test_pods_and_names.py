"""The stand-in's small decisions: names of pods and resources, and how many questions are welcome."""

import re
from itertools import islice

import pytest

from nodeagent_sim.kubelet.pod_resources import BURST, RateLimit
from nodeagent_sim.kubelet.pod_script import choose_resource, plan_pods
from nodeagent_sim.kubelet.registration import is_extended_resource


def test_same_seed_same_story() -> None:
    """The plan is a function of seed and lane, and differs between them."""
    stories = {(seed, lane): list(islice(plan_pods(seed, lane), 20)) for seed in (0, 1) for lane in (0, 1)}
    assert stories[0, 0] == list(islice(plan_pods(0, 0), 20))
    assert len({tuple(plan.name for plan in story) for story in stories.values()}) == 4


def test_pods_are_plausible() -> None:
    """Names could stand in a cluster, sizes are those of a node, no pod ends before it has begun."""
    for plan in islice(plan_pods(7, 0), 200):
        assert re.fullmatch(r"[a-z]+(-[a-z0-9]+)+", plan.name)
        assert len(plan.name) <= 63
        assert plan.devices in {1, 2, 4, 8}
        assert plan.run_seconds > 0 <= plan.pause_seconds


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "a/b"])
def test_extended_resources_are_taken(name: str) -> None:
    """Names of device resources are accepted."""
    assert is_extended_resource(name)


@pytest.mark.parametrize(
    "name",
    [
        "gpu",
        "",
        "/gpu",
        "nvidia.com/",
        "kubernetes.io/gpu",
        "x.kubernetes.io/gpu",
        "requests.x/gpu",
        "a/b/c",
        "a/b ",
        "A/b",
    ],
)
def test_other_names_are_not(name: str) -> None:
    """What is no extended resource, or belongs to Kubernetes, is refused."""
    assert not is_extended_resource(name)


def test_questions_are_limited() -> None:
    """A burst is welcome, more is not, and a tenth of a second later there is room for ten again."""
    now = [0.0]
    limit = RateLimit(lambda: now[0])
    assert [limit.take() for _ in range(12)] == [True] * int(BURST) + [False] * 2
    now[0] = 0.1
    assert sum(limit.take() for _ in range(20)) == 10
    now[0] = 1000.0
    assert sum(limit.take() for _ in range(20)) == int(BURST)


def name_ids(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def test_pods_ask_for_what_the_node_offers_by_how_much_there_is() -> None:
    """Each device of the node is as likely as any other, and nothing is asked of a node without any."""
    offered = {
        "nvidia.com/mig-1g.10gb": name_ids("MIG", 6),
        "nvidia.com/gpu": name_ids("GPU", 2),
        "nvidia.com/mig-3g.40gb": [],
    }
    chosen = [choose_resource(offered, pick / 8) for pick in range(8)]
    assert chosen == ["nvidia.com/gpu"] * 2 + ["nvidia.com/mig-1g.10gb"] * 6
    assert choose_resource({}, 0.5) is None


def test_as_many_pods_ask_for_whole_gpus_as_for_parts() -> None:
    """Where half of the GPUs go in parts: a hundred cores and three hundred blocks are one GPU, too."""
    offered = {
        "tencent.com/vcuda-core": name_ids("core", 400),
        "tencent.com/vcuda-memory": name_ids("mem", 1272),
        "nvidia.com/gpu": name_ids("GPU", 4),
    }
    chosen = [choose_resource(offered, pick / 8) for pick in range(8)]
    assert chosen == ["nvidia.com/gpu"] * 4 + ["tencent.com/vcuda-core"] * 4


def test_shares_of_another_device_do_not_take_the_pods_from_the_gpus() -> None:
    """A device that is given 256 times is one device still; so is a GPU."""
    offered = {
        "devices.nodeagent.io/kvm": [f"DEV-kvm::{share}" for share in range(256)],
        "nvidia.com/gpu": [f"GPU-{number}::{share}" for number in range(7) for share in range(4)],
    }
    chosen = [choose_resource(offered, pick / 8) for pick in range(8)]
    assert chosen == ["devices.nodeagent.io/kvm"] + ["nvidia.com/gpu"] * 7
