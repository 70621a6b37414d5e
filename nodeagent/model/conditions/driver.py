"""Conditions of the driver: one for each of its phases but the ready phase.

The driver component owns all of them, and clears every condition not found at its last poll.
"""

from nodeagent.model.conditions.definition import ConditionDefinition


def _driver(code: str, title: str, remedy: str, *, show_after_seconds: float = 0.0) -> ConditionDefinition:
    return ConditionDefinition(
        code=code, severity="error", title=title, remedy=remedy, show_after_seconds=show_after_seconds
    )


DRIVER_CONDITIONS: tuple[ConditionDefinition, ...] = (
    ConditionDefinition(
        code="driver-no-hardware",
        severity="warning",
        title="no NVIDIA GPU on the PCI bus",
        remedy="take nodeagent off this node, or check `lspci -d 10de:` and the BIOS if a GPU should be there",
        depends_on=("gpus-all-gone",),
    ),
    _driver(
        "driver-not-loaded",
        "the NVIDIA kernel module is not loaded",
        "load it with `modprobe nvidia nvidia-uvm`, or install the driver",
    ),
    _driver(
        "driver-wrong",
        "another kernel driver holds the GPU",
        "blacklist it (nouveau) or unbind it (vfio-pci), then load the NVIDIA module",
    ),
    _driver(
        "driver-library-missing",
        "libnvidia-ml.so.1 cannot be loaded",
        "install the driver's user-space libraries, or point `driver.root` or `driver.nvml_library` at them",
    ),
    _driver(
        "driver-version-mismatch",
        "the driver's library and its kernel module have different versions",
        "stop all GPU clients and reload the module, or reboot the node",
    ),
    _driver(
        "driver-no-permission",
        "the driver refuses this process",
        "run nodeagent as root with access to the /dev/nvidia* nodes, or mend their mode and device cgroup",
    ),
    _driver(
        "driver-nodes-missing",
        "device nodes of the driver are missing",
        "set `driver.manage_device_nodes: true`, or run `nvidia-modprobe -c 0 -u`",
    ),
    _driver(
        "driver-fabric-not-ready",
        "the NVLink fabric is not ready, CUDA would fail with error 802",
        "check `systemctl status nvidia-fabricmanager`; its version must equal the driver's",
        show_after_seconds=10.0,
    ),
    _driver(
        "driver-stuck",
        "a call into the driver does not come back",
        "read `dmesg | grep NVRM`; if it stays stuck, drain the node and reboot it",
    ),
    ConditionDefinition(
        code="driver-released",
        severity="info",
        title="the driver was released on purpose",
        remedy="run `nodeagent resume` when the work on the driver is done",
    ),
    _driver(
        "driver-unsupported",
        "this platform's driver is not supported",
        "use a Linux host with the NVIDIA data-centre driver; WSL and Tegra are not supported",
    ),
    _driver("driver-failed", "the driver does not work", "read `dmesg | grep NVRM` and the detail of this condition"),
)

DRIVER_CODES: tuple[str, ...] = tuple(definition.code for definition in DRIVER_CONDITIONS)

BLINDING_CODES: tuple[str, ...] = tuple(code for code in DRIVER_CODES if code != "driver-nodes-missing")
"""Conditions that leave every GPU unknown; NVML works without the device nodes needed only by containers."""

BLINDING_BUT_ABSENCE: tuple[str, ...] = tuple(code for code in BLINDING_CODES if code != "driver-no-hardware")
"""The same without the condition of a node whose GPUs are gone: it does not explain where they went."""
