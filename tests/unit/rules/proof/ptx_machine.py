"""Runs the prover's PTX on the CPU, word by word as it stands: the part of the language that the kernels use.

A thread is a generator that stops where threads meet: at a barrier, and at a product of a warp.
"""

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

LANES: Final = 32
_LABEL: Final = re.compile(r"^(\w+):$")
_STEP: Final = re.compile(r"^(?:@(%\w+)\s+)?([\w.]+)\s*(.*);$")
_OPERAND: Final = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")
_ALL: Final = (1 << 64) - 1
_LOW: Final = (1 << 32) - 1
_COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "eq": lambda left, right: left == right,
    "ne": lambda left, right: left != right,
    "lt": lambda left, right: left < right,
    "ge": lambda left, right: left >= right,
}
_SUMS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "add": lambda left, right: left + right,
    "sub": lambda left, right: left - right,
    "mul": lambda left, right: left * right,
    "xor": lambda left, right: left ^ right,
    "shl": lambda left, right: left << right,
    "shr": lambda left, right: left >> right,
}
Meeting = tuple[str, list[str], dict[str, int]]
"""The kind of a meeting, its operands, and the registers of the thread."""


@dataclass
class Kernel:
    """The steps of an entry, where its labels are, and the names of its parameters."""

    parameters: list[str]
    steps: list[tuple[str, list[str], list[str]]]
    labels: dict[str, int]


def read_kernel(text: str, name: str) -> Kernel:
    found = re.search(rf"\.entry {name}\((.*?)\)\s*\{{\n(.*?)\n\}}", text, re.DOTALL)
    assert found is not None
    steps: list[tuple[str, list[str], list[str]]] = []
    labels: dict[str, int] = {}
    for raw in found[2].splitlines():
        line = raw.split("//")[0].strip()
        if label := _LABEL.match(line):
            labels[label[1]] = len(steps)
        elif line and not line.startswith("."):
            step = _STEP.match(line)
            assert step is not None, line
            steps.append((step[1] or "", step[2].split("."), [each.strip() for each in _OPERAND.findall(step[3])]))
    return Kernel(re.findall(r"\.u\d\d (\w+)", found[1]), steps, labels)


class Machine:
    """A GPU with one memory, of words of eight bytes, and one multiprocessor that runs block after block."""

    def __init__(self, text: str, *, sm: int = 0) -> None:
        self._text, self._sm = text, sm
        self.memory: dict[int, int] = {}

    def launch(self, name: str, blocks: int, threads: int, *arguments: int) -> None:
        kernel = read_kernel(self._text, name)
        words = dict(zip(kernel.parameters, arguments, strict=True))
        for block in range(blocks):
            shared: dict[int, int] = {}
            special = {"%ctaid.x": block, "%ntid.x": threads, "%nctaid.x": blocks, "%smid": self._sm}
            each = [self._run(kernel, words, shared, {**special, "%tid.x": at}) for at in range(threads)]
            while meetings := [meeting for thread in each if (meeting := next(thread, None)) is not None]:
                assert len(meetings) == threads
                for first in range(0, threads, LANES):
                    if meetings[first][0] == "mma":
                        _multiply(meetings[first : first + LANES])

    def _run(
        self, kernel: Kernel, words: Mapping[str, int], shared: dict[int, int], special: Mapping[str, int]
    ) -> Generator[Meeting, None, None]:
        thread = _Thread(self.memory, shared, {"sums": 0, "start": 64, **words}, special)
        at = 0
        while True:
            guard, (verb, *kinds), operands = kernel.steps[at]
            at += 1
            if guard and not thread.registers[guard]:
                continue
            if verb == "ret":
                return
            if verb == "bra":
                at = kernel.labels[operands[0]]
            elif verb in ("bar", "mma"):
                yield verb, operands, thread.registers
            elif verb in ("ld", "st", "red"):
                thread.access(verb, kinds, operands)
            elif verb in ("mov", "cvt", "cvta", "setp"):
                thread.move(verb, kinds, operands)
            else:
                thread.compute(verb, kinds, operands)


class _Thread:
    """Registers, and the steps that change them."""

    def __init__(
        self,
        memory: dict[int, int],
        shared: dict[int, int],
        places: Mapping[str, int],
        special: Mapping[str, int],
    ) -> None:
        self._memory, self._shared, self._places, self._special = memory, shared, places, special
        self.registers: dict[str, int] = {}
        self._clock = 0

    def access(self, verb: str, kinds: Sequence[str], operands: Sequence[str]) -> None:
        memory = self._shared if "shared" in kinds else self._memory
        where = self._place(operands[verb == "ld"])
        if verb == "ld":
            for offset, register in enumerate(_split(operands[0])):
                self.registers[register] = where if "param" in kinds else memory[where + 8 * offset]
            return
        for offset, operand in enumerate(_split(operands[1])):
            said, old = self._value(operand), memory.get(where + 8 * offset, 0)
            combined = {"add": old + said, "min": min(old, said)}
            memory[where + 8 * offset] = combined[kinds[1]] & _ALL if verb == "red" else said

    def move(self, verb: str, kinds: Sequence[str], operands: Sequence[str]) -> None:
        values = [self._value(each) for each in _split(operands[1])]
        if verb == "setp":
            self.registers[operands[0]] = _COMPARISONS[kinds[0]](values[0], self._value(operands[2]))
        elif len(values) > 1:
            self.registers[operands[0]] = values[1] << 32 | values[0]
        else:
            self.registers[operands[0]] = values[0]

    def compute(self, verb: str, kinds: Sequence[str], operands: Sequence[str]) -> None:
        values = [self._value(each) for each in operands[1:]]
        is_wide = "wide" in kinds or kinds[-1].endswith("64")
        if verb == "mad":
            result = values[0] * values[1] + values[2]
        elif verb == "shf":
            assert values[0] == values[1]
            result = values[0] << values[2] | values[0] >> 32 - values[2]
        else:
            result = _SUMS[verb](values[0], values[1])
        self.registers[operands[0]] = result & (_ALL if is_wide else _LOW)

    def _value(self, operand: str) -> int:
        if operand in ("%clock64", "%globaltimer"):
            self._clock += 1
            return self._clock
        if operand in self._special:
            return self._special[operand]
        return self.registers[operand] if operand.startswith("%") else int(operand, 0)

    def _place(self, operand: str) -> int:
        name, _, offset = operand.strip("[]").partition("+")
        return (self.registers[name] if name.startswith("%") else self._places[name]) + int(offset or 0)


def _split(operand: str) -> list[str]:
    return [each.strip() for each in operand.strip("{}").split(",")]


def _multiply(warp: Sequence[Meeting]) -> None:
    """As the language's manual lays out the product of 8 x 16 and 16 x 8 bytes: each lane has a part of each matrix."""

    def read(operand: int) -> Iterator[tuple[int, int, int]]:
        for lane, (_, operands, registers) in enumerate(warp):
            word = registers[_split(operands[operand])[0]].to_bytes(4, "little")
            for at, byte in enumerate(memoryview(word).cast("b")):
                yield lane >> 2, (lane % 4) * 4 + at, byte

    left = {(row, k): byte for row, k, byte in read(1)}
    right = {(k, column): byte for column, k, byte in read(2)}
    results: list[tuple[dict[str, int], str, int]] = []
    for lane, (_, operands, registers) in enumerate(warp):
        for at, register in enumerate(_split(operands[0])):
            row, column = lane >> 2, (lane % 4) * 2 + at
            product = sum(left[row, k] * right[k, column] for k in range(16))
            added: Any = registers[_split(operands[3])[at]]
            results.append((registers, register, product + added & _LOW))
    for registers, register, result in results:
        registers[register] = result
