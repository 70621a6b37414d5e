"""Which capability brings which file."""

import pytest

from nodeagent.components.cdi.capabilities import find_capability
from nodeagent.model.shim import Capability

COMPUTE = Capability.COMPUTE | Capability.VIDEO
DRAWING = Capability.GRAPHICS | Capability.DISPLAY


@pytest.mark.parametrize(
    ("path", "capability"),
    [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06", COMPUTE),
        ("/usr/lib64/libcuda.so", COMPUTE),
        ("libcuda.so.1", COMPUTE),
        ("/usr/lib64/libnvidia-nvvm70.so.4", COMPUTE),
        ("/usr/lib64/libnvidia-gpucomp.so.580.65.06", COMPUTE | DRAWING),
        ("/usr/lib64/libnvidia-ml.so.580.65.06", Capability.UTILITY),
        ("/usr/lib64/libnvcuvid.so.580.65.06", Capability.VIDEO),
        ("/usr/lib64/vdpau/libvdpau_nvidia.so.580.65.06", Capability.VIDEO),
        ("/usr/lib64/libGLX_nvidia.so.580.65.06", DRAWING),
        ("/usr/lib64/libnvidia-egl-gbm.so.1.1.2", DRAWING),
        ("/usr/lib64/xorg/modules/drivers/nvidia_drv.so", DRAWING),
        ("/usr/lib64/libnvidia-ngx.so.580.65.06", Capability.NGX),
        ("/usr/lib/i386-linux-gnu/libcuda.so.580.65.06", Capability.COMPAT32),
        ("/usr/lib64/libnvidia-something-new.so.580.65.06", Capability.ALWAYS),
        ("/lib/firmware/nvidia/580.65.06/gsp_ga10x.bin", Capability.ALWAYS),
        ("/usr/bin/nvidia-smi", Capability.UTILITY),
        ("/run/nvidia/driver/usr/bin/nvidia-cuda-mps-control", Capability.COMPUTE),
        ("/run/nvidia-persistenced/socket", Capability.UTILITY),
        ("/etc/OpenCL/vendors/nvidia.icd", COMPUTE),
        ("/usr/share/vulkan/icd.d/nvidia_icd.json", DRAWING),
        ("/dev/nvidiactl", Capability.ALWAYS),
        ("/dev/nvidia0", Capability.ALWAYS),
        ("/dev/nvidia-uvm", COMPUTE),
        ("/dev/nvidia-modeset", Capability.DISPLAY),
        ("/dev/dri/card1", DRAWING),
    ],
)
def test_each_file_has_its_capability(path: str, capability: Capability) -> None:
    """What no rule knows comes always."""
    assert find_capability(path) == capability
