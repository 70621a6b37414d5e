"""Labels of device classes, where the configuration gives a class a label."""

from collections.abc import Iterable, Iterator

from nodeagent.components.labeler.node_wide import Label
from nodeagent.config.sections.devices import DeviceClass
from nodeagent.model.cluster import DEVICE_PREFIX
from nodeagent.model.devices import DeviceTable


def label_devices(table: DeviceTable | None, classes: Iterable[DeviceClass]) -> Iterator[Label]:
    """The number of working devices, including 0: a removed label would not show a device that broke."""
    counts: dict[str, int] = {each.resource: each.healthy_count for each in table.classes} if table is not None else {}
    for each in classes:
        if each.label is not None and each.resource in counts:
            yield f"{DEVICE_PREFIX}{each.label}", str(counts[each.resource])
