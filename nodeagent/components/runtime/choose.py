"""Which runtime serves the kubelet, where its configuration is, and how it is restarted.

Owns the table of distributions. Refuses to guess between two living runtimes: changing the wrong one helps nobody.
"""

from collections.abc import Sequence
from typing import Final

from nodeagent.config.sections.containers import RuntimeSettings
from nodeagent.model.runtime import RuntimeCandidate, RuntimeEvidence, RuntimeFlavour, RuntimeKind
from nodeagent.model.values import Value

_KINDS: Final = {
    "containerd": RuntimeKind.CONTAINERD,
    "crio": RuntimeKind.CRIO,
    "docker": RuntimeKind.DOCKER,
}
_CONFIG_FILES: Final = {
    RuntimeKind.CONTAINERD: "/etc/containerd/config.toml",
    RuntimeKind.CRIO: "/etc/crio/crio.conf",
    RuntimeKind.DOCKER: "/etc/docker/daemon.json",
}
_CONFIG_FLAGS: Final = {
    RuntimeKind.CONTAINERD: ("-c", "--config"),
    RuntimeKind.CRIO: ("-c", "--config"),
    RuntimeKind.DOCKER: ("--config-file",),
}
_FLAVOURED_CONFIG_FILES: Final = {
    RuntimeFlavour.K3S: "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    RuntimeFlavour.RKE2: "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    RuntimeFlavour.MICROK8S: "/var/snap/microk8s/current/args/containerd-template.toml",
    RuntimeFlavour.K0S: "/etc/k0s/containerd.toml",
}
_RESTARTS: Final = {
    RuntimeFlavour.K3S: ("systemctl", "try-restart", "k3s.service", "k3s-agent.service"),
    RuntimeFlavour.RKE2: ("systemctl", "try-restart", "rke2-server.service", "rke2-agent.service"),
    RuntimeFlavour.MICROK8S: ("snap", "restart", "microk8s.daemon-containerd"),
    RuntimeFlavour.K0S: ("systemctl", "try-restart", "k0sworker.service", "k0scontroller.service"),
}
_FIRST_WITH_CDI: Final = {
    RuntimeKind.CONTAINERD: (1, 7),
    RuntimeKind.CRIO: (1, 24),
    RuntimeKind.DOCKER: (25, 0),
}
_DOCKER_ADAPTER: Final = "/cri-dockerd.sock"
_UNITS: Final = {
    RuntimeKind.CONTAINERD: "containerd.service",
    RuntimeKind.CRIO: "crio.service",
    RuntimeKind.DOCKER: "docker.service",
}


class ChosenRuntime(Value, frozen=True):
    """The runtime that serves the kubelet."""

    kind: RuntimeKind
    flavour: RuntimeFlavour
    socket: str
    config_file: str
    version: str = ""
    executable: str = ""
    cdi_in_force: bool | None = None
    handlers: tuple[str, ...] | None = None

    @property
    def restart_command(self) -> tuple[str, ...]:
        """What brings a changed configuration into force; never a signal, which containerd dies of."""
        plain = ("systemctl", "restart", _UNITS[self.kind])
        return _RESTARTS.get(self.flavour, plain)

    @property
    def knows_cdi(self) -> bool:
        """Whether this release has ever heard of CDI; one whose version is not known has."""
        release = parse_version(self.version)
        return release == (0, 0) or release >= _FIRST_WITH_CDI[self.kind]


class NoRuntime(Value, frozen=True):
    """Why none can be said to serve the kubelet."""

    reason: str
    seen: bool = True
    """Whether there is any sign of one; none at all also means that the agent's container does not see the sockets."""


def decide_runtime(evidence: RuntimeEvidence, settings: RuntimeSettings) -> ChosenRuntime | NoRuntime:
    """The one that serves the kubelet: by the settings, else by the kubelet's own endpoint, else the only one alive."""
    candidates = _restrict(evidence.candidates, settings)
    if not candidates:
        reason = "no container runtime was found, looked for sockets of containerd, CRI-O and Docker"
        return NoRuntime(reason=reason, seen=False)
    told = [each for each in candidates if _is_behind(each, evidence.kubelet_endpoint)]
    alive = told or [each for each in candidates if each.answers]
    if not alive:
        reasons = "; ".join(f"{each.kind} at {each.socket}: {each.problem or 'no answer'}" for each in candidates)
        return NoRuntime(reason=f"no container runtime answers ({reasons})")
    if len(alive) > 1:
        alive = _prefer_kubernetes(alive)
    if len(alive) > 1:
        names = " and ".join(f"{each.kind} at {each.socket}" for each in alive)
        return NoRuntime(reason=f"{names} both answer, set `runtime.kind` or `runtime.socket`")
    return _describe(alive[0], settings)


def parse_version(text: str) -> tuple[int, int]:
    """Major and minor version; zeros where the text has none."""
    numbers = text.removeprefix("v").split("-", maxsplit=1)[0].split("+", maxsplit=1)[0].split(".")
    parts = [int(number) if number.isascii() and number.isdigit() else 0 for number in (*numbers, "0")[:2]]
    return (parts[0], parts[1])


def find_config_flag(kind: RuntimeKind, arguments: Sequence[str]) -> str:
    """The configuration file that the daemon was started with; empty when its default is in use."""
    for number, argument in enumerate(arguments):
        for flag in _CONFIG_FLAGS[kind]:
            if argument == flag and number + 1 < len(arguments):
                return arguments[number + 1]
            if argument.startswith(f"{flag}="):
                return argument.partition("=")[2]
    return ""


def _restrict(candidates: Sequence[RuntimeCandidate], settings: RuntimeSettings) -> list[RuntimeCandidate]:
    kind = _KINDS.get(settings.kind)
    kept = [each for each in candidates if kind is None or each.kind is kind]
    if settings.socket is None:
        return kept
    return [each for each in kept if each.socket == str(settings.socket)]


def _prefer_kubernetes(candidates: list[RuntimeCandidate]) -> list[RuntimeCandidate]:
    """Docker runs beside containerd on many nodes and serves no kubelet by itself."""
    others = [each for each in candidates if each.kind is not RuntimeKind.DOCKER]
    return others if len(others) == 1 else candidates


def _describe(candidate: RuntimeCandidate, settings: RuntimeSettings) -> ChosenRuntime:
    found = (
        find_config_flag(candidate.kind, candidate.arguments)
        if candidate.flavour is RuntimeFlavour.PLAIN
        else _FLAVOURED_CONFIG_FILES[candidate.flavour]
    )
    config_file = str(settings.config_file) if settings.config_file else found or _CONFIG_FILES[candidate.kind]
    return ChosenRuntime(
        kind=candidate.kind,
        flavour=candidate.flavour,
        socket=candidate.socket,
        config_file=config_file,
        version=candidate.version,
        executable=candidate.executable,
        cdi_in_force=candidate.cdi_in_force,
        handlers=candidate.handlers,
    )


def _is_behind(candidate: RuntimeCandidate, endpoint: str) -> bool:
    """Whether the kubelet's endpoint is this runtime's socket, or that of the adapter in front of Docker."""
    told = _normalise(endpoint.removeprefix("unix://"))
    if told.endswith(_DOCKER_ADAPTER):
        return candidate.kind is RuntimeKind.DOCKER
    return bool(told) and _normalise(candidate.socket) == told


def _normalise(socket: str) -> str:
    """The same for both names of a directory that every host has twice."""
    return socket.removeprefix("/var") if socket.startswith("/var/run/") else socket
