"""What can be asked for, what cannot, and the words for it."""

from collections.abc import Mapping

import pytest

from nodeagent.model.errors import RequestInvalid
from nodeagent.model.journal import Enforcement
from nodeagent.rules.fractions.profiles import CoresProfile, CountedProfile
from nodeagent.rules.fractions.requests import (
    check_cores,
    explain_several,
    read_core_limit,
    read_counted,
    read_counts,
    read_enforcement_choice,
)
from nodeagent.rules.placement.place import Demand
from tests.support.placement import GIB

CORES, SHARES = CoresProfile(), CountedProfile()
LARGEST = 80 * GIB
MEM, PERCENT, CORE = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"


@pytest.mark.parametrize(
    ("cores", "blocks", "expected"),
    [
        (1, 1, Demand(cores=1, memory_bytes=GIB // 4)),
        (99, 320, Demand(cores=99, memory_bytes=80 * GIB)),
        (100, 0, Demand(gpus=1)),
        (100, 100000, Demand(gpus=1)),
        (800, 4, Demand(gpus=8)),
    ],
)
def test_cores_and_blocks_that_can_be_asked_for(cores: int, blocks: int, expected: Demand) -> None:
    """Below one GPU both count; whole GPUs come with all their memory, whatever is asked for beside them."""
    assert read_counts(CORES, cores, blocks, LARGEST) == expected


@pytest.mark.parametrize(
    ("cores", "blocks", "key", "reason"),
    [
        (0, 4, CORES.memory, "4 without tencent.com/vcuda-core; ask for 1 to 99 of that too, or for 100"),
        (0, 0, CORES.core, "0 is no part of a GPU; give 1 to 99, or a multiple of 100"),
        (-3, 0, CORES.core, "-3 is no part of a GPU"),
        (-3, -3, CORES.core, "-3 is no part of a GPU"),
        (150, 4, CORES.core, "150 is more than one GPU and not a number of whole GPUs; give 1 to 99, or a multiple"),
        (30, 0, CORES.core, "30 without tencent.com/vcuda-memory; ask for blocks of 256 MiB too, or for 100"),
        (30, -1, CORES.core, "30 without tencent.com/vcuda-memory"),
        (30, 321, CORES.memory, "321 blocks are 80.2 GiB, the largest GPU here has 80 GiB; give at most 320, or ask"),
        (30, 10**12, CORES.memory, "1000000000000 blocks are"),
    ],
)
def test_odd_combinations_are_refused_with_key_value_and_remedy(cores: int, blocks: int, key: str, reason: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        read_counts(CORES, cores, blocks, LARGEST)
    assert caught.value.resource == key
    assert caught.value.reason.startswith(reason)


def test_cores_alone_are_judged_before_memory_is_known() -> None:
    """What no memory could mend is refused when the cores are asked for, which may be first."""
    for cores in (1, 99, 100, 700):
        check_cores(CORES, cores)
    with pytest.raises(RequestInvalid, match="150"):
        check_cores(CORES, 150)


@pytest.mark.parametrize(
    ("shares", "limits", "expected"),
    [
        (1, {}, Demand(gpus=1)),
        (2, {PERCENT: "100"}, Demand(gpus=2)),
        (1, {CORE: "100", MEM: "3000"}, Demand(gpus=1)),
        (1, {CORE: "250"}, Demand(gpus=1)),
        (1, {MEM: "3000"}, Demand(cores=0, memory_bytes=3000 << 20)),
        (2, {MEM: "8k", CORE: "30"}, Demand(gpus=2, cores=30, memory_bytes=8000 << 20)),
        (1, {MEM: "8Ki", PERCENT: "10"}, Demand(cores=0, memory_bytes=8 * GIB)),
        (1, {MEM: "3e3"}, Demand(cores=0, memory_bytes=3000 << 20)),
        (1, {PERCENT: "25"}, Demand(cores=0, memory_percent=25)),
        (1, {CORE: "30"}, Demand(cores=30, memory_percent=100)),
        (1, {CORE: "0", MEM: "0", PERCENT: "0"}, Demand(gpus=1)),
    ],
)
def test_shares_are_as_large_as_the_pod_says(shares: int, limits: Mapping[str, str], expected: Demand) -> None:
    """Mebibytes before percentage; nothing said is a whole GPU, and what is absent is not limited."""
    assert read_counted(SHARES, shares, limits, LARGEST) == expected


@pytest.mark.parametrize(
    ("shares", "limits", "key", "reason"),
    [
        (0, {}, "nvidia.com/gpu", "0 is no number of shares; give 1 or more"),
        (1, {PERCENT: "101"}, PERCENT, "101 is more than all of a GPU's memory; give 1 to 100"),
        (1, {MEM: "81921"}, MEM, "81921 MiB are asked for, the largest GPU here has 81920; give at most that"),
        (1, {MEM: "999999999999T"}, MEM, "999999999999000000000000 MiB are asked for"),
        (1, {CORE: "-1"}, CORE, "'-1' is no whole number that is not negative; give one"),
        (1, {CORE: "500m"}, CORE, "'500m' is no whole number"),
        (1, {MEM: ""}, MEM, "'' is no whole number"),
        (1, {MEM: "9" * 5000}, MEM, f"'{'9' * 40}' is no whole number"),
        (1, {MEM: "1e99"}, MEM, "'1e99' is no whole number"),
    ],
)
def test_shares_that_nothing_could_serve_are_refused(
    shares: int, limits: Mapping[str, str], key: str, reason: str
) -> None:
    """With key, value and remedy."""
    with pytest.raises(RequestInvalid) as caught:
        read_counted(SHARES, shares, limits, LARGEST)
    assert caught.value.resource == key
    assert caught.value.reason.startswith(reason)


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("30", 30), ("400", 100), ("100", 100), (None, None)])
def test_a_pod_may_allow_itself_more_compute(text: str | None, expected: int | None) -> None:
    """Up to the whole GPU, and never less than it is promised."""
    annotations = {} if text is None else {CORES.core_limit: text}
    assert read_core_limit(CORES, annotations, Demand(cores=30)) == expected
    assert read_core_limit(CORES, {CORES.core_limit: "x"}, Demand()) is None


@pytest.mark.parametrize("text", ["29", "", "-1", "50%", "9" * 5000, "٣٠"])
def test_an_allowance_that_contradicts_the_request_is_refused(text: str) -> None:
    """The person who wrote it is told what it may be."""
    with pytest.raises(RequestInvalid, match=r"vcuda-core-limit.*give a number from 30, .*, to 100, or take it away"):
        read_core_limit(CORES, {CORES.core_limit: text}, Demand(cores=30))


KEY = "nodeagent.io/gpu-enforcement"
CHOSEN = [Enforcement.ADVISE, Enforcement.LIBRARY, Enforcement.MPS]
"""No pod chooses that nothing enforces its part: that is so for devices of other vendors."""


def test_a_pod_says_what_it_wants_or_leaves_it_to_its_node() -> None:
    """By one of the words of the configuration."""
    assert read_enforcement_choice(KEY, {}) is None
    assert [read_enforcement_choice(KEY, {KEY: str(each)}) for each in CHOSEN] == CHOSEN


def test_another_word_is_refused_with_those_that_there_are() -> None:
    """However long it is."""
    with pytest.raises(RequestInvalid, match="give one of advise, library, mps") as caught:
        read_enforcement_choice(KEY, {KEY: "x" * 1000})
    assert len(caught.value.reason) < 120


def test_parts_of_several_gpus_are_too_many_for_mps() -> None:
    """With what to write instead."""
    assert explain_several(3).startswith("parts of 3 GPUs are asked for, and MPS holds a process to its part of one")
