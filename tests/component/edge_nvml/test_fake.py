"""The fake keeps NVML's own rules, seen through pynvml: else everything tested on it proves nothing."""

import threading
import time
from collections.abc import Callable
from ctypes import byref, sizeof
from pathlib import Path

import pynvml
import pytest

from tests.component.edge_nvml.conftest import Load
from tests.fakes.nvml import build, layout


def raised(call: Callable[[], object]) -> int:
    """The NVML code that a call fails with, 0 when it succeeds."""
    try:
        call()
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


OTHERS = {"nvmlInit_v2", "nvmlDeviceGetComputeRunningProcesses"}
"""What other programs call: bindings for other languages begin with one, old programs know only the first layout."""


def test_every_function_of_the_fake_is_one_that_pynvml_calls() -> None:
    """A name that the binding does not know would be a mistake in the fake."""
    source = Path(pynvml.__file__).read_text()
    assert [name for name in build.list_functions() if f'"{name}"' not in source and name not in OTHERS] == []


@pytest.mark.long
def test_hidden_functions_are_not_found(load_in_process: Load) -> None:
    """An old driver lacks a symbol, and the loader says so."""
    loaded = load_in_process("t4", hidden={"nvmlDeviceGetNumaNodeId"})
    handle = loaded.handle(0)
    assert raised(lambda: pynvml.nvmlDeviceGetNumaNodeId(handle)) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND


def test_nothing_works_before_initialisation(load_in_process: Load) -> None:
    """A call after the last shutdown is refused."""
    load_in_process("t4")
    pynvml.nvmlShutdown()
    assert raised(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED


def test_faults_are_by_function_and_gpu(load_in_process: Load) -> None:
    """A code set for one GPU leaves the others alone, and can be set for a number of calls."""
    loaded = load_in_process()
    loaded.fake.fail("nvmlDeviceGetPowerUsage", 999, gpu=1, times=1)
    first, second = loaded.handle(0), loaded.handle(1)
    assert raised(lambda: pynvml.nvmlDeviceGetPowerUsage(first)) == 0
    assert raised(lambda: pynvml.nvmlDeviceGetPowerUsage(second)) == 999
    assert raised(lambda: pynvml.nvmlDeviceGetPowerUsage(second)) == 0
    assert loaded.fake.calls("nvmlDeviceGetPowerUsage", gpu=1) == 2


def test_a_hung_call_blocks_until_it_is_released(load_in_process: Load) -> None:
    """A hang holds the calling thread, and only that."""
    loaded = load_in_process("t4")
    handle = loaded.handle(0)
    loaded.fake.hang("nvmlDeviceGetPowerUsage")
    thread = threading.Thread(target=pynvml.nvmlDeviceGetPowerUsage, args=(handle,))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    assert pynvml.nvmlDeviceGetUUID(handle).startswith("GPU-")
    loaded.fake.clear()
    thread.join(5)
    assert not thread.is_alive()


def test_a_delayed_call_takes_its_time(load_in_process: Load) -> None:
    """A delay is slept inside the call."""
    loaded = load_in_process("t4")
    loaded.fake.delay("nvmlDeviceGetCount_v2", 0.05)
    began = time.monotonic()
    pynvml.nvmlDeviceGetCount()
    assert time.monotonic() - began >= 0.05


def test_a_lost_gpu_answers_from_cache_only(load_in_process: Load) -> None:
    """It stays in the count, tells its UUID, and nothing that needs the card; a new handle is refused."""
    loaded = load_in_process()
    handle = loaded.handle(3)
    loaded.fake.lose(3)
    assert pynvml.nvmlDeviceGetCount() == 8
    assert pynvml.nvmlDeviceGetUUID(handle)
    assert raised(lambda: pynvml.nvmlDeviceGetPowerUsage(handle)) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert raised(lambda: loaded.handle(3)) == pynvml.NVML_ERROR_GPU_IS_LOST


def test_a_reset_makes_handles_stale_until_the_next_start(load_in_process: Load) -> None:
    """Only a new initialisation gives handles that work after a reset."""
    loaded = load_in_process()
    handle = loaded.handle(0)
    loaded.fake.lose(0)
    loaded.fake.restore(0)
    assert raised(lambda: pynvml.nvmlDeviceGetPowerUsage(handle)) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    fresh = loaded.handle(0)
    assert raised(lambda: pynvml.nvmlDeviceGetPowerUsage(fresh)) == 0


def test_indices_close_up_when_a_gpu_is_unplugged(load_in_process: Load) -> None:
    """An NVML index is a place in a list, not a name."""
    loaded = load_in_process()
    second = pynvml.nvmlDeviceGetUUID(loaded.handle(1))
    loaded.fake.unplug(0)
    assert pynvml.nvmlDeviceGetCount() == 7
    assert pynvml.nvmlDeviceGetUUID(loaded.handle(0)) == second


def test_structure_versions_are_checked(load_in_process: Load) -> None:
    """A driver that knows no version 3 of the fabric structure says so, and takes version 2."""
    loaded = load_in_process()
    loaded.fake.gpu(0).fabric_version_max = 2
    handle = loaded.handle(0)
    newer, older = pynvml.c_nvmlGpuFabricInfo_v3_t(), pynvml.c_nvmlGpuFabricInfo_v2_t()
    code = raised(lambda: pynvml.nvmlDeviceGetGpuFabricInfoV(handle, byref(newer)))
    assert code == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    assert raised(lambda: pynvml.nvmlDeviceGetGpuFabricInfoV(handle, byref(older))) == 0
    assert older.state & 0xFF == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED  # the binding takes the gap behind it along


def test_events_reach_only_those_who_registered(load_in_process: Load) -> None:
    """An event goes to the set that asked for its kind on its GPU, with GPU and compute instance; others time out."""
    loaded = load_in_process()
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(loaded.handle(1), pynvml.nvmlEventTypeXidCriticalError, events)
    loaded.fake.push_event(0, pynvml.nvmlEventTypeXidCriticalError, 31)
    loaded.fake.push_event(1, pynvml.nvmlEventTypeClock, 1)
    loaded.fake.push_event(1, pynvml.nvmlEventTypeXidCriticalError, 79, gpu_instance=2, compute_instance=0)
    found = pynvml.nvmlEventSetWait_v2(events, 1000)
    assert (found.eventData, found.gpuInstanceId, found.computeInstanceId) == (79, 2, 0)
    assert pynvml.nvmlDeviceGetUUID(found.device) == loaded.fake.gpu(1).uuid.decode()
    assert raised(lambda: pynvml.nvmlEventSetWait_v2(events, 10)) == pynvml.NVML_ERROR_TIMEOUT
    loaded.fake.push_wait_error(pynvml.NVML_ERROR_GPU_IS_LOST)
    assert raised(lambda: pynvml.nvmlEventSetWait_v2(events, 10)) == pynvml.NVML_ERROR_GPU_IS_LOST


def test_field_values_fail_item_by_item(load_in_process: Load) -> None:
    """The batch succeeds while an item of it has a code of its own."""
    loaded = load_in_process()
    loaded.fake.gpu(0).field_codes[230] = 999
    power, action, link = pynvml.nvmlDeviceGetFieldValues(loaded.handle(0), [186, 230, (165, 3)])
    assert (power.nvmlReturn, power.value.uiVal) == (0, 69000)
    assert action.nvmlReturn == 999
    assert (link.nvmlReturn, link.value.uiVal) == (0, 1)


def test_mig_devices_come_and_go(load_in_process: Load) -> None:
    """Cutting a GPU gives devices with names and places, switching MIG off takes them away."""
    loaded = load_in_process()
    loaded.fake.cut(0, ["3g.40gb", "1g.10gb"])
    handle = loaded.handle(0)
    device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)
    assert pynvml.nvmlDeviceGetName(device).endswith(" MIG 3g.40gb")
    assert pynvml.nvmlDeviceGetUUID(device).startswith("MIG-")
    assert raised(lambda: pynvml.nvmlDeviceGetPowerUsage(device)) == pynvml.NVML_ERROR_NOT_SUPPORTED
    loaded.fake.switch_mig_off(0)
    missing = raised(lambda: pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0))
    assert missing == pynvml.NVML_ERROR_NOT_FOUND
    assert raised(lambda: pynvml.nvmlDeviceGetUUID(device)) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_processes_are_listed_by_kind_and_instance(load_in_process: Load) -> None:
    """Compute, graphics and MPS have lists of their own; a MIG device lists only its own."""
    loaded = load_in_process()
    loaded.fake.cut(0, ["1g.10gb"])
    instance = loaded.fake.gpu(0).mig_devices[0].gpu_instance
    loaded.fake.add_process(0, 11, 1 << 20, gpu_instance=instance, compute_instance=0)
    loaded.fake.add_process(0, 12, 1 << 20)
    loaded.fake.add_process(0, 13, 1 << 20, kind=1)
    handle = loaded.handle(0)
    device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)
    assert [found.pid for found in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)] == [11, 12]
    assert [found.pid for found in pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(handle)] == [13]
    assert [found.pid for found in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(device)] == [11]


def test_accounting_and_the_wider_process_utilisation(load_in_process: Load) -> None:
    loaded = load_in_process("t4")
    loaded.fake.add_process(0, 21, 1 << 20, sm_percent=40, jpeg_percent=7, timestamp_microseconds=9)
    loaded.fake.gpu(0).accounting_mode = 1
    handle = loaded.handle(0)
    assert pynvml.nvmlDeviceGetAccountingPids(handle) == [21]
    assert pynvml.nvmlDeviceGetAccountingStats(handle, 21).gpuUtilization == 40
    (wide,) = pynvml.nvmlDeviceGetProcessesUtilizationInfo(handle, 0)
    assert (wide.pid, wide.smUtil, wide.jpgUtil) == (21, 40, 7)


def test_profiling_needs_two_samples_of_one_thing(load_in_process: Load) -> None:
    """Metrics come from two samples a tenth of a second apart; closer ones make no number."""
    loaded = load_in_process()
    loaded.fake.gpu(0).gpm[2] = 55.0
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, 1
    request.metrics[0].metricId = 2
    request.sample1, request.sample2 = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    assert raised(lambda: pynvml.nvmlGpmMetricsGet(request)) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    handle = loaded.handle(0)
    pynvml.nvmlGpmSampleGet(handle, request.sample1)
    time.sleep(0.11)
    pynvml.nvmlGpmSampleGet(handle, request.sample2)
    pynvml.nvmlGpmMetricsGet(request)
    assert request.metrics[0].value == pytest.approx(55.0)
    for sample in (request.sample1, request.sample2):
        pynvml.nvmlGpmSampleFree(sample)


def test_the_header_and_the_state_agree(load_in_process: Load) -> None:
    """A library built from another layout refuses the state instead of reading garbage."""
    loaded = load_in_process("t4")
    assert loaded.fake.state.layout_size == sizeof(layout.State)
