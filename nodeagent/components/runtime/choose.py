"""Choice of the runtime that serves the kubelet, with the place of its configuration and the command to restart it.

Refuses to guess between two living runtimes: changing the wrong runtime helps no node.
"""

from collections.abc import Mapping, Sequence

from nodeagent.config.sections.containers import RuntimeSettings
from nodeagent.model.runtime import RuntimeCandidate, RuntimeEvidence, RuntimeFlavour, RuntimeKind
from nodeagent.model.runtimes import RUNTIMES, is_adapter
from nodeagent.model.runtimes.record import RuntimeRecord
from nodeagent.model.values import Value


class ChosenRuntime(Value, frozen=True):
    """The runtime of the kubelet."""

    kind: RuntimeKind
    flavour: RuntimeFlavour
    socket: str
    config_file: str
    """Empty where the file is not known."""
    restart_command: tuple[str, ...] = ()
    """The command that brings a changed configuration into force; empty where unknown or needless."""
    version: str = ""
    executable: str = ""
    cdi_in_force: bool | None = None
    handlers: tuple[str, ...] | None = None
    programs: Mapping[str, str] = {}
    default_handler: str = ""

    @property
    def record(self) -> RuntimeRecord:
        """The facts about this kind of runtime on any node."""
        return RUNTIMES[self.kind]

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version; zeros where the version is not known."""
        return parse_version(self.version)

    @property
    def default_program(self) -> str:
        """The program behind containers without a runtime class, by the runtime's own word; empty where unknown."""
        return self.programs.get(self.default_handler, "")

    @property
    def restart_advice(self) -> str:
        """The command to bring a changed configuration into force, or advice where no command is known."""
        if self.restart_command or self.record.is_command:
            return " ".join(self.restart_command)
        return (
            f"the unit of the process behind {self.socket} cannot be told: restart it by hand,"
            " or name the command in `runtime.restart_command`"
        )

    @property
    def knows_cdi(self) -> bool:
        """Whether the release knows CDI; a release of unknown version counts as one."""
        return self.release == (0, 0) or self.release >= self.record.first_with_cdi


class NoRuntime(Value, frozen=True):
    """Why no runtime can be said to serve the kubelet."""

    reason: str
    seen: bool = True
    """Whether there is any sign of a runtime; without one the agent's container may also not see the sockets."""


def decide_runtime(evidence: RuntimeEvidence, settings: RuntimeSettings) -> ChosenRuntime | NoRuntime:
    """The kubelet's runtime: by the settings, else by the kubelet's endpoint, else the only one alive."""
    candidates = _restrict(evidence.candidates, settings)
    if not candidates:
        *others, last = (each.title for each in RUNTIMES.values() if not each.is_command)
        reason = f"no container runtime was found, looked for sockets of {', '.join(others)} and {last}"
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


def decide_restart(candidate: RuntimeCandidate, settings: RuntimeSettings) -> tuple[str, ...]:
    """The command to restart this runtime and no other of the kind; never a signal, of which some runtimes die."""
    record = RUNTIMES[candidate.kind]
    told = settings.restart_command or record.find_place(candidate.flavour).restart
    unit = candidate.unit or (record.unit if _has_usual_socket(candidate) else "")
    return told or (("systemctl", "restart", unit) if unit else ())


def parse_version(text: str) -> tuple[int, int]:
    """Major and minor version; zeros for a text without numbers."""
    numbers = text.removeprefix("v").split("-", maxsplit=1)[0].split("+", maxsplit=1)[0].split(".")
    parts = [int(number) if number.isascii() and number.isdigit() else 0 for number in (*numbers, "0")[:2]]
    return (parts[0], parts[1])


def _restrict(candidates: Sequence[RuntimeCandidate], settings: RuntimeSettings) -> list[RuntimeCandidate]:
    kept = [each for each in candidates if settings.kind in {"auto", RUNTIMES[each.kind].setting}]
    if settings.socket is None:
        return kept
    return [each for each in kept if each.socket == str(settings.socket)]


def _prefer_kubernetes(candidates: list[RuntimeCandidate]) -> list[RuntimeCandidate]:
    """Prefer a runtime that serves kubelets by itself: the other kind runs on many nodes beside it."""
    others = [each for each in candidates if not RUNTIMES[each.kind].adapter]
    return others if len(others) == 1 else candidates


def _describe(candidate: RuntimeCandidate, settings: RuntimeSettings) -> ChosenRuntime:
    record = RUNTIMES[candidate.kind]
    found = record.find_place(candidate.flavour).config_file or record.find_config_flag(candidate.arguments)
    # A runtime whose process is not seen and whose socket is its own has a configuration of its own, too.
    if not found and (candidate.pid is not None or _has_usual_socket(candidate)):
        found = record.config_file
    config_file = str(settings.config_file) if settings.config_file else found
    return ChosenRuntime(
        kind=candidate.kind,
        flavour=candidate.flavour,
        socket=candidate.socket,
        config_file=config_file,
        restart_command=decide_restart(candidate, settings),
        version=candidate.version,
        executable=candidate.executable,
        cdi_in_force=candidate.cdi_in_force,
        handlers=candidate.handlers,
        programs=candidate.programs,
        default_handler=candidate.default_handler,
    )


def _has_usual_socket(candidate: RuntimeCandidate) -> bool:
    return _normalise(candidate.socket) in {_normalise(place.socket) for place in RUNTIMES[candidate.kind].places}


def _is_behind(candidate: RuntimeCandidate, endpoint: str) -> bool:
    """Whether the kubelet's endpoint is the runtime's socket, or the socket of the adapter in front of the runtime."""
    told = _normalise(endpoint.removeprefix("unix://"))
    if is_adapter(told):
        adapter = RUNTIMES[candidate.kind].adapter
        return bool(adapter) and told.endswith(adapter)
    return bool(told) and _normalise(candidate.socket) == told


def _normalise(socket: str) -> str:
    """A path for both names of a directory with two names on every host."""
    return socket.removeprefix("/var") if socket.startswith("/var/run/") else socket
