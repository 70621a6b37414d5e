"""Labels that need no driver: the card on the bus, the kernel, the distribution.

Owns the keys under `feature.node.kubernetes.io/` by which operators and charts find GPU nodes, in the spelling of node
feature discovery, and `nvidia.com/gpu.present`. A running node feature discovery writes and owns the same keys.
"""

import re
from collections.abc import Iterator

from nodeagent.components.labeler.node_wide import PREFIX, Label
from nodeagent.components.labeler.values import cut
from nodeagent.model.labels import FEATURE, NodeFacts

_DISPLAY = "03"
_NETWORK = "02"
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]")
_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def label_presence(facts: NodeFacts) -> Iterator[Label]:
    """Labels for a card of the vendor's; a display class makes the node a GPU node."""
    classes = {function.pci_class for function in facts.functions}
    if any(each.startswith((_DISPLAY, _NETWORK)) for each in classes):
        yield f"{FEATURE}pci-10de.present", "true"
    for pci_class in ("0300", "0302"):
        if pci_class in classes:
            yield f"{FEATURE}pci-{pci_class}_10de.present", "true"
    if any(each.startswith(_DISPLAY) for each in classes):
        yield f"{PREFIX}gpu.present", "true"


def label_host(facts: NodeFacts) -> Iterator[Label]:
    """Kernel and distribution, for the choice of driver images."""
    kernel = _clean(facts.kernel_release)
    if kernel:
        yield f"{FEATURE}kernel-version.full", kernel
    release = _RELEASE.match(facts.kernel_release)
    if release:
        for part, number in zip(("major", "minor", "revision"), release.groups(), strict=True):
            if number:
                yield f"{FEATURE}kernel-version.{part}", number
    if facts.os_id:
        yield f"{FEATURE}system-os_release.ID", _clean(facts.os_id)
    if facts.os_version_id:
        major, _, minor = facts.os_version_id.partition(".")
        yield f"{FEATURE}system-os_release.VERSION_ID", _clean(facts.os_version_id)
        yield f"{FEATURE}system-os_release.VERSION_ID.major", _clean(major)
        if minor:
            yield f"{FEATURE}system-os_release.VERSION_ID.minor", _clean(minor)


def _clean(text: str) -> str:
    """Node feature discovery's own clean-up: foreign characters become underscores."""
    return cut(_FOREIGN.sub("_", text))
