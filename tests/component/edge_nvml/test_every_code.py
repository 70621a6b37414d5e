"""Every NVML error code on every call: one call marks its data unknown, and nothing is raised past the edge."""

from typing import Any

import pynvml
import pytest

from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.worker.inventory import read_gpu
from nodeagent.edge.nvml.worker.query import GpuGone, Query
from nodeagent.edge.nvml.worker.sample import Sampler
from tests.component.edge_nvml.conftest import InProcess, Load
from tests.fakes.nvml.build import list_functions

BINDING_CODES = sorted(
    value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and isinstance(value, int)
)
CODES = [*BINDING_CODES, 31, 12345]

# By design these say nothing when they fail: another way is tried, or the answer is a privilege.
QUIET = {
    "nvmlDeviceGetCurrentClocksEventReasons": "the older name is asked",
    "nvmlDeviceGetMemoryInfo_v2": "version 1 is asked",
    "nvmlDeviceGetGpuFabricInfoV": "older versions are asked",
    "nvmlDeviceGetGpuInstanceById": "placements are a privilege",
    "nvmlGpuInstanceGetInfo": "placements are a privilege",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2": "placements are a privilege",
}
QUIET_CODES = {
    ("nvmlDeviceValidateInforom", 14): "this is how the driver says that the infoROM is not valid",
    ("nvmlDeviceGetGpuInstanceProfileInfoV", 2): "this is how the driver says that there is no such profile",
    ("nvmlDeviceGetGpuInstanceProfileInfoV", 25): "version 1 is asked",
    ("nvmlDeviceGetNvLinkState", 2): "this is how some drivers say that there is no such link",
    ("nvmlDeviceGetMigDeviceHandleByIndex", 2): "this is how some drivers say that there is no such device",
}
SHIFTED = {
    ("nvmlDeviceGetMemoryInfo_v2", "sample.memory_used_bytes"): "version 1 counts what is reserved as used",
    ("nvmlDeviceGetMemoryInfo_v2", "sample.mig"): "the same on each device",
}
UNSTEADY = {
    "sample.profiling": "there is none until two samples have been taken",
    "sample.processes": "a GPU whose MIG mode is unknown lists all its processes itself",
}
IDENTITY = frozenset({"nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3"})


def read_all(loaded: InProcess, sampler: Sampler) -> dict[str, Any]:
    """One GPU's inventory and sample together."""
    found: dict[str, Any] = {"unreadable": []}
    try:
        gpu = read_gpu(Query(sampler._handle, {}), 0, {})
    except GpuGone as gone:
        gpu = {"gone": str(gone)}
    sampler.forget()
    sample, _ = sampler.read()
    for part, values in (("gpu", gpu), ("sample", sample)):
        found["unreadable"] += values.pop("unreadable", [])
        found.update({f"{part}.{name}": value for name, value in values.items()})
    return found


def is_part(found: Any, whole: Any) -> bool:
    """Whether what was found is in the whole reading, except for what is missing."""
    if isinstance(whole, dict) and isinstance(found, dict):
        return all(name in whole and is_part(value, whole[name]) for name, value in found.items())
    if isinstance(whole, list) and isinstance(found, list):
        return all(any(is_part(one, other) for other in whole) for one in found)
    return found == whole or found in (None, "", 0, False, "none")


def called_functions(loaded: InProcess) -> set[str]:
    return {name for name in list_functions() if loaded.fake.calls(name)}


@pytest.mark.nightly
@pytest.mark.parametrize("profile", ["dgx-h100", "a100-80gb-mig"])
def test_every_code_on_every_call_costs_only_its_data(load_in_process: Load, profile: str) -> None:
    """Whatever fails, the rest of the GPU is read as before, and what is missing is named unless it does not exist."""
    loaded = load_in_process(profile)
    loaded.fake.add_process(0, 77, 1 << 20, timestamp_microseconds=5, sm_percent=1)
    sampler = Sampler(loaded.handle(0))
    whole = read_all(loaded, sampler)
    assert whole["unreadable"] == []
    functions = called_functions(loaded) - {"nvmlInitWithFlags", "nvmlDeviceGetHandleByIndex_v2", "nvmlGpmSampleAlloc"}
    assert len(functions) > 40
    for function in sorted(functions):
        for code in CODES:
            with loaded.fake.failing(function, code):
                found = read_all(loaded, sampler)
            check(function, code, found, whole)
    sampler.close()


def check(function: str, code: int, found: dict[str, Any], whole: dict[str, Any]) -> None:
    """The law for one code on one call."""
    told = found.pop("unreadable")
    what = f"{function} with code {code}"
    lost = [name for name in ("gpu.gone", "gpu.lost", "sample.lost") if found.pop(name, None)]
    if lost:
        assert code in errors.LOST_CODES or function in IDENTITY, what
    for name, value in found.items():
        if name not in whole:
            assert name in UNSTEADY, f"{what}: {name} came from nowhere"
            continue
        if (function, name) in SHIFTED:
            continue
        assert is_part(value, whole[name]), f"{what}: {name} is {value}, was {whole[name]}"
    if code not in errors.ABSENT_CODES and not lost and function not in QUIET and (function, code) not in QUIET_CODES:
        assert told or function == "nvmlDeviceGetName", f"{what}: nothing was said"
    for one in told:
        assert f"(NVML code {code})" in one["reason"], one


def test_every_code_of_the_binding_has_words() -> None:
    """A person never sees a bare number."""
    assert [code for code in BINDING_CODES if code not in errors.REASONS] == []


@pytest.mark.parametrize("code", CODES)
def test_every_field_code_costs_only_that_field(load_in_process: Load, code: int) -> None:
    """An item of a batch that fails leaves the other items alone."""
    loaded = load_in_process()
    sampler = Sampler(loaded.handle(0))
    whole, _ = sampler.read()
    loaded.fake.gpu(0).field_codes[230] = code
    found, _ = sampler.read()
    assert set(whole) - set(found) <= {"recovery_action"}
    assert "recovery_action" not in found
    told = [one["what"] for one in found["unreadable"]]
    assert told == ([] if code in errors.ABSENT_CODES | errors.LOST_CODES | {2} else ["recovery_action"])
    sampler.close()
