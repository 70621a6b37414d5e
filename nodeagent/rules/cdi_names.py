"""CDI names of devices: the same for the specification that defines a name and for the answer that gives it out."""

from typing import Final

from nodeagent.model.gpu import Gpu, MigDevice
from nodeagent.model.nvidia import DOMAIN, DRA_DRIVER, VENDOR
from nodeagent.model.vendor import Vendor
from nodeagent.rules.ids import render_index


def name_own_kind(vendor: Vendor) -> str:
    """The kind of the GPUs that the device plugin hands out."""
    return f"{vendor.cdi_domain}/gpu"


def name_public_kind(vendor: Vendor) -> str:
    """The kind of GPUs for people and other programs."""
    return f"{vendor.public_domain}/gpu"


OWN_KIND: Final = name_own_kind(VENDOR)
PUBLIC_KIND: Final = name_public_kind(VENDOR)
MANAGEMENT_KIND: Final = f"management.{DOMAIN}/gpu"
"""For programs that look after GPUs rather than compute on them: every node of the driver, in one device."""
SWITCH_KIND: Final = f"{DOMAIN}/nvswitch"


def list_public_kinds(vendor: Vendor) -> tuple[str, ...]:
    """The kinds for people and other programs; the nodes of the kinds beside GPUs' exist with one driver only."""
    return name_public_kind(vendor), MANAGEMENT_KIND, SWITCH_KIND


PUBLIC_KINDS: Final = list_public_kinds(VENDOR)
CHANNEL_KIND: Final = f"{VENDOR.cdi_domain}/imex-channel"
EXTRA_KINDS: Final = {name: f"{VENDOR.cdi_domain}/{name}" for name in ("gdrcopy", "gds", "mofed")}
FRACTION_KIND: Final = f"{VENDOR.cdi_domain}/part"
"""Of one container's fractions: each has an opaque name of its own."""
CLAIM_KIND: Final = f"k8s.{DRA_DRIVER}/claim"
"""Of the devices of a claim, under the DRA driver's own kind: each has a name of its own."""
ALL: Final = "all"


def list_cdi_names(gpu: Gpu, mig: MigDevice | None = None) -> tuple[str, str, str]:
    """The names of a device within a kind: by index, by type and index, and by UUID."""
    index = render_index(gpu, mig)
    return (index, f"gpu{index}", gpu.uuid) if mig is None else (index, f"mig{index}", mig.uuid)


def qualify(kind: str, name: str) -> str:
    """The qualified name for containers: `vendor/class=name`."""
    return f"{kind}={name}"


FRACTION_FILES: Final = f"{FRACTION_KIND.replace('/', '-')}-"
"""The prefix of the files that define one container's fractions each."""


def name_fraction_file(name: str) -> str:
    """The file with the definition of a container's fractions; `name` is unqualified."""
    return f"{FRACTION_FILES}{name}.json"


DEVICE_FRACTION_FILES: Final = "nodeagent-part-"
"""The prefix of the files that define one container's fractions of a configured class's devices each."""


def name_device_fraction_file(name: str) -> str:
    """The file with the definition of a container's fractions of a class's devices; `name` is unqualified."""
    return f"{DEVICE_FRACTION_FILES}{name}.json"


CLAIM_FILES: Final = f"{CLAIM_KIND.replace('/', '-')}_"
"""The prefix of the files that define one claim's devices each."""


def name_claim_file(uid: str) -> str:
    """The file with the definition of a claim's devices."""
    return f"{CLAIM_FILES}{uid}.json"
