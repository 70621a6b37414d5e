"""Conditions of the driver: one for each of its phases but the ready phase, and one for each cause with another remedy.

The driver component owns all of them, and clears every condition not found at its last poll.
"""

from nodeagent.model.conditions.definition import ConditionDefinition


def _driver(code: str, title: str, remedy: str, *, show_after_seconds: float = 0.0) -> ConditionDefinition:
    return ConditionDefinition(
        code=code, severity="error", title=title, remedy=remedy, show_after_seconds=show_after_seconds
    )


UPGRADE_CONDITIONS: tuple[ConditionDefinition, ...] = (
    ConditionDefinition(
        code="driver-upgrade-due",
        severity="info",
        title="another version of the driver is wanted",
        remedy="read in the detail what keeps the upgrade back; `nodeagent driver plan` shows whom it would touch",
    ),
    ConditionDefinition(
        code="driver-upgrade-under-way",
        severity="warning",
        title="the driver is being upgraded, no new pod gets a GPU of this node",
        remedy="see to what the detail waits for; `nodeagent driver pause` holds the upgrade, `nodeagent driver abort`"
        " gives it up",
    ),
    ConditionDefinition(
        code="driver-upgrade-draining",
        severity="warning",
        title="an upgrade of the driver waits until nobody has a GPU",
        remedy="see to the pods, budgets and processes in the detail, or give up by `nodeagent driver abort`",
    ),
    ConditionDefinition(
        code="driver-upgrade-failed",
        severity="error",
        title="an upgrade of the driver failed",
        remedy="mend what the detail says, then `nodeagent driver resume` allows another try",
    ),
    ConditionDefinition(
        code="driver-upgrade-left",
        severity="error",
        title="an upgrade of the driver was left half done when upgrades were switched off",
        remedy="set `driver.upgrade: observe` and restart the agent: it then puts back what the upgrade put aside",
    ),
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
        "load it with `modprobe -a nvidia nvidia-uvm`, or install the driver",
    ),
    _driver(
        "driver-signature-refused",
        "the kernel refuses the signature of the NVIDIA kernel module",
        "enrol the key of the module's builder (DKMS: `mokutil --import /var/lib/dkms/mok.pub`, on Ubuntu"
        " `mokutil --import /var/lib/shim-signed/mok/MOK.der`) and confirm it at the console of the next boot, or"
        " install a driver that the distribution signed",
    ),
    _driver(
        "driver-headers-missing",
        "DKMS cannot build the NVIDIA kernel module: the running kernel's headers are missing",
        "install them (`linux-headers-$(uname -r)`, or `kernel-devel-$(uname -r)` where packages are RPMs), then"
        " `dkms autoinstall` and `modprobe -a nvidia nvidia-uvm`",
    ),
    _driver(
        "driver-other-kernel",
        "the NVIDIA kernel module was not built for the running kernel",
        "run `dkms autoinstall`, or install the driver's modules for the kernel of `uname -r`, or boot a kernel with"
        " modules",
    ),
    _driver(
        "driver-gpu-refused",
        "the NVIDIA kernel module refuses the GPU",
        "install a release of the driver that knows the GPU; the detail has the line of the kernel log",
    ),
    _driver(
        "driver-nouveau",
        "the kernel's own driver nouveau holds the GPU",
        "write `blacklist nouveau` and `options nouveau modeset=0` into a file of /etc/modprobe.d, make the initramfs"
        " anew (`update-initramfs -u` or `dracut -f`) and reboot the node",
    ),
    _driver(
        "driver-wrong",
        "another kernel driver holds the GPU",
        "unbind it (vfio-pci) or blacklist it, then load the NVIDIA module",
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
