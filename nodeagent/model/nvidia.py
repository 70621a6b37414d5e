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
UNIFIED_MEMORY_MODULE: Final = "nvidia-uvm"
"""As modprobe takes the name; the kernel writes it with an underscore."""
RELOADED_MODULES: Final = ("nvidia_drm", "nvidia_modeset", "nvidia_peermem", "gdrdrv", "nvidia_uvm", "nvidia")
"""The driver's modules and those built on the driver, in the order of their removal, as the kernel writes the names."""
UNIFIED_MEMORY_NODES: Final = ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
CAPABILITY_NODE: Final = "/dev/nvidia-caps/nvidia-cap{minor}"
"""The device node of a MIG capability."""
IMEX_CHANNELS: Final = "/dev/nvidia-caps-imex-channels"
STORAGE_NODES: Final = "/dev/nvidia-fs*"
SWITCH_NODES: Final = ("/dev/nvidia-nvswitchctl", "/dev/nvidia-nvswitch*")
MANAGEMENT_NODE: Final = re.compile(r"/dev/nvidia(?!-(fs|nvswitch|nvlink))")
"""The start of a node for programs that look after GPUs."""
GPU_RESOURCE: Final = "nvidia.com/gpu"
MIG_RESOURCES: Final = "nvidia.com/mig-"
"""The start of the resource names of MIG devices."""
GPU_NODE: Final = re.compile(r"/dev/(nvidia|dri/)")
"""The start of a node that containers are given with the GPUs they hold."""
PCI_VENDOR: Final = 0x10DE

EVENT_SOURCE: Final = "nvml"
"""The source of an event that the driver's library reported, as people read it."""
DEVICE_NAME: Final = "nvidia{index}"
"""A GPU as DCGM exporter names it in a label."""

IMEX_VARIABLE: Final = "NVIDIA_IMEX_CHANNELS"
EXTRA_VARIABLES: Final = {"gdrcopy": "NVIDIA_GDRCOPY", "gds": "NVIDIA_GDS", "mofed": "NVIDIA_MOFED"}
LIBRARY_DIRECTORIES_VARIABLE: Final = "NVIDIA_CTK_LIBCUDA_DIR"
TRITON_VARIABLE: Final = "TRITON_LIBCUDA_PATH"
ANNOTATION_INFIX: Final = "nvidia-device-plugin_"
"""In the key of an annotation with a container's CDI names."""
SOCKET_PREFIX: Final = "nvidia"
"""Of the device plugin's sockets."""
DRIVER_ROOT_VARIABLE: Final = "NVIDIA_DRIVER_ROOT"
DEV_ROOT_VARIABLE: Final = "NVIDIA_DEV_ROOT"
HAMI_REGISTER: Final = "hami.io/node-nvidia-register"
"""The annotation in which HAMi's device plugin describes a node's GPUs."""

RUNTIME_PROGRAM: Final = "nvidia-container-runtime"
"""NVIDIA's container runtime, which may come before the node's own."""
CONTAINER_CLI: Final = "nvidia-container-cli"
"""NVIDIA's program that describes the driver to scripts, and once prepared containers."""
CDI_HOOK: Final = "nvidia-cdi-hook"
"""NVIDIA's hook: Docker 29 takes `--gpus` for CDI names where it finds a program of the name."""
CLAIM_BRANDS: Final = {
    "GRID": "Grid",
    "NVIDIA vApps": "NvidiaVApps",
    "NVIDIA vPC": "NvidiaVPC",
    "NVIDIA vCS": "NvidiaVCS",
    "NVIDIA vWS": "NvidiaVWS",
    "NVIDIA vGaming": "NvidiaCloudGaming",
    "Quadro RTX": "QuadroRTX",
    "NVIDIA RTX": "NvidiaRTX",
    "NVIDIA": "Nvidia",
    "GeForce RTX": "GeForceRTX",
    "Titan RTX": "TitanRTX",
}
"""NVIDIA's DRA driver's word for each brand with another spelling there; selectors of claims compare the whole word."""
REQUIRED_BRANDS: Final = {
    **{name: name for name in ("Quadro", "Tesla", "NVS", "GRID", "GeForce")},
    "GeForce RTX": "GeForceRTX",
    "NVIDIA": "Nvidia",
    "NVIDIA RTX": "NvidiaRTX",
    "NVIDIA vApps": "VApps",
    "NVIDIA vCS": "VCS",
    "NVIDIA vGaming": "CloudGaming",
    "NVIDIA vPC": "VPC",
    "NVIDIA vWS": "VWS",
    "Quadro RTX": "QuadroRTX",
    "Titan": "TITAN",
    "Titan RTX": "TitanRTX",
}
"""Brand of a GPU to its word in NVIDIA's container tools, which images require by `NVIDIA_REQUIRE_` in any case."""
RUNTIME_CLASS: Final = "nvidia"
IMAGE_PROGRAMS: Final = "/usr/local/nvidia/bin"
"""Where images made for GPUs on GKE have the driver's programs, by their own PATH."""
IMAGE_LIBRARIES: Final = "/usr/local/nvidia/lib64"
"""Where the same images have the driver's libraries, by their own LD_LIBRARY_PATH."""
TOOLKIT_DIRECTORY: Final = "/usr/local/nvidia/toolkit"
CONTAINER_DEVICES: Final = "/var/run/nvidia-container-devices"
"""Where mounts of a container name its devices."""

VENDOR: Final = Vendor(
    name="NVIDIA",
    cdi_domain=f"k8s.device-plugin.{DOMAIN}",
    public_domain=DOMAIN,
    gpu_node="/dev/nvidia{minor}",
    control_nodes=("/dev/nvidiactl", *UNIFIED_MEMORY_NODES, "/dev/nvidia-modeset"),
    visible_devices="NVIDIA_VISIBLE_DEVICES",
)
DRIVER_DAEMONS = frozenset({"nvidia-persistenced", "nv-fabricmanager"})
"""Programs of the driver with GPUs open: a reset has persistence let go, and needs the fabric manager."""
CARD_CLIENTS: Final = {
    "device-plugin": "nvidia-device-plugin-daemonset",
    "gpu-feature-discovery": "gpu-feature-discovery",
    "dcgm-exporter": "nvidia-dcgm-exporter",
    "dcgm": "nvidia-dcgm",
    "nvsm": "",
    "client": "",
}
"""DaemonSets with GPUs open, by the end of the deploy label, with the value of the pods' label `app`, if any."""
DRIVER_CLIENTS: Final = {
    **CARD_CLIENTS,
    "operator-validator": "nvidia-operator-validator",
    "mig-manager": "nvidia-mig-manager",
    "sandbox-device-plugin": "nvidia-sandbox-device-plugin-daemonset",
    "vgpu-device-manager": "nvidia-vgpu-device-manager",
    "dra-driver": "",
    "dra-validator": "",
    "dcgm-dra": "",
    "dcgm-exporter-dra": "",
}
"""All DaemonSets with handles that keep a kernel module loaded."""
