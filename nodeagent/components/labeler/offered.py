"""Labels about the device ids that the kubelet is offered of a resource.

Owns the keys `nvidia.com/resource.…`, written for resources that feature discovery cannot describe: its labels know
one name for whole GPUs, one model, and one number of replicas.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from nodeagent.components.labeler.node_wide import PREFIX, Label
from nodeagent.config.sections.sharing import DEFAULT_PREFIX
from nodeagent.rules.offer.devices import Offered

_SHARED = "-SHARED"


def label_offered(devices: Sequence[Offered], told: Mapping[str, str]) -> Iterator[Label]:
    """The resources whose number differs from the labels of feature discovery."""
    counts, said = _count(devices), _read(told)
    for name in sorted(counts.keys() | said.keys()):
        if counts[name] == said[name]:
            continue
        members = [each for each in devices if each.resource == name]
        stem = f"{PREFIX}resource.{_spell(name)}"
        yield f"{stem}.count", str(counts[name])
        yield f"{stem}.devices", str(len(members))
        yield f"{stem}.shared", str(sum(each.replicas > 1 for each in members))


def _count(devices: Iterable[Offered]) -> Counter[str]:
    """How many devices of each resource the kubelet is told of."""
    counts: Counter[str] = Counter()
    for each in devices:
        counts[each.resource] += each.replicas
    return counts


def _read(labels: Mapping[str, str]) -> Counter[str]:
    """The numbers of the labels of feature discovery; zero for a resource without an offer."""
    counts: Counter[str] = Counter()
    for key, replicas in labels.items():
        stem = key.removesuffix(".replicas")
        if stem == key or replicas == "0":
            continue
        renamed = replicas != "1" and not labels.get(f"{stem}.product", "").endswith(_SHARED)
        name = f"{DEFAULT_PREFIX}/{stem.removeprefix(PREFIX)}{'.shared' if renamed else ''}"
        counts[name] += int(labels[f"{stem}.count"]) * int(replicas)
    return counts


def _spell(name: str) -> str:
    """A resource in a label's key: the vendor's domain goes without saying, another is set before an underscore."""
    domain, _, base = name.rpartition("/")
    return base if domain == DEFAULT_PREFIX else f"{domain}_{base}"
