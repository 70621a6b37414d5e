"""A program as monitoring tools are: it asks NVML through pynvml, and prints what it heard as JSON.

Words: the device's UUID, and whether to print the processes of version 2 or 3.
"""

import json
import sys

import pynvml


def main() -> None:
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
    first = pynvml.nvmlDeviceGetMemoryInfo(device)
    second = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
    ask = getattr(pynvml, f"nvmlDeviceGetComputeRunningProcesses_v{sys.argv[2]}")
    try:
        pynvml.nvmlDeviceSetComputeMode(device, 0)
        pynvml.nvmlDeviceSetGpuLockedClocks(device, 100, 200)
        may_set = True
    except pynvml.NVMLError_NoPermission:
        may_set = False
    said = {
        "first": [first.total, first.free, first.used],
        "second": [second.total, second.free, second.used, second.reserved],
        "processes": {str(each.pid): each.usedGpuMemory for each in ask(device)},
        "may_set": may_set,
    }
    print(json.dumps(said))  # noqa: T201 - this is what it is for


if __name__ == "__main__":
    main()
