"""The truth about the hardware: what the GPUs of the node are like now, and what of them should be offered."""

from collections.abc import Sequence
from pathlib import Path

from tests.fakes.nvml.control import FakeNvml

GPUS = 8
WHOLE = "nvidia.com/gpu"
MIG_CHANGED = 0x100
"""NVML's event for it."""
ANSWERING, FALLEN = b"\xde\x10\x30\x23", b"\xff" * 4
LAYOUTS: tuple[Sequence[str], ...] = (
    ("1g.10gb",) * 7,
    ("2g.20gb",) * 3,
    ("3g.40gb", "3g.40gb"),
    ("4g.40gb", "3g.40gb"),
)


class Gpus:
    """Eight GPUs that fall off the bus, hang, and are cut into MIG devices."""

    def __init__(self, fake: FakeNvml, sys_dir: Path) -> None:
        self.fake, self._bus = fake, sys_dir / "bus/pci/devices"
        for seat in fake.profile.seats:
            self._plug(seat.address, f"{seat.model.pci.device_id >> 16:#06x}")
        module = sys_dir / "module" / "nvidia"
        module.mkdir(parents=True)
        for name, value in (("version", fake.profile.driver.version), ("refcnt", "8")):
            (module / name).write_text(f"{value}\n")
        self._hung: set[int] = set()
        self._cut: dict[int, Sequence[str]] = {}
        self._generation = 0

    def _plug(self, address: str, device: str) -> None:
        """A function on the bus, as the kernel shows it: a driver that says nothing is not a node without GPUs."""
        place = self._bus / address
        place.mkdir(parents=True)
        for name, value in (("vendor", "0x10de"), ("class", "0x030200"), ("device", device), ("numa_node", "0")):
            (place / name).write_text(f"{value}\n")
        (place / "config").write_bytes(ANSWERING)
        (place / "driver").symlink_to("../../drivers/nvidia")

    def _configuration(self, gpu: int) -> Path:
        return self._bus / self.fake.profile.seats[gpu].address / "config"

    def lose(self, gpu: int) -> None:
        """Off the bus: its configuration space reads as all ones."""
        self.fake.lose(gpu)
        self._configuration(gpu).write_bytes(FALLEN)

    def restore(self, gpu: int) -> None:
        """Back after a reset, if it was away."""
        if self.fake.gpu(gpu).lost:
            self._configuration(gpu).write_bytes(ANSWERING)
            self.fake.restore(gpu)

    def reset(self, gpu: int) -> None:
        """Nothing is left of a layout; the mode in which one can be made stays."""
        self.fake.reset(gpu)
        if gpu in self._cut:
            self._cut[gpu] = ()

    def hang(self, gpu: int) -> None:
        """Every call on it blocks, deaf to signals."""
        self.fake.hang_gpu(gpu)
        self._hung.add(gpu)

    def unhang(self) -> None:
        self.fake.clear()
        self._hung.clear()

    def mend(self) -> None:
        """Nothing is lost and nothing hangs; what is cut stays cut."""
        self.unhang()
        for gpu in range(GPUS):
            self.restore(gpu)

    def cut(self, gpu: int, layout: Sequence[str]) -> None:
        """Give a GPU that nobody uses another layout; none makes it whole."""
        self._generation += 1
        if layout:
            self.fake.cut(gpu, layout, self._generation)
            self._cut[gpu] = layout
        else:
            self.fake.switch_mig_off(gpu)
            self._cut.pop(gpu, None)
        self.fake.push_event(gpu, MIG_CHANGED)

    def is_broken(self, gpu: int) -> bool:
        return gpu in self._hung or bool(self.fake.gpu(gpu).lost)

    def count_devices(self) -> dict[str, int]:
        """What there is of each resource; what is on a broken GPU does not count."""
        counts: dict[str, int] = {}
        for gpu in range(GPUS):
            for resource in self.list_resources(gpu):
                counts[resource] = counts.get(resource, 0) + int(not self.is_broken(gpu))
        return counts

    def count_healthy(self) -> int:
        """GPUs that are not broken."""
        return sum(not self.is_broken(gpu) for gpu in range(GPUS))

    def list_resources(self, gpu: int) -> list[str]:
        """Of one GPU, each as often as there are devices of it."""
        return [f"nvidia.com/mig-{name}" for name in self._cut[gpu]] if gpu in self._cut else [WHOLE]

    def list_devices(self) -> frozenset[str]:
        """Every device that a pod could have now."""
        devices: set[bytes] = set()
        for gpu in range(GPUS):
            state = self.fake.gpu(gpu)
            devices |= {slot.uuid for slot in state.mig_devices if slot.present} if gpu in self._cut else {state.uuid}
        return frozenset(device.decode() for device in devices)

    def count_slots(self, gpu: int) -> int:
        """The MIG devices that there are on it now, whoever has made them."""
        state = self.fake.gpu(gpu)
        return sum(bool(slot.present) for slot in state.mig_devices) if state.mig_mode else 0

    def list_names(self, gpu: int) -> frozenset[str]:
        """Of a GPU and all devices cut out of it."""
        state = self.fake.gpu(gpu)
        return frozenset(
            name.decode() for name in (state.uuid, *(slot.uuid for slot in state.mig_devices if slot.present))
        )

    def find_gpu(self, device: str) -> int | None:
        """Whose device this is, whole or cut out of it; nothing for one that is no more."""
        for gpu in range(GPUS):
            if device in self.list_names(gpu):
                return gpu
        return None
