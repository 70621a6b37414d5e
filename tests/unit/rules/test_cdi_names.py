"""Names of devices in CDI."""

from nodeagent.rules.cdi_names import EXTRA_KINDS, OWN_KIND, list_cdi_names, qualify
from tests.support.gpus import gpu_uuid, make_gpu, mig_uuid


def test_a_device_is_named_by_index_type_and_uuid() -> None:
    """As the names of NVIDIA's own specifications."""
    gpu = make_gpu(3, mig=["1g.10gb"])
    assert list_cdi_names(gpu) == ("3", "gpu3", gpu_uuid(3))
    assert list_cdi_names(gpu, gpu.mig_devices[0]) == ("3:0", "mig3:0", mig_uuid(3, 0))


def test_containers_are_given_qualified_names() -> None:
    """Vendor, class and name, as a container runtime takes them apart."""
    assert qualify(OWN_KIND, "0") == "k8s.device-plugin.nvidia.com/gpu=0"
    assert qualify(EXTRA_KINDS["gds"], "all") == "k8s.device-plugin.nvidia.com/gds=all"
