"""What programs use of GPUs in parts that were given nothing of them."""

import pytest
from msgspec.structs import replace

from nodeagent.components.fractions.tending.foreign import find_foreign
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import Binding
from nodeagent.model.ports import ProcessPlace
from tests.support.samples import make_inventory, make_uuid
from tests.unit.components.usage.builders import GIB, bind, place, run, sample, tabulate

GPUS: tuple[Gpu, ...] = make_inventory().gpus
PLACES = {
    10: place("a"),
    11: place("stranger"),
    12: ProcessPlace(name="python3"),
    13: ProcessPlace(name="nvidia-cuda-mps"),
}
IGNORED = ("nvidia-cuda-mps-server",)


def find(
    *pids: int, bindings: tuple[Binding, ...] = (bind(1, "a"),), gpus: tuple[Gpu, ...] = GPUS
) -> dict[GpuUuid, int]:
    return find_foreign(gpus, tabulate(*bindings), sample(*map(run, pids)), PLACES, IGNORED)


@pytest.mark.parametrize(
    ("pids", "gibibytes"),
    [
        ((10,), None),
        ((10, 11), 1),
        ((12,), 1),
        ((11, 12, 10), 2),
        ((13,), None),
        ((99,), None),
        ((), None),
    ],
    ids=["ours", "of another pod", "of the host", "of both", "that is ignored", "that nobody sees", "none"],
)
def test_who_was_given_nothing_is_counted(pids: tuple[int, ...], gibibytes: int | None) -> None:
    assert find(*pids) == ({} if gibibytes is None else {make_uuid(0): gibibytes * GIB})


def test_a_gpu_that_nobody_has_is_looked_at_too() -> None:
    """As one that is not given in parts is not."""
    assert find(11, bindings=()) == {make_uuid(0): GIB}
    assert find(11, bindings=(), gpus=()) == {}


def test_while_a_pod_is_not_known_nothing_is_said_of_its_gpu() -> None:
    """The process may be its own."""
    assert find(11, bindings=(bind(1, "a", uid=""),)) == {}


def test_small_changes_are_the_same() -> None:
    """Each is told to all schedulers; what says no memory is there all the same."""
    for used, expected in ((None, 0), (1, 256 << 20), (256 << 20, 256 << 20), ((256 << 20) + 1, 512 << 20)):
        process = replace(run(11), memory_used_bytes=used)
        assert find_foreign(GPUS, tabulate(), sample(process), PLACES, ()) == {make_uuid(0): expected}
