"""The tests' hand on the fake library: what it answers, how it fails, and how often it was called.

Everything takes effect at once in every process that has the library loaded with this instance's environment.
"""

import ctypes
import mmap
import os
import platform
import signal
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from ctypes import sizeof
from functools import cache
from pathlib import Path

from nodeagent.model.telemetry import NodeSample
from nodeagent_sim.gpus.profile import Profile, load_profile
from tests.fakes.nvml import build, encode, layout, weather

ENVIRONMENT_VARIABLE = "NODEAGENT_FAKE_NVML"


@cache
def load_known_profile(name: str) -> Profile:
    """A profile, read from its file once: a test may make a fake where files must not be read, in a running loop."""
    return load_profile(name)


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAKE = 1
_EVERYBODY = 2**31 - 1


def _map_file(path: Path, size: int) -> int:
    """Map a file shared; by hand, because `mmap.mmap` keeps a descriptor open as long as the memory."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        address = _LIBC.mmap(
            None, ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, ctypes.c_long(0)
        )
    finally:
        os.close(descriptor)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), f"cannot map {path}")
    return int(address)


class FakeNvml:
    """One fake driver: a state file, and a directory with a library that plays it."""

    def __init__(self, directory: Path, profile: str = "dgx-h100", *, hidden: Collection[str] = ()) -> None:
        self.profile = load_known_profile(profile)
        self.state_path = directory / "nvml-state"
        self.library_directory = build.build_library(hidden)
        self.state_path.write_bytes(bytes(sizeof(layout.State)))
        self._address = _map_file(self.state_path, sizeof(layout.State))
        self.state = layout.State.from_address(self._address)
        self.state.layout_size = sizeof(layout.State)
        names = build.list_functions()
        self.state.function_count = len(names)
        self._slots = {name: number for number, name in enumerate(names)}
        for name, number in self._slots.items():
            self.state.functions[number].name = name.encode()
        encode.encode_profile(self.state, self.profile)

    def close(self) -> None:
        """Unmap the state; nothing of this instance may be used afterwards."""
        _LIBC.munmap(ctypes.c_void_p(self._address), ctypes.c_size_t(sizeof(layout.State)))

    @property
    def functions(self) -> tuple[str, ...]:
        """All functions that can be made to fail."""
        return tuple(self._slots)

    @property
    def library_path(self) -> Path:
        return self.library_directory / build.SONAME

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to play this instance."""
        return {ENVIRONMENT_VARIABLE: str(self.state_path)}

    def gpu(self, number: int) -> layout.Gpu:
        """One GPU's state, to be changed in place."""
        gpu: layout.Gpu = self.state.gpus[number]
        return gpu

    def fault(self, function: str, gpu: int | None = None) -> layout.Fault:
        """The fault slot of a function, for one GPU or for whatever it is called on."""
        slot = layout.ANY_GPU if gpu is None else gpu
        fault: layout.Fault = self.state.functions[self._slots[function]].faults[slot]
        return fault

    def fail(self, function: str, code: int, *, gpu: int | None = None, times: int = 0) -> None:
        """Let a function answer with this code, for ever or a number of times."""
        fault = self.fault(function, gpu)
        fault.left, fault.code = times, code

    def delay(self, function: str, seconds: float, *, gpu: int | None = None) -> None:
        self.fault(function, gpu).delay_nanoseconds = round(seconds * 1e9)

    def hang(self, function: str, *, gpu: int | None = None) -> None:
        """Let a function block, deaf to signals, until the fault is cleared or the process is killed."""
        self.fault(function, gpu).hangs = 1

    def hang_gpu(self, gpu: int) -> None:
        """Let every function block that is called on this GPU."""
        for function in self._slots:
            self.hang(function, gpu=gpu)

    def crash(self, function: str, *, gpu: int | None = None, with_signal: int = signal.SIGSEGV) -> None:
        """Let a function kill the process it runs in, as a bug in the library would."""
        self.fault(function, gpu).kill_signal = with_signal

    def clear(self) -> None:
        """Take all faults back; the counts stay, and so does what was changed in the state."""
        for number in range(len(self._slots)):
            for fault in self.state.functions[number].faults:
                fault.delay_nanoseconds = fault.code = fault.left = fault.hangs = fault.kill_signal = 0

    @contextmanager
    def failing(self, function: str, code: int, *, gpu: int | None = None) -> Iterator[None]:
        """As `fail`, for the length of a block."""
        self.fail(function, code, gpu=gpu)
        try:
            yield
        finally:
            self.fail(function, 0, gpu=gpu)

    def calls(self, function: str | None = None, *, gpu: int | None = None) -> int:
        """How often a function was called, or any of them, on this GPU or at all."""
        slot = layout.ANY_GPU if gpu is None else gpu
        numbers = self._slots.values() if function is None else [self._slots[function]]
        return sum(self.state.functions[number].faults[slot].calls for number in numbers)

    def lose(self, gpu: int) -> None:
        """The GPU falls off the bus: it stays in the count, and answers only from what is cached."""
        self.gpu(gpu).lost = 1

    def restore(self, gpu: int) -> None:
        """The GPU is back after a reset: volatile counts are zero, handles from before are stale."""
        found = self.gpu(gpu)
        found.lost, found.epoch = 0, found.epoch + 1
        found.ecc_corrected_volatile = found.ecc_uncorrected_volatile = found.recovery_action = 0

    def unplug(self, gpu: int) -> None:
        """The GPU vanishes; those behind it move up in NVML's count."""
        self.gpu(gpu).present = 0

    def plug(self, gpu: int) -> None:
        self.gpu(gpu).present = 1

    def reset(self, gpu: int) -> None:
        """What `nvidia-smi --gpu-reset` does: a mode that waited counts, and nothing is left of a layout."""
        found = self.gpu(gpu)
        found.mig_mode = found.mig_pending
        for place in (*found.gpu_instances, *found.mig_devices):
            place.present = 0
        self.restore(gpu)

    def push_event(
        self, gpu: int, kind: int, data: int = 0, gpu_instance: int = 0xFFFFFFFF, compute_instance: int = 0xFFFFFFFF
    ) -> None:
        """Queue an event for every set that has registered for it."""
        self._push(gpu=gpu, type=kind, data=data, gpu_instance=gpu_instance, compute_instance=compute_instance)

    def push_wait_error(self, code: int) -> None:
        """Let every wait for events end with this code, once."""
        self._push(wait_code=code)

    def cut(self, gpu: int, names: Sequence[str], generation: int = 1) -> None:
        """Switch MIG on and give the GPU this layout."""
        encode.encode_mig_layout(self.gpu(gpu), self.profile.seats[gpu].model, names, generation)

    def switch_mig_off(self, gpu: int) -> None:
        found = self.gpu(gpu)
        found.mig_mode = found.mig_pending = 0

    def add_process(self, gpu: int, pid: int, used_bytes: int, **members: int) -> layout.Process:
        """Let a process use the GPU; further members are those of `layout.Process`."""
        found = self.gpu(gpu)
        process: layout.Process = found.processes[found.process_count]
        whole = {"gpu_instance": 0xFFFFFFFF, "compute_instance": 0xFFFFFFFF, "timestamp_microseconds": 0}
        for name, value in {"pid": pid, "used_bytes": used_bytes, **whole, **members}.items():
            setattr(process, name, value)
        found.process_count += 1
        return process

    def live_as(self, sample: NodeSample) -> None:
        """Let every GPU be as this sample of the simulated world says."""
        places = {gpu.uuid.decode(): gpu for gpu in self.state.gpus if gpu.present}
        for one in sample.gpus:
            weather.encode_sample(places[one.uuid], one, round(sample.time_seconds * 1e6))

    def _push(self, **members: int) -> None:
        head = self.state.event_head
        event = self.state.events[head % layout.EVENTS_MAX]
        event.wait_code = 0
        for name, value in members.items():
            setattr(event, name, value)
        self.state.event_head = head + 1
        word = self._address + layout.State.event_head.offset  # little-endian: the low half of the number comes first
        number = ctypes.c_long(_SYS_FUTEX[platform.machine()])
        _LIBC.syscall(number, ctypes.c_void_p(word), _FUTEX_WAKE, _EVERYBODY, None, None, 0)
