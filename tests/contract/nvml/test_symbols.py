"""Symbols that the NVML worker uses: they are in NVIDIA's libraries, or the worker does without them."""

import shutil
from typing import Any

import pynvml
import pytest

from nodeagent.edge.nvml.worker.inventory import read_gpu
from nodeagent.edge.nvml.worker.partition import Partitioner
from nodeagent.edge.nvml.worker.query import Query
from nodeagent.edge.nvml.worker.sample import Sampler
from tests.component.edge_nvml.conftest import InProcess, Load
from tests.contract.libraries import Library
from tests.contract.nvml.worker_calls import list_symbols
from tests.fakes.nvml.build import list_functions

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="the fake is C"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

NEWER = {
    "535": {
        "nvmlDeviceGetAddressingMode",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetNumaNodeId",
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    },
    "550": {
        "nvmlDeviceGetAddressingMode",
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    },
}
"""Symbols that came after a library."""
IDENTITY = {"nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3"}
"""Without these a GPU is told as one that cannot be read."""


NEVER_CALLED = {"nvmlGpuInstanceGetComputeInstanceProfileInfoV": "of version 2: the worker asks for version 1"}
"""Symbols of pynvml's functions that the worker's arguments do not lead to."""


def read_everything(loaded: InProcess) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, str]]]:
    """Inventory, sample and marks of one GPU, as the worker reads them."""
    handle = loaded.handle(0)
    gpu = read_gpu(Query(handle, {}), 0, {})
    sampler = Sampler(handle)
    sample, _ = sampler.read()
    sampler.close()
    return gpu, sample, [*gpu.pop("unreadable"), *sample.pop("unreadable")]


def test_an_older_library_lacks_only_what_the_worker_can_do_without(original: Library) -> None:
    assert list_symbols() - set(original.ask("exports")) == NEWER[original.name]


def test_the_fake_has_every_symbol_of_the_worker() -> None:
    """A question that no test can ask is one that nobody has seen answered."""
    assert list_symbols() - set(list_functions()) == set(NEVER_CALLED)


@pytest.mark.parametrize("profile", ["dgx-h100", "a100-80gb-mig"])
def test_the_worker_reads_all_else_of_such_a_library(original: Library, load_in_process: Load, profile: str) -> None:
    """The fake with no more symbols than NVIDIA's library has: nothing is lost, and nothing is told as unreadable."""
    exports = set(original.ask("exports"))
    whole = read_everything(load_in_process(profile))
    older = read_everything(load_in_process(profile, hidden=set(list_functions()) - exports))
    assert older[2] == whole[2] == []
    assert set(whole[0]) - set(older[0]) <= {"numa_node"}
    assert set(whole[1]) - set(older[1]) <= {"slowdown_margin_celsius", "memory_unrepairable"}
    fabric = older[0]["fabric"]
    assert (fabric is None) == (whole[0]["fabric"] is None)


class Without:
    """A library that lacks one symbol."""

    def __init__(self, library: Any, name: str) -> None:
        self._library, self._name = library, name

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            raise AttributeError(name)
        return getattr(self._library, name)


@pytest.mark.parametrize("profile", ["dgx-h100", "a100-80gb-mig"])
def test_a_missing_symbol_ends_nothing(load_in_process: Load, monkeypatch: pytest.MonkeyPatch, profile: str) -> None:
    """Each in turn: the GPU is read, and is lost only where its identity cannot be had."""
    loaded = load_in_process(profile)
    library = pynvml.nvmlLib
    handle = loaded.handle(0)
    for name in sorted(list_symbols()):
        monkeypatch.setattr(pynvml, "nvmlLib", Without(library, name))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        sampler = Sampler(handle)
        sample, _ = sampler.read()
        sampler.close()
        worker = Partitioner("", "", -1)
        worker._is_open = True
        answer = worker.answer({"do": "gpu", "index": 0})
        assert "value" in answer or name in IDENTITY | {"nvmlDeviceGetHandleByIndex_v2"}, (name, answer)
        assert "lost" not in {**sample, **answer.get("value", {})}, name
        worker.answer({"do": "partitions", "gpu": loaded.fake.gpu(0).uuid.decode(), "uuid": ""})
