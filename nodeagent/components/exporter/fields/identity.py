"""Texts for labels on every GPU series."""

from nodeagent.components.exporter.catalogue.field import Identity, LabelField
from nodeagent.rules.ids import render_bus_id


def _cuda_version(identity: Identity) -> str:
    """The CUDA version in NVML's form: 12080 for CUDA 12.8."""
    version = identity.cuda_version
    return str(version[0] * 1000 + version[1] * 10) if version else ""


def _capability(identity: Identity) -> str:
    """The compute capability in DCGM's form: the major number in the upper half."""
    capability = identity.gpu.compute_capability
    return str(capability[0] * 65536 + capability[1]) if capability else ""


LABELS = (
    LabelField("DCGM_FI_DRIVER_VERSION", 1, "Version of the driver.", lambda i: i.driver_version, default=True),
    LabelField("DCGM_FI_NVML_VERSION", 2, "Version of NVML.", lambda i: i.interface_version),
    LabelField("DCGM_FI_CUDA_DRIVER_VERSION", 5, "Newest CUDA the driver takes.", _cuda_version),
    LabelField("DCGM_FI_DEV_NAME", 50, "Product name.", lambda i: i.gpu.name),
    LabelField("DCGM_FI_DEV_BRAND", 51, "Brand.", lambda i: i.gpu.brand),
    LabelField("DCGM_FI_DEV_SERIAL", 53, "Serial number of the board.", lambda i: i.gpu.serial),
    LabelField("DCGM_FI_DEV_UUID", 54, "UUID of the GPU.", lambda i: i.gpu.uuid),
    LabelField(
        "DCGM_FI_DEV_MINOR_NUMBER",
        55,
        "Number of the device node.",
        lambda i: "" if i.gpu.minor is None else str(i.gpu.minor),
    ),
    LabelField("DCGM_FI_DEV_PCI_BUSID", 57, "PCI address.", lambda i: render_bus_id(i.gpu.pci.address)),
    LabelField(
        "DCGM_FI_DEV_FABRIC_CLUSTER_UUID",
        172,
        "Cluster of the fabric that the GPU is in.",
        lambda i: i.gpu.fabric.cluster_uuid if i.gpu.fabric is not None else "",
    ),
    LabelField("DCGM_FI_DEV_CUDA_COMPUTE_CAPABILITY", 63, "Compute capability.", _capability),
    LabelField("DCGM_FI_DEV_VBIOS_VERSION", 85, "Version of the VBIOS.", lambda i: i.gpu.vbios_version),
)
