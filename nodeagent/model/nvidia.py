"""NVIDIA's names: domains, device nodes, variables, programs and modules, each said here and nowhere else."""

import re
from typing import Final

from nodeagent.model.vendor import Vendor

DOMAIN: Final = "nvidia.com"
"""Domain of NVIDIA's resources, labels, annotations and node conditions."""
LABEL_PREFIX: Final = f"{DOMAIN}/"
DRA_DRIVER: Final = f"gpu.{DOMAIN}"
"""NVIDIA's driver for dynamic resource allocation."""

LIBRARY: Final = "NVML"
"""The driver's library, as people call it."""
KERNEL_MODULE: Final = "nvidia"
UNIFIED_MEMORY_NODES: Final = ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
CAPABILITY_NODE: Final = "/dev/nvidia-caps/nvidia-cap{minor}"
"""The device node of a MIG capability."""
IMEX_CHANNELS: Final = "/dev/nvidia-caps-imex-channels"
STORAGE_NODES: Final = "/dev/nvidia-fs*"
SWITCH_NODES: Final = ("/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch*")
MANAGEMENT_NODE: Final = re.compile(r"/dev/nvidia(?!-(fs|nvswitch|nvlink))")
"""The start of a node for programs that look after GPUs."""
PCI_VENDOR: Final = 0x10DE

RUNTIME_PROGRAM: Final = "nvidia-container-runtime"
"""NVIDIA's container runtime, which may come before the node's own."""
RUNTIME_CLASS: Final = "nvidia"

VENDOR: Final = Vendor(
    name="NVIDIA",
    cdi_domain=f"k8s.device-plugin.{DOMAIN}",
    public_domain=DOMAIN,
    gpu_node="/dev/nvidia{minor}",
    control_nodes=("/dev/nvidiactl", *UNIFIED_MEMORY_NODES, "/dev/nvidia-modeset"),
    visible_devices="NVIDIA_VISIBLE_DEVICES",
)
