"""The labels of a device's series, in DCGM exporter's order; pure.

First the fixed ones, then the map of labels and the map of attributes, each in the order of its keys. Composed once
for each device and sample: escaping some hundred values for each series would cost more than all the rest.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeagent.components.exporter.attribution.holders import Holder
from nodeagent.components.exporter.catalogue.field import Entity, Identity, LabelField
from nodeagent.components.exporter.catalogue.selection import Selected
from nodeagent.components.exporter.exposition import escape_label
from nodeagent.config.sections.cluster import MetricsSettings
from nodeagent.model.nvidia import DEVICE_NAME
from nodeagent.rules.ids import render_bus_id


@dataclass(frozen=True, slots=True)
class DeviceLabels:
    """The labels of one device, ready to be joined with a series' own labels."""

    fixed: str
    labels: Mapping[str, str]
    """Name to the pair as it is written."""
    attributes: Mapping[str, str]
    text: str
    """All of them, for series that add none."""

    def extend(self, labels: Mapping[str, str], attributes: Mapping[str, str]) -> str:
        """All labels with more labels added."""
        return _join(self.fixed, {**self.labels, **_write(labels)}, {**self.attributes, **_write(attributes)})


def make_device_labels(
    entity: Entity,
    identity: Identity,
    selected: Iterable[Selected],
    holders: tuple[Holder, ...],
    metrics: MetricsSettings,
    host: str,
) -> DeviceLabels:
    """The labels of one device; without a holder where a device has several, as values belong to no single pod."""
    fixed = render_pairs(_list_fixed(entity, metrics, host))
    labels = {}
    for one in selected:
        if isinstance(one.field, LabelField) and (text := one.field.read(identity)):
            labels[one.name] = text
    written = _write(labels)
    attributes = _write(name_holder(holders[0], metrics) | _name_claim(holders[0], entity)) if len(holders) == 1 else {}
    return DeviceLabels(fixed, written, attributes, _join(fixed, written, attributes))


def name_holder(holder: Holder, metrics: MetricsSettings) -> dict[str, str]:
    """Pod, namespace and container under the configured names."""
    if metrics.old_namespace_labels:
        named = {"container_name": holder.container, "pod_name": holder.pod, "pod_namespace": holder.namespace}
    else:
        named = {"container": holder.container, "namespace": holder.namespace, "pod": holder.pod}
    if metrics.pod_uid and holder.uid:
        named["pod_uid"] = holder.uid
    return named


def _name_claim(holder: Holder, entity: Entity) -> dict[str, str]:
    """The claim by which the holder has the device, under DCGM exporter's names."""
    if holder.claim is None:
        return {}
    named = {
        "dra_claim_name": holder.claim.name,
        "dra_claim_namespace": holder.claim.namespace,
        "dra_driver_name": holder.claim.driver,
        "dra_pool_name": holder.claim.pool,
        "dra_device_name": holder.claim.device,
    }
    if entity.instance is not None:
        named |= {"dra_mig_profile": entity.instance.profile, "dra_mig_device_uuid": str(entity.instance.uuid)}
    return named


def render_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Pairs in the form between braces."""
    return ",".join(f'{key}="{escape_label(text)}"' for key, text in pairs)


def _list_fixed(entity: Entity, metrics: MetricsSettings, host: str) -> list[tuple[str, str]]:
    gpu = entity.gpu
    model = "-".join(gpu.name.split()) if metrics.replace_blanks_in_model_name else gpu.name
    pairs = [
        ("gpu", str(gpu.index)),
        ("uuid" if metrics.old_namespace_labels else "UUID", str(gpu.uuid)),
        ("pci_bus_id", render_bus_id(gpu.pci.address)),
        ("device", DEVICE_NAME.format(index=gpu.index)),
        ("modelName", model),
    ]
    pairs.extend(list_instance_labels(entity))
    if metrics.host_label != "none" and host:
        pairs.append((metrics.host_label, host))
    return pairs


def list_instance_labels(entity: Entity) -> list[tuple[str, str]]:
    """The two labels of GPU instances alone."""
    if entity.instance is None:
        return []
    # A compute instance that is not its whole GPU instance is called 1c.2g.20gb; the instance itself is 2g.20gb.
    profile = entity.instance.profile
    first, dot, rest = profile.partition(".")
    return [
        ("GPU_I_PROFILE", rest if dot and first.endswith("c") else profile),
        ("GPU_I_ID", str(entity.instance.gpu_instance_id)),
    ]


def _write(pairs: Mapping[str, str]) -> dict[str, str]:
    return {key: f'{key}="{escape_label(text)}"' for key, text in pairs.items()}


def _join(fixed: str, labels: Mapping[str, str], attributes: Mapping[str, str]) -> str:
    kept = [labels[key] for key in sorted(labels) if key not in attributes]
    return ",".join((fixed, *kept, *(attributes[key] for key in sorted(attributes))))
