"""What a pod asks for, container by container."""

from collections.abc import Mapping

import pytest

from nodeagent.model.errors import RequestInvalid
from nodeagent.model.scheduling import SeenContainer, SeenPod
from nodeagent.rules.fractions.demands import ContainerDemand, PodDemand, Profiles, Stage, read_demand
from nodeagent.rules.fractions.profiles import CoresProfile, CountedProfile
from nodeagent.rules.placement.place import Demand

BOTH = Profiles(cores=CoresProfile(), shares=CountedProfile())
CORE, MEMORY, SHARE = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "nvidia.com/gpu"
MIB, PERCENT, PART = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"


def make(*limits: Mapping[str, str], init: tuple[SeenContainer, ...] = ()) -> SeenPod:
    containers = tuple(SeenContainer(name=f"c{number}", limits=each) for number, each in enumerate(limits))
    return SeenPod(namespace="d", name="p", uid="u", containers=containers, init_containers=init)


def test_every_container_has_its_turn_and_its_number() -> None:
    """Init containers first, sidecars among them; those that ask for nothing are left out and counted."""
    init = (
        SeenContainer(name="early", limits={CORE: "10", MEMORY: "4"}),
        SeenContainer(name="plain"),
        SeenContainer(name="beside", limits={CORE: "20", MEMORY: "4"}, is_sidecar=True),
    )
    found = read_demand(BOTH, make({"cpu": "1"}, {CORE: "200"}, init=init))
    assert found == PodDemand(
        profile="tencent",
        containers=(
            ContainerDemand(number=0, name="early", stage=Stage.INIT, demand=Demand(cores=10, memory_bytes=1 << 30)),
            ContainerDemand(
                number=2, name="beside", stage=Stage.SIDECAR, demand=Demand(cores=20, memory_bytes=1 << 30)
            ),
            ContainerDemand(number=4, name="c1", stage=Stage.MAIN, demand=Demand(gpus=2)),
        ),
    )


@pytest.mark.parametrize(
    ("limits", "demand"),
    [
        ({SHARE: "2"}, Demand(gpus=2)),
        ({SHARE: "1", MIB: "3k", PART: "30"}, Demand(cores=30, memory_bytes=3000 << 20)),
        ({SHARE: "1", PERCENT: "25"}, Demand(cores=0, memory_percent=25)),
    ],
)
def test_shares_say_how_large_they_are(limits: Mapping[str, str], demand: Demand) -> None:
    found = read_demand(BOTH, make(limits))
    assert found is not None
    assert (found.profile, [each.demand for each in found.containers]) == ("hami", [demand])


@pytest.mark.parametrize("limits", [{}, {"cpu": "1"}, {CORE: "0"}, {CORE: "0", MEMORY: "0"}, {SHARE: "0", MIB: "0"}])
def test_nothing_is_asked_for_with_nothing(limits: Mapping[str, str]) -> None:
    """Zero is what charts write for none."""
    assert read_demand(BOTH, make(limits)) is None


@pytest.mark.parametrize(
    ("limits", "key", "reason"),
    [
        ({CORE: "150"}, CORE, "container c0: 150 is more than one GPU and not a number of whole GPUs"),
        ({MEMORY: "4"}, MEMORY, "container c0: 4 without tencent.com/vcuda-core"),
        ({CORE: "lots"}, CORE, "container c0: 'lots' is no whole number"),
        ({MIB: "1000"}, MIB, "container c0: 1000 without nvidia.com/gpu; ask for 1 of that too"),
        ({PERCENT: "10"}, PERCENT, "container c0: 10 without nvidia.com/gpu"),
        ({PART: "10"}, PART, "container c0: 10 without nvidia.com/gpu"),
        ({SHARE: "1", PERCENT: "101"}, PERCENT, "container c0: 101 is more than all of a GPU's memory"),
    ],
)
def test_what_can_never_be_is_refused_by_container_key_and_remedy(
    limits: Mapping[str, str], key: str, reason: str
) -> None:
    with pytest.raises(RequestInvalid) as caught:
        read_demand(BOTH, make(limits))
    assert caught.value.resource == key
    assert caught.value.reason.startswith(reason)


def test_two_kinds_of_names_are_refused() -> None:
    with pytest.raises(RequestInvalid) as caught:
        read_demand(BOTH, make({CORE: "100"}, {SHARE: "1"}))
    assert caught.value.resource == f"{CORE} and {SHARE}"
    assert caught.value.reason.startswith("containers c0 and c1 ask for parts of GPUs by different names")


@pytest.mark.parametrize(
    ("profiles", "expected"),
    [(Profiles(), []), (Profiles(cores=CoresProfile()), ["tencent"]), (Profiles(shares=CountedProfile()), ["hami"])],
)
def test_names_that_mean_something_else_here_mean_nothing(profiles: Profiles, expected: list[str]) -> None:
    """Such as nvidia.com/gpu, where it counts whole GPUs."""
    pods = [make({CORE: "100"}), make({SHARE: "1"})]
    found = [demand.profile for pod in pods if (demand := read_demand(profiles, pod)) is not None]
    assert found == expected
    assert [profiles.find(name) is not None for name in ("tencent", "hami")] == [
        "tencent" in expected,
        "hami" in expected,
    ]
