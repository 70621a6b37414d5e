"""The whole set of wanted labels.

Owns which labels exist when: presence always, GPUs while the driver answers, the last good labels while the driver does
not. Refuses labels that the API server would refuse: one illegal label would lose all others of the patch.
"""

from collections.abc import Iterator, Mapping

from nodeagent.components.labeler.node_wide import (
    COUNTS,
    PREFIX,
    Label,
    label_devices,
    label_driver,
    label_health,
    label_node,
    label_vgpu,
)
from nodeagent.components.labeler.presence import label_host, label_presence
from nodeagent.components.labeler.resources import label_gpu_manager_model, label_models, label_resources
from nodeagent.components.labeler.values import is_legal
from nodeagent.config.schema import Settings
from nodeagent.model.devices import DeviceTable
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.labels import FEATURE, NodeFacts
from nodeagent.model.offering import AllocationMode, Offering
from nodeagent.model.values import Value
from nodeagent.rules.selectors import select_gpus

TIMESTAMP = f"{PREFIX}gfd.timestamp"
PRESENT = f"{PREFIX}gpu.present"
_OF_THE_MOMENT = frozenset({TIMESTAMP, PRESENT, *COUNTS})
"""Ours, but no facts about GPUs that would still hold while nobody can ask them."""


class LabelFacts(Value, frozen=True):
    """The facts from which labels are rendered."""

    facts: NodeFacts
    driver: DriverState
    inventory: Inventory | None = None
    health: HealthReport | None = None
    offering: Offering | None = None
    """`None` where nobody looks after doors: every GPU is given whole."""
    devices: DeviceTable | None = None
    """Of the configured classes."""


class LabelSet(Value, frozen=True):
    """Labels, and refused labels by key."""

    labels: dict[str, str]
    illegal: tuple[str, ...] = ()


def render_labels(picture: LabelFacts, settings: Settings, last_good: Mapping[str, str]) -> LabelSet:
    """All labels but the timestamp, in the order of their keys; `last_good` stands in while GPUs cannot be asked."""
    found = dict(_all_labels(picture, settings))
    if not _can_ask(picture) and picture.driver.phase is not DriverPhase.NO_HARDWARE:
        found = {key: value for key, value in last_good.items() if is_about_gpus(key)} | found
    legal = {key: found[key] for key in sorted(found) if is_legal(key, found[key])}
    return LabelSet(labels=legal, illegal=tuple(sorted(found.keys() - legal.keys())))


def is_about_gpus(key: str) -> bool:
    """Whether a label of ours comes from the driver, and so stays true while the driver is away."""
    return key not in _OF_THE_MOMENT and not key.startswith(FEATURE)


def _can_ask(picture: LabelFacts) -> bool:
    return picture.driver.ready and picture.inventory is not None


def _all_labels(picture: LabelFacts, settings: Settings) -> Iterator[Label]:
    yield from label_presence(picture.facts)
    yield from label_host(picture.facts)
    yield from label_vgpu(picture.facts)
    found = picture.inventory.gpus if picture.inventory is not None else ()
    # Pods can ask for no others, and a count that says more than the kubelet places them wrongly.
    gpus = select_gpus(found, settings.gpus.include, settings.gpus.exclude)
    if picture.driver.ready and gpus:
        yield PRESENT, "true"
        yield from label_driver(picture.driver)
        yield from label_node(gpus, picture.facts)
        closed = picture.offering.list_closed(gpus, AllocationMode.WHOLE) if picture.offering is not None else ()
        yield from label_resources(gpus, settings, closed)
        yield from label_models(gpus) if settings.labels.per_model else ()
    yield from label_health(gpus, picture.health)
    yield from label_devices(picture.devices, settings.devices.classes)
    if "gpu_manager" in settings.labels.compatibility:
        yield from label_gpu_manager_model(gpus)
    yield from settings.labels.static.items()
