"""What only a driver can say about memory: asked call by call, so that the fake one can be asked the same."""

from collections.abc import Callable
from typing import Final

from tests.component.vgpu.cuda_talk import OUT, Caller

MIB: Final = 1 << 20
STACK: Final = 0
HEAP: Final = 2
RESERVED: Final = 5
GRAPH_RESERVED: Final = 2
OUTSIDE_DEFAULT: Final = 1
"""A stream that the default one does not wait for."""


def find_spare(one: Caller) -> int:
    code, spare, _ = one.call("cuMemGetInfo_v2", OUT, OUT)
    assert code == 0
    return spare


def measure_taken(one: Caller, symbol: str, *arguments: int | str) -> int:
    before = find_spare(one)
    assert one.call(symbol, *arguments)[0] == 0
    return before - find_spare(one)


def check_null_outputs(one: Caller) -> int:
    """Either output of `cuMemGetInfo` may be NULL, and both; how many of the three are taken."""
    answers = [one.call("cuMemGetInfo_v2", *each)[0] for each in ((0, OUT), (OUT, 0), (0, 0))]
    assert answers == [0, 0, 0]
    return len(answers)


def measure_context(one: Caller) -> int:
    """Bytes of a second context of this process."""
    return measure_taken(one, "cuCtxCreate_v2", OUT, 0, 0)


def measure_small_allocation(one: Caller) -> int:
    """Bytes that the device has less for the first byte."""
    return measure_taken(one, "cuMemAlloc_v2", OUT, 1)


def measure_odd_allocation(one: Caller) -> int:
    """Bytes that 5 MiB and one byte take: more than that, in whole pages."""
    taken = measure_taken(one, "cuMemAlloc_v2", OUT, 5 * MIB + 1)
    assert taken >= 5 * MIB + 1
    return taken


def measure_heap(one: Caller) -> int:
    """Bytes that a heap of 256 MiB for kernels takes once it is asked for."""
    return measure_taken(one, "cuCtxSetLimit", HEAP, 256 * MIB)


def measure_stack(one: Caller) -> int:
    """Bytes that a stack of 16 KiB for each thread of a kernel takes once it is asked for."""
    return measure_taken(one, "cuCtxSetLimit", STACK, 16 << 10)


def find_reserved(one: Caller, pool: int) -> int:
    code, reserved = one.call("cuMemPoolGetAttribute", pool, RESERVED, OUT)
    assert code == 0
    return reserved


def measure_untrimmed(one: Caller) -> int:
    """Bytes of 64 MiB that a pool keeps though it was trimmed: their stream has not come to the free."""
    _, mark = one.call("cuMemAlloc_v2", OUT, 4)
    assert one.call("cuMemsetD32_v2", mark, 0, 1) == (0,)
    (_, held), (_, other) = (one.call("cuStreamCreate", OUT, OUTSIDE_DEFAULT) for _ in range(2))
    _, pool = one.call("cuDeviceGetDefaultMemPool", OUT, 0)
    assert one.call("cuStreamWaitValue32_v2", held, mark, 1, 0) == (0,)
    code, at = one.call("cuMemAllocAsync", OUT, 64 * MIB, held)
    assert (code, one.call("cuMemFreeAsync", at, held)) == (0, (0,))
    assert one.call("cuMemPoolTrimTo", pool, 0) == (0,)
    kept = find_reserved(one, pool)
    assert one.call("cuStreamWriteValue32_v2", other, mark, 1, 0) == (0,)
    assert one.call("cuStreamSynchronize", held) == (0,)
    assert one.call("cuMemPoolTrimTo", pool, 0) == (0,)
    assert find_reserved(one, pool) < 64 * MIB
    return kept


def measure_graph(one: Caller) -> int:
    """Bytes that are reserved for a graph that takes 64 MiB and gives them back, twice: its nodes share them."""
    _, stream = one.call("cuStreamCreate", OUT, OUTSIDE_DEFAULT)
    assert one.call("cuStreamBeginCapture_v2", stream, 0) == (0,)
    for _ in range(2):
        _, at = one.call("cuMemAllocAsync", OUT, 64 * MIB, stream)
        assert one.call("cuMemFreeAsync", at, stream) == (0,)
    _, graph = one.call("cuStreamEndCapture", stream, OUT)
    _, made = one.call("cuGraphInstantiateWithFlags", OUT, graph, 0)
    assert one.call("cuGraphLaunch", made, stream) == (0,)
    assert one.call("cuStreamSynchronize", stream) == (0,)
    code, reserved = one.call("cuDeviceGetGraphMemAttribute", 0, GRAPH_RESERVED, OUT)
    assert code == 0
    assert reserved >= 64 * MIB
    return reserved


FACTS: Final[tuple[Callable[[Caller], int], ...]] = (
    check_null_outputs,
    measure_context,
    measure_small_allocation,
    measure_odd_allocation,
    measure_heap,
    measure_stack,
    measure_untrimmed,
    measure_graph,
)
ON_THE_FAKE: Final = (
    check_null_outputs,
    measure_context,
    measure_small_allocation,
    measure_odd_allocation,
    measure_graph,
)
"""Those for which the fake driver has the entry points."""
