"""The rules of labels that describe GPUs as resources: sharing, MIG, models, one law each."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.labeler.resources import find_family, label_models
from nodeagent.components.labeler.values import is_legal
from nodeagent.config.schema import Settings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.config.sections.sharing import (
    Mps,
    ResourcePattern,
    ResourcesSettings,
    SharedResource,
    SharingSettings,
    TimeSlicing,
)
from nodeagent.model.gpu import Gpu
from tests.support.gpus import make_gpu
from tests.unit.components.labeler.harness import P, resources


def settings(strategy: Any = "none", **sharing: Any) -> Settings:
    return Settings(
        device_plugin=DevicePluginSettings(mig_strategy=strategy),
        sharing=SharingSettings(timeSlicing=TimeSlicing(**sharing) if sharing else None),
    )


def sliced(name: str, strategy: Any = "none", **more: Any) -> Settings:
    return settings(strategy, resources=(SharedResource(name=name, replicas=4, **more),))


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        ((0, 0), "undefined"),
        ((3, 7), "kepler"),
        ((4, 0), "undefined"),
        ((7, 0), "volta"),
        ((7, 5), "turing"),
        ((8, 6), "ampere"),
        ((8, 9), "ada-lovelace"),
        ((9, 0), "hopper"),
        ((10, 0), "blackwell"),
        ((11, 0), "undefined"),
        ((12, 1), "blackwell"),
        ((13, 0), "rubin"),
        ((14, 0), "undefined"),
    ],
)
def test_families_by_capability(capability: tuple[int, int], family: str) -> None:
    """Each capability has the name that upstream gives it."""
    assert find_family(capability) == family


@pytest.mark.parametrize(
    ("renamed", "entry", "product"),
    [
        (False, {}, "NVIDIA-H100-80GB-HBM3-SHARED"),
        (True, {}, "NVIDIA-H100-80GB-HBM3"),
        (False, {"rename": "gpu.quarter"}, "NVIDIA-H100-80GB-HBM3"),
    ],
)
def test_a_shared_gpu_says_so_unless_its_resource_does(renamed: bool, entry: dict[str, Any], product: str) -> None:
    """Count stays the number of GPUs; replicas say how often each is offered."""
    under = settings(renameByDefault=renamed, resources=(SharedResource(name="nvidia.com/gpu", replicas=4, **entry),))
    labels = resources(make_gpu(0), make_gpu(1), under=under)
    assert labels[f"{P}gpu.product"] == product
    assert (labels[f"{P}gpu.count"], labels[f"{P}gpu.replicas"]) == ("2", "4")
    assert labels[f"{P}gpu.sharing-strategy"] == "time-slicing"


EIGHT = tuple(make_gpu(index) for index in range(8))


def exact(labels: dict[str, str]) -> dict[str, str]:
    """The labels of our own about resources."""
    stem = f"{P}resource."
    return {key.removeprefix(stem): value for key, value in labels.items() if key.startswith(stem)}


def test_what_nvidias_labels_can_say_needs_no_others() -> None:
    """Every GPU of one model shared alike under the known name: the labels are those of GPU feature discovery alone."""
    assert exact(resources(*EIGHT)) == exact(resources(*EIGHT, under=sliced("gpu"))) == {}
    renamed = settings(renameByDefault=True, resources=(SharedResource(name="gpu", replicas=4),))
    assert exact(resources(*EIGHT, under=renamed)) == {}


def test_one_shared_gpu_of_eight_is_not_eight() -> None:
    """NVIDIA's labels promise what holds for each GPU; beside them stands how many devices the kubelet gets."""
    labels = resources(*EIGHT, under=sliced("gpu", devices=("0",)))
    assert (labels[f"{P}gpu.replicas"], labels[f"{P}gpu.sharing-strategy"]) == ("1", "time-slicing")
    assert labels[f"{P}gpu.product"].endswith("-SHARED"), "a pod that asks for nvidia.com/gpu may get a share"
    assert exact(labels) == {"gpu.count": "11", "gpu.devices": "8", "gpu.shared": "1"}


def test_a_share_with_a_name_of_its_own_leaves_the_others_exclusive() -> None:
    """One GPU shared under another name: both resources are told, and the product is that of whole GPUs."""
    labels = resources(*EIGHT, under=sliced("gpu", devices=("0",), rename="quarter"))
    assert not labels[f"{P}gpu.product"].endswith("-SHARED")
    assert exact(labels) == {
        "gpu.count": "7", "gpu.devices": "7", "gpu.shared": "0",
        "quarter.count": "4", "quarter.devices": "1", "quarter.shared": "1",
    }  # fmt: skip


def test_gpus_of_another_name_are_shared_all_the_same() -> None:
    """A pattern renames, sharing goes by the new name, and the labels follow both."""
    patterns = ResourcesSettings(gpus=(ResourcePattern(pattern="*H100*", name="h100"),))
    labels = resources(*EIGHT, under=replace(sliced("h100"), resources=patterns))
    assert (labels[f"{P}gpu.replicas"], labels[f"{P}gpu.sharing-strategy"]) == ("4", "time-slicing")
    assert exact(labels) == {
        "gpu.count": "0", "gpu.devices": "0", "gpu.shared": "0",
        "h100.count": "32", "h100.devices": "8", "h100.shared": "8",
    }  # fmt: skip


def test_a_foreign_domain_is_spelled_out() -> None:
    """A resource outside of NVIDIA's domain has its domain in the label's name."""
    plugin = DevicePluginSettings(resource_prefix="example.org")
    labels = exact(resources(make_gpu(0), under=Settings(device_plugin=plugin)))
    assert labels["example.org_gpu.count"] == "1"
    assert labels["gpu.count"] == "0"


def test_single_with_devices_that_only_share_a_name_is_invalid() -> None:
    """The device plugin hands none of them out, so the labels say that there is none."""
    alike, other = make_gpu(0, mig=["1g.10gb"]), make_gpu(1, mig=["1g.10gb"])
    assert other.mig is not None
    smaller = replace(other.mig_devices[0], attributes=replace(other.mig_devices[0].attributes, memory_mib=9728))
    labels = resources(alike, replace(other, mig=replace(other.mig, devices=(smaller,))), under=settings("single"))
    assert (labels[f"{P}gpu.product"], labels[f"{P}gpu.count"]) == ("NVIDIA-H100-80GB-HBM3-MIG-INVALID", "0")
    assert exact(labels) == {}


def test_a_profile_that_is_not_offered_has_no_replicas() -> None:
    """Under `mixed` a compute instance smaller than its GPU instance is there, and cannot be asked for."""
    labels = resources(make_gpu(0, mig=["1c.2g.20gb"]), under=settings("mixed"))
    assert (labels[f"{P}mig-1c.2g.20gb.count"], labels[f"{P}mig-1c.2g.20gb.replicas"]) == ("1", "0")
    assert exact(labels) == {}


@pytest.mark.parametrize(
    "under",
    [
        sliced("mig-1g.10gb"),
        sliced("other.example/gpu"),
        sliced("gpu", models=("*A100*",)),
    ],
)
def test_what_is_not_shared_is_not_labelled_as_shared(under: Settings) -> None:
    """An entry for something else leaves the GPU whole."""
    labels = resources(make_gpu(0), under=under)
    assert (labels[f"{P}gpu.replicas"], labels[f"{P}gpu.sharing-strategy"]) == ("1", "none")


def test_an_entry_for_a_model_counts_for_it() -> None:
    """`models` narrows sharing, and the labels follow it."""
    assert resources(make_gpu(0), under=sliced("gpu", models=("*H100*",)))[f"{P}gpu.replicas"] == "4"


def test_a_node_of_nothing_but_mig_has_no_whole_gpu_to_share() -> None:
    """Under `none`, labels that come from a partitioned GPU say zero replicas, shared or not."""
    labels = resources(make_gpu(0, mig=["1g.10gb"]), under=sliced("gpu"))
    assert labels[f"{P}gpu.replicas"] == "0"
    assert labels[f"{P}gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert f"{P}mig.strategy" not in labels


def test_a_whole_gpu_speaks_for_its_model() -> None:
    """Of one model partitioned and whole, the whole one carries the sharing."""
    labels = resources(make_gpu(0, mig=["1g.10gb"]), make_gpu(1), under=sliced("gpu", "mixed"))
    assert (labels[f"{P}gpu.count"], labels[f"{P}gpu.replicas"]) == ("2", "4")
    assert labels[f"{P}mig-1g.10gb.replicas"] == "1"


def test_single_describes_the_mig_devices() -> None:
    """All partitioned alike: the labels are the devices', the architecture stays the GPU's."""
    gpu = replace(make_gpu(0, mig=["1g.10gb"] * 7), compute_capability=(9, 0))
    labels = resources(gpu, under=sliced("gpu", "single"))
    assert labels[f"{P}gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED"
    assert (labels[f"{P}gpu.count"], labels[f"{P}gpu.replicas"], labels[f"{P}gpu.memory"]) == ("7", "4", "9856")
    assert labels[f"{P}gpu.family"] == "hopper"
    assert labels[f"{P}gpu.slices.gi"] == "1"


@pytest.mark.parametrize(
    "gpus",
    [
        [make_gpu(0, mig=["1g.10gb"]), make_gpu(1)],
        [make_gpu(0, mig=["1g.10gb"]), make_gpu(1, mig=[])],
        [make_gpu(0, mig=["1g.10gb", "2g.20gb"])],
        [make_gpu(0, mig=[])],
    ],
)
def test_single_refuses_what_is_not_alike(gpus: list[Gpu]) -> None:
    """A layout that the strategy cannot offer has count zero and says so in the product."""
    labels = resources(*gpus, under=sliced("gpu", "single"))
    assert labels[f"{P}gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-INVALID"
    assert [labels[f"{P}gpu.{key}"] for key in ("count", "replicas", "memory", "sharing-strategy")] == [
        "0",
        "0",
        "0",
        "",
    ]


def test_single_without_a_model_name_still_says_zero() -> None:
    """A nameless GPU in an invalid layout has no product, and count zero."""
    labels = resources(make_gpu(0, mig=[], name=""), under=settings("single"))
    assert f"{P}gpu.product" not in labels
    assert labels[f"{P}gpu.count"] == "0"


def test_single_without_mig_is_plain() -> None:
    """The strategy alone changes nothing on whole GPUs."""
    labels = resources(make_gpu(0), under=settings("single"))
    assert (labels[f"{P}gpu.count"], labels[f"{P}mig.strategy"]) == ("1", "single")


def test_mixed_names_profiles_with_points() -> None:
    """A plus sign is no character of a label, and becomes a point as in the resource's name."""
    labels = resources(make_gpu(0, mig=["1g.10gb+me"]), under=settings("mixed"))
    assert labels[f"{P}mig-1g.10gb.me.product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me"


def test_the_most_numerous_model_speaks_for_the_node() -> None:
    """Two models: the choice is stable, and by number before index."""
    gpus = [make_gpu(0, name="A"), make_gpu(1, name="B"), make_gpu(2, name="B")]
    assert resources(*gpus)[f"{P}gpu.product"] == "B"
    assert resources(*gpus[:2])[f"{P}gpu.product"] == "A"


def test_model_labels_are_for_several_models_only() -> None:
    """One model needs none; a nameless one cannot have any."""
    assert list(label_models([make_gpu(0)])) == []
    labels = dict(label_models([make_gpu(0, name="A"), make_gpu(1, name=""), make_gpu(2, name="x" * 300)]))
    assert labels[f"{P}gpu.product.A.count"] == "1"
    assert len(labels) == 4
    assert all(is_legal(key, value) for key, value in labels.items())


def test_shares_by_mps_are_labelled_so() -> None:
    """As NVIDIA's: the product says that it is shared, and the node that it serves such shares."""
    by_mps = Settings(sharing=SharingSettings(mps=Mps(resources=(SharedResource(name="gpu", replicas=2),))))
    labels = resources(make_gpu(0), under=by_mps)
    assert (labels[f"{P}gpu.replicas"], labels[f"{P}gpu.sharing-strategy"]) == ("2", "mps")
    assert (labels[f"{P}gpu.product"][-7:], labels[f"{P}mps.capable"]) == ("-SHARED", "true")
    beside_mig = resources(make_gpu(0), make_gpu(1, mig=["1g.10gb"]), under=by_mps)
    assert beside_mig[f"{P}mps.capable"] == "false"
    assert resources(make_gpu(0), under=Settings())[f"{P}mps.capable"] == "false"
