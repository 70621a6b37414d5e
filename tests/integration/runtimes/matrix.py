"""One node's configuration from its plan to its revert, by the agent's own hands, judged by a real containerd."""

import copy
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from nodeagent.components.runtime.choose import NoRuntime, parse_version
from nodeagent.components.runtime.component import write_plan
from nodeagent.components.runtime.probe import Probe, ShimInPlace, probe_runtime
from nodeagent.components.runtime.withdraw import withdraw
from nodeagent.config.load import load_settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.container_runtime.detect import RuntimeDetector
from nodeagent.edge.container_runtime.host_runtime import HostRuntime
from nodeagent.model.errors import NodeagentError
from nodeagent.model.runtime import RuntimeCandidate, RuntimeEvidence, RuntimeFlavour, RuntimeKind
from tests.integration.runtimes.configuration import MAIN, Configuration, Release
from tests.integration.runtimes.daemon import Served, serve
from tests.integration.runtimes.support import run

WRAPPER = "/usr/bin/nvidia-container-runtime"
SHIM = "/var/lib/nodeagent/bin/nodeagent-oci-shim"
CLASS = "nvidia"


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    path: Path
    version: str

    @classmethod
    def of(cls, path: Path) -> "Program":
        return cls(path, run(path, "--version").split()[2].removeprefix("v"))

    @property
    def release(self) -> Release:
        return parse_version(self.version)


class _Detector(RuntimeDetector):
    """Sees one containerd that serves the kubelet, with these files."""

    def __init__(self, program: Program, main: Path, flavour: RuntimeFlavour) -> None:
        super().__init__()
        self._candidate = RuntimeCandidate(
            kind=RuntimeKind.CONTAINERD,
            flavour=flavour,
            socket="/run/containerd/containerd.sock",
            answers=True,
            version=program.version,
            executable=str(program.path),
            arguments=("containerd", "--config", str(main)),
        )

    async def read_evidence(self) -> RuntimeEvidence:
        return RuntimeEvidence(candidates=(self._candidate,), wrapper=WRAPPER)


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What the agent did."""

    refusal: str = ""
    written: bool = False
    unproved: str = ""


class Node:
    """A directory with a node's files, and an agent that may change them."""

    def __init__(
        self,
        program: Program,
        configuration: Configuration,
        place: Path,
        flavour: RuntimeFlavour = RuntimeFlavour.PLAIN,
        main: str = MAIN,
    ) -> None:
        self.program, self.configuration = program, configuration
        self.main = place / "etc" / main
        self.main.parent.mkdir()
        for name, text in configuration.files.items():
            path = self.main.parent / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text.replace("/@main@", str(self.main.parent)).encode())
        self._edge = HostRuntime(place / "state", _Detector(program, self.main, flavour), WorkerThread("matrix"))

    def close(self) -> None:
        self._edge.close()

    def read_files(self) -> dict[str, bytes | None]:
        """Everything below the directory of the main file; directories have no content."""
        places = sorted(self.main.parent.rglob("*"))
        return {
            str(path.relative_to(self.main.parent)): path.read_bytes() if path.is_file() else None for path in places
        }

    def configure(self) -> Outcome:
        return anyio.run(self._configure)

    def unconfigure(self) -> None:
        async def restore() -> None:
            await self._edge.restore(withdraw)

        anyio.run(restore)

    def serve(self) -> Served:
        """What the real daemon makes of the files; without a main file it is started without one, too."""
        return serve(self.program.path, self.main)

    async def _configure(self) -> Outcome:
        wants = self.configuration.wants
        legacy = f"runtime.legacy_class={str(wants == 'class').lower()}"
        settings = load_settings(environ={}, overrides=[legacy, f"runtime.config_file={self.main}"]).settings
        shim = ShimInPlace(program=SHIM, default=wants == "default") if wants in {"shim", "default"} else None
        look = await probe_runtime(self._edge, settings.runtime, shim=shim)
        assert not isinstance(look, NoRuntime)
        if look.plan.problem or not look.plan.changes:
            return Outcome(refusal=look.plan.problem)
        return await self._write(look)

    async def _write(self, look: Probe) -> Outcome:
        try:
            proof = await write_plan(self._edge, look)
        except NodeagentError as error:
            return Outcome(refusal=str(error))
        return Outcome(written=True, unproved=proof.unproved)


def simplify(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a daemon does by its configuration apart from what was asked for: what is not set is as if not said."""
    kept = copy.deepcopy(dict(config))
    for name in ("enableCDI", "containerdRootDir", "containerdEndpoint", "rootDir", "stateDir"):
        kept.pop(name, None)
    kept["containerd"]["runtimes"].pop(CLASS, None)
    cleaned: dict[str, Any] = _drop_unset(kept)
    return cleaned


def _drop_unset(value: Any) -> Any:
    if isinstance(value, dict):
        cleaned = {key: _drop_unset(each) for key, each in value.items()}
        return {key: each for key, each in cleaned.items() if each not in ("", 0, False, None, {}, [])}
    return value


def find_faults(node: Node) -> list[str]:
    """Everything that went wrong between plan and revert; nothing when all is well."""
    before = node.read_files()
    first = node.serve()
    outcome = node.configure()
    after = node.read_files()
    expected = node.configuration.find_refusal(node.program.release)
    faults = []
    if bool(expected) != bool(outcome.refusal) or expected not in outcome.refusal:
        faults.append(f"refusal: expected {expected!r}, got {outcome.refusal!r}")
    if outcome.refusal and after != before:
        faults.append("refused and written")
    if outcome.unproved:
        faults.append(f"not proved: {outcome.unproved}")
    if not outcome.refusal:
        faults += _find_lost(node, first, node.serve())
    node.unconfigure()
    if node.read_files() != before:
        faults.append("not as before")
    return faults


def _find_lost(node: Node, first: Served, second: Served) -> list[str]:
    if second.config is None:
        return [f"CRI does not come up: {os.linesep.join(second.log.splitlines()[-5:])}"]
    wants = node.configuration.wants
    wanted = {CLASS} if wants != "cdi" else set()
    kept = set(first.handlers) if first.config is not None else {"runc"}
    faults = [f"no runtime {name}" for name in sorted((wanted | kept) - set(second.handlers))]
    release = node.program.release
    if (1, 7) <= release < (2, 4) and second.config["enableCDI"] is not True:
        faults.append("CDI is off")
    told = second.config["containerd"]
    if wants in {"shim", "default"} and told["runtimes"][CLASS]["options"].get("BinaryName") != SHIM:
        faults.append(f"the class is {told['runtimes'][CLASS]}")
    if wants == "default" and told["defaultRuntimeName"] != CLASS:
        faults.append(f"the default is {told['defaultRuntimeName']}")
    if wants == "default" and first.config is not None:
        told["defaultRuntimeName"] = first.config["containerd"]["defaultRuntimeName"]
    if first.config is not None and simplify(first.config) != simplify(second.config):
        faults.append(f"more has changed: {simplify(first.config)} is now {simplify(second.config)}")
    return faults
