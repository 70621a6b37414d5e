"""What must hold between settings that are each fine alone.

A rule is judged only where every setting it reads was accepted: a complaint that follows from another helps nobody.
Owns the rules; pure.
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from nodeagent.config.kinds import plain_number
from nodeagent.config.schema import Settings
from nodeagent.config.sections.sharing import DEFAULT_PREFIX

# sun_path holds 108 bytes with its closing zero.
LONGEST_SOCKET_PATH_BYTES: Final = 107

Breach: TypeAlias = tuple[str, str]


class Rule(Struct, frozen=True):
    """The settings a rule reads, and what it finds wrong between them: path and message, several at will."""

    reads: tuple[str, ...]
    judge: Callable[[Settings], Iterator[Breach]]


def decide_breaches(settings: Settings, refused: Collection[str]) -> Iterator[Breach]:
    """Every breach of a rule that can be judged."""
    for rule in RULES:
        if not any(_concerns(path, rule.reads) for path in refused):
            yield from rule.judge(settings)


def _concerns(refused: str, reads: tuple[str, ...]) -> bool:
    """Whether a refused place lies in, or holds, one of the settings that are read."""
    return any(
        refused == path or refused.startswith((f"{path}.", f"{path}[")) or path.startswith(f"{refused}.")
        for path in reads
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


def _pod_resources_socket(settings: Settings) -> Iterator[Breach]:
    yield from _socket("kubelet.pod_resources_socket", settings.kubelet.pod_resources_socket)


def _usage_socket(settings: Settings) -> Iterator[Breach]:
    if settings.fractions.usage_socket is not None:
        yield from _socket("fractions.usage_socket", settings.fractions.usage_socket)


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
    if settings.sharing.mps is None:
        return
    if settings.device_plugin.mig_strategy == "mixed":
        yield "sharing.mps", "MPS and MIG strategy mixed exclude each other; use timeSlicing, or another strategy"
    yield "sharing.mps", "the MPS control daemon is not run by this agent yet; use timeSlicing"


def _resource_domains(settings: Settings) -> Iterator[Breach]:
    domains = {DEFAULT_PREFIX, settings.device_plugin.resource_prefix}
    for path, name in _resource_names(settings):
        domain, slash, _ = name.rpartition("/")
        if slash and domain not in domains:
            yield path, f"domain {domain!r} is not offered by this agent; give {' or '.join(sorted(domains))}"


def _resource_names(settings: Settings) -> Iterator[Breach]:
    """Every resource name that was written, with its place."""
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


RULES: Final = (
    Rule(("node.run_dir",), _run_dir_sockets),
    Rule(("kubelet.device_plugins_dir", "kubelet.plugins_registry_dir", "device_plugin.mig_strategy"), _plugin_sockets),
    Rule(("kubelet.pod_resources_socket", "kubelet.root_dir"), _pod_resources_socket),
    Rule(("fractions.usage_socket",), _usage_socket),
    Rule(("supervisor.restart_min_seconds", "supervisor.restart_max_seconds"), _restart_pauses),
    Rule(("shutdown.drain_seconds", "shutdown.total_seconds"), _drain),
    Rule(("metrics.stale_after_seconds", "inventory.sample_seconds"), _stale),
    Rule(("device_plugin.default_config", "device_plugin.config_dir"), _default_config),
    Rule(("sharing.mps", "device_plugin.mig_strategy"), _mps),
    Rule(("runtime.shim", "cdi.enabled"), _shim),
    Rule(("sharing", "resources", "device_plugin.resource_prefix"), _resource_domains),
)
