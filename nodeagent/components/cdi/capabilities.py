"""The driver capability that brings each of the driver's files and nodes into a container.

Owns the reading of a path as a driver capability. A file without a rule is given to every container with a GPU: the
driver's list of files grows with each release, and a library too many does no harm.
"""

import re
from typing import Final

from nodeagent.model.shim import Capability

_COMPUTE: Final = Capability.COMPUTE | Capability.VIDEO
"""Encoding and decoding is done through CUDA."""
_DRAWING: Final = Capability.GRAPHICS | Capability.DISPLAY

_LIBRARIES: Final = (
    (re.compile(r"libnvidia-(ml|cfg|nscq)"), Capability.UTILITY),
    (
        re.compile(
            r"libcuda|libcudadebugger|libnvidia-(opencl|gpucomp|ptxjitcompiler|fatbinaryloader|allocator|compiler|pkcs11"
            r"|pkcs11-openssl3|nvvm\d*|tileiras)"
        ),
        _COMPUTE,
    ),
    (re.compile(r"libvdpau_nvidia|libnvidia-(encode|opticalflow)|libnvcuvid"), Capability.VIDEO),
    (
        re.compile(
            r"libnvidia-(eglcore|glcore|tls|glsi|fbc|ifr|rtcore|glvkspirv|cbl|egl-\w+|vulkan-producer|gtk\d*)|libnvoptix"
            r"|lib(GLX|EGL|GLESv2|GLESv1_CM)_nvidia|libGLX_indirect|libglxserver_nvidia|nvidia_drv|nvidia-drm_gbm"
        ),
        _DRAWING,
    ),
    (re.compile(r"libnvidia-ngx"), Capability.NGX),
)
_SPECIAL: Final = {
    # Shaders and kernels have the same compilers, and CUDA and GBM the same allocator.
    "libnvidia-gpucomp": _COMPUTE | _DRAWING,
    "libnvidia-allocator": _COMPUTE | _DRAWING,
    "libnvidia-ptxjitcompiler": _COMPUTE | _DRAWING,
}
_PATHS: Final = (
    (re.compile(r".*/bin/nvidia-cuda-mps-|.*/nvidia-mps"), Capability.COMPUTE),
    (re.compile(r".*/bin/(nvidia-(smi|debugdump|persistenced)|nv-fabricmanager)$"), Capability.UTILITY),
    (re.compile(r".*/nvidia-(persistenced|fabricmanager)/socket$"), Capability.UTILITY),
    (re.compile(r"/etc/OpenCL/"), _COMPUTE),
    (re.compile(r".*/(glvnd|egl|vulkan|X11|xorg)/|.*/nvoptix\.bin$|.*/bin/nvidia-xconfig$"), _DRAWING),
    (re.compile(r"/dev/nvidia-uvm(-tools)?$"), _COMPUTE),
    (re.compile(r"/dev/nvidia-modeset$"), Capability.DISPLAY),
    (re.compile(r"/dev/dri/"), _DRAWING),
)
_OF_32_BITS: Final = re.compile(r".*/(i386-linux-gnu|lib32|arm-linux-gnueabihf)/")
_LIBRARY: Final = re.compile(r"(?P<stem>[^/]+?)\.so(\.|$)")


def find_capability(path: str) -> Capability:
    """The capabilities of which any brings the file or node into a container."""
    if _OF_32_BITS.match(path):
        return Capability.COMPAT32
    name = path.rpartition("/")[2]
    library = _LIBRARY.match(name)
    if library is not None:
        return _find_for_library(library["stem"])
    return next((capability for rule, capability in _PATHS if rule.match(path)), Capability.ALWAYS)


def _find_for_library(stem: str) -> Capability:
    known = (capability for rule, capability in _LIBRARIES if rule.fullmatch(stem))
    return _SPECIAL.get(stem) or next(known, Capability.ALWAYS)
