"""Rules between settings, each fine alone.

A rule is judged only if every setting read by the rule was accepted: a problem caused by another problem is no help.
Owns the rules; pure.
"""

from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from nodeagent.config.kinds import plain_number
from nodeagent.config.schema import Settings
from nodeagent.config.sections.claims import locate_registration, locate_service
from nodeagent.config.sections.containers_rules import judge_containers
from nodeagent.config.sections.devices_rules import judge_devices
from nodeagent.config.sections.driver_upgrades import judge_upgrade
from nodeagent.config.sections.repairers import judge_drain, judge_node_conditions, judge_reboot, judge_slots
from nodeagent.config.sections.sharing import DEFAULT_PREFIX
from nodeagent.model.labels import GPU_MODEL_LABEL, OWN_LABELS

# sun_path holds 108 bytes with its closing zero.
LONGEST_SOCKET_PATH_BYTES: Final = 107
_LONGEST_DAEMON: Final = "claim-01234567-89ab-cdef-0123-456789abcdef-01234"
"""The longest name of an MPS daemon's directory that is not named after a resource."""

Breach: TypeAlias = tuple[str, str]


class Rule(Struct, frozen=True):
    """A rule: the settings read, and a judge that yields path and message of each breach."""

    reads: tuple[str, ...]
    judge: Callable[[Settings], Iterator[Breach]]


def decide_breaches(settings: Settings, refused: Collection[str]) -> Iterator[Breach]:
    """Every breach of the rules without refused settings."""
    for rule in RULES:
        if not any(concerns(path, rule.reads) for path in refused):
            yield from rule.judge(settings)


def find_broken(settings: Settings) -> Iterator[Rule]:
    """Every rule broken by the settings."""
    return (rule for rule in RULES if any(True for _ in rule.judge(settings)))


def concerns(place: str, reads: tuple[str, ...]) -> bool:
    """Whether a place lies in, or contains, a setting read by the rule."""
    return any(
        place == path or place.startswith((f"{path}.", f"{path}[")) or path.startswith(f"{place}.") for path in reads
    )


def _socket(key: str, path: Path) -> Iterator[Breach]:
    excess = len(bytes(path)) - LONGEST_SOCKET_PATH_BYTES
    if excess > 0:
        yield key, f"socket path {str(path)!r} is {excess} bytes too long; choose a directory with a shorter path"


def _run_dir_sockets(settings: Settings) -> Iterator[Breach]:
    yield from _socket("node.run_dir", settings.node.run_dir / "admin.sock")


def _plugin_sockets(settings: Settings) -> Iterator[Breach]:
    longest = "nvidia-mig-1g.10gb.me.sock" if settings.device_plugin.mig_strategy == "mixed" else "nvidia-gpu.sock"
    for key in ("device_plugins_dir", "plugins_registry_dir"):
        directory: Path | None = getattr(settings.kubelet, key)
        if directory is not None:
            yield from _socket(f"kubelet.{key}", directory / longest)


def _pod_sockets(settings: Settings) -> Iterator[Breach]:
    yield from _socket("kubelet.pod_resources_socket", settings.kubelet.pod_resources_socket)
    yield from _socket("kubelet.pods_api_socket", settings.kubelet.pods_api_socket)


def _usage_socket(settings: Settings) -> Iterator[Breach]:
    if settings.fractions.usage_socket is not None:
        yield from _socket("fractions.usage_socket", settings.fractions.usage_socket)


def _nvsentinel_socket(settings: Settings) -> Iterator[Breach]:
    yield from _socket("signals.nvsentinel.socket", settings.signals.nvsentinel.socket)


def _claim_sockets(settings: Settings) -> Iterator[Breach]:
    claims = settings.claims
    if claims.enabled:
        yield from _socket("claims.plugins_dir", locate_service(claims))
        yield from _socket("claims.registry_dir", locate_registration(claims))


def _claims(settings: Settings) -> Iterator[Breach]:
    claims = settings.claims
    if claims.enabled and not settings.cdi.enabled:
        yield "claims.enabled", "containers are told their devices by CDI specifications; set cdi.enabled: true too"
    if claims.mig_on_demand and not settings.mig.manage:
        yield "claims.mig_on_demand", "the agent cuts GPUs only where it may; set mig.manage: true too"


def _static_labels(settings: Settings) -> Iterator[Breach]:
    for key in settings.labels.static:
        if key.startswith(OWN_LABELS) or key == GPU_MODEL_LABEL:
            yield f"labels.static.{key}", "the agent finds the values of such labels itself; take the label out"


def _restart_pauses(settings: Settings) -> Iterator[Breach]:
    shortest, longest = settings.supervisor.restart_min_seconds, settings.supervisor.restart_max_seconds
    if shortest > longest:
        yield (
            "supervisor.restart_min_seconds",
            f"{plain_number(shortest)} exceeds restart_max_seconds, {plain_number(longest)}; lower it",
        )


def _drain(settings: Settings) -> Iterator[Breach]:
    drain, total = settings.shutdown.drain_seconds, settings.shutdown.total_seconds
    if drain > total:
        yield "shutdown.drain_seconds", f"{plain_number(drain)} exceeds total_seconds, {plain_number(total)}; lower it"


def _stale(settings: Settings) -> Iterator[Breach]:
    stale, sample = map(plain_number, (settings.metrics.stale_after_seconds, settings.inventory.sample_seconds))
    if stale < sample:
        yield (
            "metrics.stale_after_seconds",
            f"{stale} is shorter than inventory.sample_seconds, {sample}: every sample would be stale; raise it",
        )


def _default_config(settings: Settings) -> Iterator[Breach]:
    if settings.device_plugin.default_config and settings.device_plugin.config_dir is None:
        yield "device_plugin.default_config", "there are no named configurations; set device_plugin.config_dir too"


def _mps(settings: Settings) -> Iterator[Breach]:
    if settings.sharing.mps is not None and settings.device_plugin.mig_strategy == "mixed":
        yield "sharing.mps", "MPS and MIG strategy mixed exclude each other; use timeSlicing, or another strategy"


def _smoke_test(settings: Settings) -> Iterator[Breach]:
    if settings.driver.cuda_smoke_test and settings.uses_mps:
        yield "driver.cuda_smoke_test", "it fails on GPUs that are in exclusive use of an MPS daemon; turn it off"


def _mps_sockets(settings: Settings) -> Iterator[Breach]:
    if not settings.uses_mps:
        return
    longest = [_LONGEST_DAEMON]
    if settings.sharing.mps is not None and settings.mps.daemon_per == "resource":
        names = (name for one in settings.sharing.mps.resources for name in (one.name, one.rename) if name)
        longest += [f"{'' if '/' in name else 'nvidia.com/'}{name}.shared" for name in names]
    path = settings.device_plugin.mps_root / max(longest, key=len) / "pipe" / "control_privileged"
    yield from _socket("device_plugin.mps_root", path)


def _fractions(settings: Settings) -> Iterator[Breach]:
    if settings.fractions.enabled and not settings.cdi.enabled:
        yield "fractions.enabled", "containers are told their parts by CDI specifications; set cdi.enabled: true too"


def _enforcement(settings: Settings) -> Iterator[Breach]:
    if settings.fractions.enforcement == "mps" and settings.claims.shares:
        yield (
            "fractions.enforcement",
            "claims that share a GPU are not held by MPS; set it to advise or library, or claims.shares to false",
        )


def _resource_domains(settings: Settings) -> Iterator[Breach]:
    domains = {DEFAULT_PREFIX, settings.device_plugin.resource_prefix}
    for path, name in _resource_names(settings):
        domain, slash, _ = name.rpartition("/")
        if slash and domain not in domains:
            yield path, f"domain {domain!r} is not offered by this agent; give {' or '.join(sorted(domains))}"


def _resource_names(settings: Settings) -> Iterator[Breach]:
    """Every written resource name, with its place."""
    sharing, resources = settings.sharing, settings.resources
    for kind, section in (("timeSlicing", sharing.timeSlicing), ("mps", sharing.mps)):
        for index, entry in enumerate(section.resources if section else ()):
            yield f"sharing.{kind}.resources[{index}].name", entry.name
            yield f"sharing.{kind}.resources[{index}].rename", entry.rename or ""
    for kind, patterns in (("gpus", resources.gpus), ("mig", resources.mig)):
        for index, pattern in enumerate(patterns):
            yield f"resources.{kind}[{index}].name", pattern.name


def _shim(settings: Settings) -> Iterator[Breach]:
    if settings.runtime.shim and not settings.cdi.enabled:
        yield "runtime.shim", "what it looks up is made with the CDI specifications; set cdi.enabled: true too"


def _before_binding(settings: Settings) -> Iterator[Breach]:
    if settings.proof.before_binding == "off":
        return
    if not settings.claims.enabled:
        yield "proof.before_binding", "pods wait for a proof by their claims alone; set claims.enabled: true too"
    for number, rule in enumerate(settings.claims.slices.taints):
        if fnmatchcase("proof-failed", rule.finding) or rule.finding == "unhealthy":
            if rule.effect == "None":
                why = "a GPU that failed its proof would be allocated to its pod again and again"
                yield f"claims.slices.taints[{number}].effect", f"{why}; put a rule proof-failed: NoSchedule before it"
            return


_NAMES_OF_CLAIM_SOCKETS: Final = ("driver", "plugins_dir", "registry_dir", "instance")
_REBOOT_KEYS: Final = ("reboot_by", "reboot_command", "reboot_annotation", "reboot_webhook")
RULES: Final = (
    Rule(("node.run_dir",), _run_dir_sockets),
    Rule(("kubelet.device_plugins_dir", "kubelet.plugins_registry_dir", "device_plugin.mig_strategy"), _plugin_sockets),
    Rule(("kubelet.pod_resources_socket", "kubelet.pods_api_socket", "kubelet.root_dir"), _pod_sockets),
    Rule(("fractions.usage_socket",), _usage_socket),
    Rule(("signals.nvsentinel.socket",), _nvsentinel_socket),
    Rule(("signals.node_conditions",), judge_node_conditions),
    Rule(("repairs.drain", "kubernetes.delete_refused_pods"), judge_drain),
    Rule(("repairs.slots", "kubernetes.enabled"), judge_slots),
    Rule(("claims.enabled", *(f"claims.{key}" for key in _NAMES_OF_CLAIM_SOCKETS)), _claim_sockets),
    Rule(("claims.enabled", "cdi.enabled", "claims.mig_on_demand", "mig.manage"), _claims),
    Rule(("proof.before_binding", "claims.enabled", "claims.slices.taints"), _before_binding),
    Rule(("labels.static",), _static_labels),
    Rule(("supervisor.restart_min_seconds", "supervisor.restart_max_seconds"), _restart_pauses),
    Rule(("shutdown.drain_seconds", "shutdown.total_seconds"), _drain),
    Rule(("metrics.stale_after_seconds", "inventory.sample_seconds"), _stale),
    Rule(("device_plugin.default_config", "device_plugin.config_dir"), _default_config),
    Rule(("sharing.mps", "device_plugin.mig_strategy"), _mps),
    Rule(("sharing.mps", "mps", "fractions", "device_plugin.mps_root"), _mps_sockets),
    Rule(("sharing.mps", "mps", "fractions", "driver.cuda_smoke_test"), _smoke_test),
    Rule(("fractions.enabled", "cdi.enabled"), _fractions),
    Rule(("fractions.enforcement", "claims.shares"), _enforcement),
    Rule(("runtime.shim", "cdi.enabled"), _shim),
    Rule((*(f"repairs.{key}" for key in _REBOOT_KEYS), "kubernetes.enabled"), judge_reboot),
    Rule(("driver.upgrade", "driver.wanted_version", "driver.installed_by", "driver.upgrade_command"), judge_upgrade),
    Rule(("containers", "cdi.enabled"), judge_containers),
    Rule(("devices", "resources", "fractions", "device_plugin.resource_prefix", "cdi.enabled"), judge_devices),
    Rule(("sharing", "resources", "device_plugin.resource_prefix"), _resource_domains),
)
