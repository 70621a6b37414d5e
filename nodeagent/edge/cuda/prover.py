"""The prover: writes, copies and computes on one GPU, and reports what came of it; the work of a stage's plan.

Run as a child process, because a sick GPU hangs or crashes the process that uses it; `child` is the parent's side.
Refuses to judge: wrong words are counted, sums and speeds are handed over as read.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Final

import msgspec

from nodeagent.core.children.child_setup import announce_step, claim_answers, die_with_parent
from nodeagent.core.children.frames import read_frames, write_frame
from nodeagent.edge.cuda.device import CudaGpu, GpuNotShown
from nodeagent.edge.host.driver.cuda_check import Cuda, CudaCallFailed
from nodeagent.model.proof import PatternPass, ProverOrder, ProverReadings, SmSum, Speed, SpeedKind

MIB: Final = 1 << 20
_SPEED_BYTES: Final = 256 * MIB
"""The same in every stage, so that speeds of GPUs at different stages compare."""
_COPY_BYTES: Final = 64 * MIB
_TIMES: Final = 3
_SPARE_PART, _SPARE_MOST = 16, 256 * MIB
"""What is left free: a part of the free memory, but not more than this."""
_MASKS: Final = (0, (1 << 64) - 1)
_THREADS, _BLOCKS_OF_SM, _RECORD_WORDS = 128, 8, 6
_NO_WORD: Final = (1 << 64) - 1
_OUT_OF_MEMORY: Final = 2


class Prover:
    """The readings of one GPU, as they come."""

    def __init__(self, cuda: Cuda, order: ProverOrder) -> None:
        self._cuda, self._order, self._plan = cuda, order, order.plan
        self._seed = order.plan.seed
        self._patterns: list[PatternPass] = []
        self._speeds: list[Speed] = []
        self._sums: set[SmSum] = set()
        self._unreached: list[str] = []
        self._found = 0
        self.readings = ProverReadings()

    def prove(self) -> None:
        """All of the plan, in the order of what it costs; `readings` has what was read, also after an error."""
        announce_step("start CUDA")
        self._cuda.call("cuInit", 0)
        gpu = CudaGpu(self._cuda, self._order.gpu)
        self.readings = ProverReadings(
            multiprocessors=gpu.multiprocessors,
            memory_nominal_gbps=gpu.read_memory_nominal_gbps(),
            clock_max_mhz=gpu.read_clock_max_mhz(),
        )
        gpu.load_kernels()
        self._found = gpu.allocate(16)
        self._prove_speeds(gpu)
        self._prove_sums(gpu)
        if self._plan.all_memory:
            self._prove_memory(gpu)
        ends, turn = time.monotonic() + self._plan.repeat_seconds, 1
        while time.monotonic() < ends and not self._has_wrong_words():
            announce_step(f"soak {turn}")
            self._seed += 1
            turn += 1
            self._prove_memory(gpu)
            self._prove_sums(gpu)
        self._note()

    def _prove_speeds(self, gpu: CudaGpu) -> None:
        """Patterns in a buffer of the usual size, and copies between its halves: by the host, and by each peer."""
        announce_step("prove memory")
        size = _round_down(min(_SPEED_BYTES, gpu.read_free_bytes() - _spare(gpu)))
        base = gpu.allocate(size)
        for mask in _MASKS:
            gpu.fill(base, size, self._seed, mask)
            self._check(gpu, "memory", base, size, (self._seed, mask))
        self._measure(SpeedKind.MEMORY, gpu, size, lambda: gpu.check(base, size, self._seed, _MASKS[-1], self._found))
        announce_step("prove copies")
        size = _round_down(min(_COPY_BYTES, size // 2))
        host, half = gpu.allocate_pinned(size), base + size
        self._refill(gpu, base, half, size)
        self._measure(SpeedKind.FROM_GPU, gpu, size, lambda: gpu.copy_from(host, base, size))
        self._measure(SpeedKind.TO_GPU, gpu, size, lambda: gpu.copy_to(half, host, size))
        self._check(gpu, "copies", half, size, (self._seed, 0))
        if self._plan.with_peers:
            for uuid in self._order.peers:
                announce_step("prove peers")
                self._refill(gpu, base, half, size)
                self._prove_peer(gpu, uuid, base, half, size)
        gpu.free(base)

    def _prove_peer(self, gpu: CudaGpu, uuid: str, base: int, half: int, size: int) -> None:
        """A copy to another GPU and back; a peer without room is no fault of this GPU."""
        try:
            peer = CudaGpu(self._cuda, uuid)
            there = peer.allocate(size)
        except (CudaCallFailed, GpuNotShown) as error:
            self._unreached.append(f"{uuid}: {error}")
            gpu.make_current()
            return
        gpu.enable_peer(peer)
        gpu.make_current()
        self._measure(SpeedKind.PEER, gpu, size, lambda: gpu.copy_between(peer, there, gpu, base, size), peer=uuid)
        gpu.copy_between(gpu, half, peer, there, size)
        self._check(gpu, f"peer {uuid}", half, size, (self._seed, 0))
        peer.close()
        gpu.make_current()

    def _prove_sums(self, gpu: CudaGpu) -> None:
        """The checksum on every multiprocessor, several times: a block lands where there is room."""
        announce_step("prove sums")
        blocks = gpu.multiprocessors * _BLOCKS_OF_SM
        records = gpu.allocate(8 * _RECORD_WORDS * blocks)
        clocks = []
        for _ in range(_TIMES):
            gpu.sum_up(records, blocks, _THREADS, (self._plan.turns, self._plan.rounds, self._plan.seed))
            words = gpu.read_words(records, _RECORD_WORDS * blocks)
            rows = [words[at : at + _RECORD_WORDS] for at in range(0, len(words), _RECORD_WORDS)]
            self._sums |= {SmSum(sm=row[0], plain=row[1], weighted=row[2], tensor=row[3]) for row in rows}
            clocks.append(statistics.median(1e3 * row[4] / max(1, row[5]) for row in rows))
        gpu.free(records)
        if not any(one.kind is SpeedKind.CLOCK for one in self._speeds):
            self._speeds.append(Speed(kind=SpeedKind.CLOCK, values=tuple(clocks)))
        self._note()

    def _prove_memory(self, gpu: CudaGpu) -> None:
        """Patterns in all free memory."""
        announce_step("prove all memory")
        base, size = _allocate_all(gpu)
        for mask in _MASKS:
            gpu.fill(base, size, self._seed, mask)
            self._check(gpu, "memory", base, size, (self._seed, mask))
        gpu.free(base)

    def _refill(self, gpu: CudaGpu, base: int, half: int, size: int) -> None:
        """A pattern in the first half, and its inverse in the second, so that a copy that does nothing is seen."""
        gpu.fill(base, size, self._seed, 0)
        gpu.fill(half, size, self._seed, _MASKS[-1])

    def _check(self, gpu: CudaGpu, where: str, base: int, size: int, pattern: tuple[int, int]) -> None:
        seed, mask = pattern
        gpu.write_words(self._found, 0, _NO_WORD)
        gpu.check(base, size, seed, mask, self._found)
        wrong, first = gpu.read_words(self._found, 2)
        one = PatternPass(where=where, size_bytes=size, seed=seed, mask=mask)
        if wrong:
            address = base + 8 * first
            (found,) = gpu.read_words(address, 1)
            one = msgspec.structs.replace(one, wrong=wrong, first=first, address=address, found=found)
        self._patterns.append(one)
        self._note()

    def _measure(self, kind: SpeedKind, gpu: CudaGpu, size: int, work: Callable[[], None], *, peer: str = "") -> None:
        values = tuple(size / gpu.measure(work) / 1e9 for _ in range(_TIMES))
        self._speeds.append(Speed(kind=kind, values=values, peer=peer))
        self._note()

    def _has_wrong_words(self) -> bool:
        return any(one.wrong for one in self._patterns)

    def _note(self) -> None:
        sums = sorted(self._sums, key=lambda one: (one.sm, one.plain, one.weighted, one.tensor))
        self.readings = msgspec.structs.replace(
            self.readings,
            patterns=tuple(self._patterns),
            speeds=tuple(self._speeds),
            sums=tuple(sums),
            unreached=tuple(self._unreached),
        )


def prove(order: ProverOrder) -> ProverReadings:
    """The readings, with the reason if they are not all."""
    began = time.monotonic()
    try:
        cuda = Cuda(order.library)
    except OSError as error:
        return ProverReadings(stopped=f"cannot load {order.library}: {error}")
    prover = Prover(cuda, order)
    call, code, stopped = "", 0, ""
    try:
        prover.prove()
    except CudaCallFailed as error:
        call, code, stopped = error.call, error.code, str(error)
    except GpuNotShown as error:
        stopped = str(error)
    except AttributeError as error:
        stopped = f"{order.library} is no CUDA driver library: {error}"
    seconds = time.monotonic() - began
    return msgspec.structs.replace(prover.readings, call=call, code=code, stopped=stopped, seconds=seconds)


def _spare(gpu: CudaGpu) -> int:
    return min(_SPARE_MOST, gpu.read_free_bytes() // _SPARE_PART)


def _round_down(size: int) -> int:
    """Whole pairs of words, in both halves."""
    return max(64, size // 64 * 64)


def _allocate_all(gpu: CudaGpu) -> tuple[int, int]:
    """All free memory but a little: a driver may have less in one piece than it says."""
    spare, free = _spare(gpu), gpu.read_free_bytes()
    for part in range(1, 4):
        size = _round_down(free - part * spare)
        try:
            return gpu.allocate(size), size
        except CudaCallFailed as error:
            if error.code != _OUT_OF_MEMORY:
                raise
    size = _round_down(free - 4 * spare)
    return gpu.allocate(size), size


def main() -> None:
    """The child: answer each order until the parent closes the pipe."""
    die_with_parent()
    answers = claim_answers()
    for request, payload in read_frames(0):
        order = msgspec.json.decode(payload, type=ProverOrder)
        write_frame(answers, request, msgspec.json.encode(prove(order)))
    os.close(answers)


if __name__ == "__main__":
    main()
