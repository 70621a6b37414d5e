"""Labels about resources: whole GPUs and MIG devices, under each of the three MIG strategies.

Owns the keys `nvidia.com/gpu.…` and `nvidia.com/mig-<profile>.…`, by the rules of GPU feature discovery but for one: a
node with several models is described by the most numerous model, where upstream takes the last model.
"""

from collections.abc import Container, Iterator, Sequence

from nodeagent.components.labeler.node_wide import PREFIX, Label
from nodeagent.components.labeler.offered import label_offered
from nodeagent.components.labeler.values import cut, plan_value, sanitise
from nodeagent.config.schema import Settings
from nodeagent.model.gpu import Gpu, MigDevice
from nodeagent.model.labels import GPU_MODEL_LABEL
from nodeagent.model.values import Value
from nodeagent.rules.mig.profiles import plain_profile
from nodeagent.rules.offer.devices import Offered
from nodeagent.rules.offer.resources import plan_offer


class ReplicaCounts(Value, frozen=True):
    """How often each of the devices is offered at least."""

    replicas: int = 0
    strategy: str = "none"
    suffix: str = ""
    """What the product's name gets: nothing where the resource has another name to tell it by."""


NOT_OFFERED = ReplicaCounts()


def describe_shares(devices: Sequence[Offered]) -> ReplicaCounts:
    """The fewest replicas of a device; sharing is labelled as soon as one device is shared."""
    if not devices:
        return NOT_OFFERED
    shared = [each for each in devices if each.replicas > 1]
    return ReplicaCounts(
        replicas=min(each.replicas for each in devices),
        strategy=shared[0].strategy if shared else "none",
        suffix="-SHARED" if any(not each.renamed for each in shared) else "",
    )


MIB = 1 << 20
_FAMILIES: tuple[tuple[tuple[int, int], str], ...] = (
    ((13, 0), "rubin"),
    ((12, 0), "blackwell"),
    ((11, 0), "undefined"),
    ((10, 0), "blackwell"),
    ((9, 0), "hopper"),
    ((8, 9), "ada-lovelace"),
    ((8, 0), "ampere"),
    ((7, 5), "turing"),
    ((7, 0), "volta"),
    ((6, 0), "pascal"),
    ((5, 0), "maxwell"),
    ((4, 0), "undefined"),
    ((3, 0), "kepler"),
    ((2, 0), "fermi"),
    ((1, 0), "tesla"),
)
_LAST_KNOWN_MAJOR = 13


def label_resources(gpus: Sequence[Gpu], settings: Settings, closed: Container[str] = ()) -> Iterator[Label]:
    """The labels of the configured MIG strategy, and the device plugin's offer where the strategy's labels lack it."""
    offered = tuple(each for each in plan_offer(gpus, settings, closed).devices if not each.device.withheld)
    by_mps = any(each.strategy == "mps" for each in offered) and not any(gpu.mig_enabled for gpu in gpus)
    yield f"{PREFIX}mps.capable", str(by_mps).lower()
    known = dict(_label_known(gpus, offered, settings.device_plugin.mig_strategy))
    yield from known.items()
    yield from label_offered(offered, known)


def _label_known(gpus: Sequence[Gpu], offered: Sequence[Offered], strategy: str) -> Iterator[Label]:
    """The labels of feature discovery; a later label replaces an earlier label of the same key."""
    group = choose_model(gpus)
    yield from _label_gpus(group, offered)
    if strategy == "none":
        return
    yield f"{PREFIX}mig.strategy", strategy
    if strategy == "mixed":
        yield from _label_profiles(gpus, offered)
    elif any(gpu.mig_enabled for gpu in gpus):
        yield from _label_single(gpus, group[0].name, offered)


def label_models(gpus: Sequence[Gpu]) -> Iterator[Label]:
    """Count and memory by model, for nodes with several models."""
    models = group_models(gpus)
    for name, members in models.items() if len(models) > 1 else ():
        # The name part of a key holds 63 characters, of which `gpu.product.` and `.memory` take 19.
        model = cut(sanitise(name), 44)
        if model:
            yield f"{PREFIX}gpu.product.{model}.count", str(len(members))
            yield f"{PREFIX}gpu.product.{model}.memory", str(members[0].memory_total_bytes // MIB)


def label_gpu_manager_model(gpus: Sequence[Gpu]) -> Iterator[Label]:
    """The model as gpu-manager has it: the second word of the first GPU's name, where the name has three or more."""
    words = min(gpus, key=lambda each: each.index).name.split() if gpus else []
    if len(words) >= 3:
        yield GPU_MODEL_LABEL, words[1]


def group_models(gpus: Sequence[Gpu]) -> dict[str, list[Gpu]]:
    """The GPUs by model name, each model in the order of indexes."""
    models: dict[str, list[Gpu]] = {}
    for gpu in sorted(gpus, key=lambda each: each.index):
        models.setdefault(gpu.name, []).append(gpu)
    return models


def choose_model(gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs for labels without a model in the key: the most numerous model, then the lowest index."""
    return max(group_models(gpus).values(), key=len)


def find_family(capability: tuple[int, int]) -> str:
    """The architecture's name in labels."""
    if capability[0] > _LAST_KNOWN_MAJOR:
        return "undefined"
    return next((name for least, name in _FAMILIES if capability >= least), "undefined")


def _label_gpus(group: Sequence[Gpu], offered: Sequence[Offered]) -> Iterator[Label]:
    gpu = next((each for each in group if not each.mig_enabled), group[0])
    whole = [each for each in offered if each.device.mig is None and each.device.gpu.name == gpu.name]
    shares = NOT_OFFERED if gpu.mig_enabled else describe_shares(whole)
    yield from _label_offer(f"{PREFIX}gpu", gpu.name, "", len(group), shares)
    if gpu.memory_total_bytes >= MIB:
        yield f"{PREFIX}gpu.memory", str(gpu.memory_total_bytes // MIB)
    if gpu.compute_capability is not None and gpu.compute_capability[0] > 0:
        yield f"{PREFIX}gpu.family", find_family(gpu.compute_capability)
        yield f"{PREFIX}gpu.compute.major", str(gpu.compute_capability[0])
        yield f"{PREFIX}gpu.compute.minor", str(gpu.compute_capability[1])


def _label_single(gpus: Sequence[Gpu], model: str, offered: Sequence[Offered]) -> Iterator[Label]:
    """The strategy `single` on a node with MIG mode on: all devices alike, or no device is offered."""
    devices = [device for gpu in gpus for device in gpu.mig_devices]
    parts = _find_parts(offered, devices)
    if len({device.profile for device in devices}) != 1 or not all(gpu.mig_devices for gpu in gpus) or not parts:
        product = plan_value(model, "-MIG-INVALID")
        yield from ((f"{PREFIX}gpu.product", product),) if product else ()
        yield from ((f"{PREFIX}gpu.{key}", "0") for key in ("count", "replicas", "memory"))
        yield f"{PREFIX}gpu.sharing-strategy", ""
        return
    yield from _label_devices(f"{PREFIX}gpu", model, devices, describe_shares(parts))


def _label_profiles(gpus: Sequence[Gpu], offered: Sequence[Offered]) -> Iterator[Label]:
    profiles: dict[str, list[tuple[Gpu, MigDevice]]] = {}
    for gpu in gpus:
        for device in gpu.mig_devices:
            profiles.setdefault(_name_profile(device), []).append((gpu, device))
    for profile, members in sorted(profiles.items()):
        devices = [device for _, device in members]
        shares = describe_shares(_find_parts(offered, devices))
        yield from _label_devices(f"{PREFIX}mig-{profile}", members[0][0].name, devices, shares)


def _find_parts(offered: Sequence[Offered], devices: Sequence[MigDevice]) -> list[Offered]:
    uuids = {device.uuid for device in devices}
    return [each for each in offered if each.device.mig is not None and each.device.uuid in uuids]


def _label_devices(stem: str, model: str, devices: Sequence[MigDevice], shares: ReplicaCounts) -> Iterator[Label]:
    first = devices[0]
    yield from _label_offer(stem, model, f"-MIG-{_name_profile(first)}", len(devices), shares)
    attributes = first.attributes
    yield f"{stem}.memory", str(attributes.memory_mib)
    yield f"{stem}.multiprocessors", str(attributes.multiprocessor_count)
    yield f"{stem}.slices.gi", str(attributes.gpu_instance_slice_count)
    yield f"{stem}.slices.ci", str(attributes.compute_instance_slice_count)
    yield f"{stem}.engines.copy", str(attributes.shared_copy_engine_count)
    yield f"{stem}.engines.decoder", str(attributes.shared_decoder_count)
    yield f"{stem}.engines.encoder", str(attributes.shared_encoder_count)
    yield f"{stem}.engines.jpeg", str(attributes.shared_jpeg_count)
    yield f"{stem}.engines.ofa", str(attributes.shared_ofa_count)


def _label_offer(stem: str, model: str, kind: str, count: int, shares: ReplicaCounts) -> Iterator[Label]:
    product = plan_value(model, kind + shares.suffix)
    if product:
        yield f"{stem}.product", product
    yield f"{stem}.count", str(count)
    yield f"{stem}.replicas", str(shares.replicas)
    yield f"{stem}.sharing-strategy", shares.strategy


def _name_profile(device: MigDevice) -> str:
    return cut(sanitise(plain_profile(device.profile)), 32)
