"""CDI names of devices: the same for the specification that defines a name and for the answer that gives it out."""

from typing import Final

from nodeagent.model.gpu import Gpu, MigDevice
from nodeagent.rules.ids import render_index

VENDOR: Final = "k8s.device-plugin.nvidia.com"
OWN_KIND: Final = f"{VENDOR}/gpu"
PUBLIC_KIND: Final = "nvidia.com/gpu"
MANAGEMENT_KIND: Final = "management.nvidia.com/gpu"
"""For programs that look after GPUs rather than compute on them: every node of the driver, in one device."""
SWITCH_KIND: Final = "nvidia.com/nvswitch"
PUBLIC_KINDS: Final = (PUBLIC_KIND, MANAGEMENT_KIND, SWITCH_KIND)
CHANNEL_KIND: Final = f"{VENDOR}/imex-channel"
EXTRA_KINDS: Final = {name: f"{VENDOR}/{name}" for name in ("gdrcopy", "gds", "mofed")}
PART_KIND: Final = f"{VENDOR}/part"
"""Of one container's fractions: each has an opaque name of its own."""
CLAIM_KIND: Final = "k8s.gpu.nvidia.com/claim"
"""Of the devices of a claim, under NVIDIA's own kind: each has a name of its own."""
ALL: Final = "all"


def list_cdi_names(gpu: Gpu, mig: MigDevice | None = None) -> tuple[str, str, str]:
    """The names of a device within a kind: by index, by type and index, and by UUID."""
    index = render_index(gpu, mig)
    return (index, f"gpu{index}", gpu.uuid) if mig is None else (index, f"mig{index}", mig.uuid)


def qualify(kind: str, name: str) -> str:
    """The qualified name for containers: `vendor/class=name`."""
    return f"{kind}={name}"


PART_FILES: Final = f"{PART_KIND.replace('/', '-')}-"
"""The prefix of the files that define one container's fractions each."""


def name_part_file(name: str) -> str:
    """The file with the definition of a container's fractions; `name` is unqualified."""
    return f"{PART_FILES}{name}.json"


CLAIM_FILES: Final = f"{CLAIM_KIND.replace('/', '-')}_"
"""The prefix of the files that define one claim's devices each."""


def name_claim_file(uid: str) -> str:
    """The file with the definition of a claim's devices."""
    return f"{CLAIM_FILES}{uid}.json"
