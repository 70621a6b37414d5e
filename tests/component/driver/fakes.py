"""A driver's surroundings that do as the test says."""

from collections.abc import Mapping, Sequence

import anyio

from nodeagent.edge.host.driver.off_loop import MarkerDirectory
from nodeagent.edge.nvml.agent.protocol import read_code
from nodeagent.model.driver import DriverEvidence, LibraryAnswer, NodeRepair, PciFunction
from nodeagent.model.errors import NodeagentError
from nodeagent.model.ids import PciAddress

GPU = PciFunction(address=PciAddress("0000:1b:00.0"), device_id=0x2330, bound_driver="nvidia")
WORKING = DriverEvidence(
    pci_functions=(GPU,),
    module_loaded=True,
    module_version="580.65.06",
    library=LibraryAnswer(driver_version="580.65.06", gpu_count=8),
)
UPGRADED = DriverEvidence(
    pci_functions=(GPU,),
    module_loaded=True,
    module_version="590.1",
    library=LibraryAnswer(driver_version="590.1", gpu_count=8),
)
NOT_LOADED = DriverEvidence(pci_functions=(PciFunction(address=GPU.address, device_id=0x2330),), library=read_code(9))
NO_HARDWARE = DriverEvidence(library=read_code(9))


class FakeProbe:
    """Shows the evidence it was told to show, and notes when it was asked."""

    def __init__(self, evidence: DriverEvidence) -> None:
        self._evidence = evidence
        self._changed = anyio.Event()
        self.looked_at: list[float] = []

    def show(self, evidence: DriverEvidence) -> None:
        self._evidence = evidence
        self._changed.set()

    def show_silently(self, evidence: DriverEvidence) -> None:
        """A change that no watch notices."""
        self._evidence = evidence

    async def read_evidence(self) -> DriverEvidence:
        await anyio.lowlevel.checkpoint()
        self._changed = anyio.Event()
        self.looked_at.append(anyio.current_time())
        return self._evidence

    async def wait_change(self) -> None:
        await self._changed.wait()


class FakeNodes:
    """Repairs as told."""

    def __init__(self) -> None:
        self.repair_result = NodeRepair()
        self.rounds = 0

    async def repair(self) -> NodeRepair:
        await anyio.lowlevel.checkpoint()
        self.rounds += 1
        return self.repair_result


class FakeMarkers(MarkerDirectory):
    """A directory of markers in memory, with other people who write in it."""

    def __init__(self, **files: str) -> None:
        self.files = dict(files)
        self.broken = ""
        self.writes = 0
        self._changed = anyio.Event()

    def meddle(self, name: str, content: str | None) -> None:
        """Somebody else writes or (with `None`) removes a file."""
        if content is None:
            self.files.pop(name, None)
        else:
            self.files[name] = content
        self._changed.set()

    async def read_markers(self, names: Sequence[str]) -> Mapping[str, str]:
        await self._work()
        self._changed = anyio.Event()
        return {name: self.files[name] for name in names if name in self.files}

    async def write_marker(self, name: str, content: str) -> None:
        await self._work()
        self.writes += 1
        self.files[name] = content

    async def remove_marker(self, name: str) -> None:
        await self._work()
        self.files.pop(name, None)

    async def wait_change(self) -> None:
        await self._changed.wait()

    async def _work(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.broken:
            raise NodeagentError(self.broken)
