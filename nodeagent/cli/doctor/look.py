"""Looks at the node for the doctor: one part after the other, each within its time, none able to stop the others."""

import ctypes
import os
import platform
import shutil
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

import anyio
from msgspec import json
from msgspec.structs import replace

from nodeagent import __version__
from nodeagent.app.hardware import Hardware, choose_hardware
from nodeagent.app.runtime_edge import build_detector
from nodeagent.cli.client import find_agent
from nodeagent.cli.doctor.facts import ApiFacts, DirectoryFacts, Facts, ProcessFacts, SocketFacts
from nodeagent.cli.main import CommandFailed
from nodeagent.components.cdi.registry import SpecReading, is_spec_name, parse_spec
from nodeagent.components.runtime.choose import ChosenRuntime, NoRuntime, decide_runtime
from nodeagent.components.web.records import StateRecord
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.edge.host.atomic_file import read_bounded
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.pseudo_file import list_names, read_raw_attribute
from nodeagent.edge.kube.client import ClientSettings, KubeClient
from nodeagent.edge.kube.credentials import find_credentials
from nodeagent.edge.kube.errors import KubeError
from nodeagent.edge.kubelet.checkpoint_file import CHECKPOINT_NAME, read_checkpoint
from nodeagent.edge.kubelet.errors import CheckpointUnreadable
from nodeagent.model.cdi import SpecContent
from nodeagent.model.driver import DriverEvidence
from nodeagent.model.errors import NodeagentError
from nodeagent.model.gpu import GpuReadout
from nodeagent.model.ports import KubeletCheckpoint

T = TypeVar("T")

PART_SECONDS = 20.0
CDI_DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
STRANGERS = (
    "nvidia-device-plugin",
    "k8s-device-plugin",
    "dcgm-exporter",
    "gpu-feature-discovery",
    "nvidia-mig-manager",
    "nvidia-toolkit",
    "nvidia-ctk-installer",
)
"""Programs that do a part of what nodeagent does."""
PERMISSIONS = (
    ("get", "", "nodes", ""),
    ("patch", "", "nodes", ""),
    ("patch", "", "nodes", "status"),
    ("create", "events.k8s.io", "events", ""),
)
"""What deploy/rbac.yaml gives, and the agent needs."""
_TIMEX_BYTES = 512
_CLOCK_UNSYNCHRONISED = 5


def find_hardware(settings: Settings) -> tuple[Hardware | None, str]:
    """The door to the GPUs that the settings name, or why there is none; made before the event loop begins."""
    try:
        return choose_hardware(LiveSettings(settings), settings.node.name or platform.node(), seed=1), ""
    except NodeagentError as error:
        return None, str(error)


async def look(
    settings: Settings,
    environ: Mapping[str, str],
    hardware: Hardware | None,
    hardware_problem: str,
    *,
    problems: tuple[str, ...],
    notices: tuple[str, ...],
) -> Facts:
    """Everything, with a reason for what could not be seen."""
    simulated = settings.gpus.simulated_profile is not None
    evidence, evidence_problem, readout, readout_problem = await _look_at_hardware(hardware, hardware_problem)
    agent, agent_problem = await anyio.to_thread.run_sync(lambda: _ask_agent(settings, environ))
    runtime, runtime_problem = await bounded(lambda: _look_at_runtime(settings))
    seen = Facts(
        version=__version__,
        python=platform.python_version(),
        kernel=platform.release(),
        user_id=os.geteuid(),
        configuration_problems=problems,
        configuration_notices=notices,
        simulated=simulated,
        evidence=evidence,
        evidence_problem=evidence_problem,
        readout=readout,
        readout_problem=readout_problem,
        agent=agent,
        agent_problem=agent_problem,
        runtime=runtime,
        runtime_problem=runtime_problem,
        api=await look_at_api(settings, environ),
    )
    return await anyio.to_thread.run_sync(lambda: _look_at_host(settings, seen))


def _look_at_host(settings: Settings, seen: Facts) -> Facts:
    """The parts that are files, sockets and system calls of this host; this blocks."""
    checkpoint, checkpoint_problem = _read_checkpoint(settings)
    return replace(
        seen,
        kubelet=look_at_socket(settings.kubelet.device_plugins_dir / "kubelet.sock"),
        pod_resources=look_at_socket(settings.kubelet.pod_resources_socket),
        checkpoint=checkpoint,
        checkpoint_problem=checkpoint_problem,
        specs=read_specs((*CDI_DIRECTORIES, settings.cdi.dir)),
        directories=tuple(look_at_directory(path) for path in (settings.node.state_dir, settings.node.run_dir)),
        clock_synchronised=read_clock(),
        strangers=find_strangers(settings.node.proc_dir),
    )


async def bounded(look_at: Callable[[], Awaitable[T]]) -> tuple[T | None, str]:
    """What a part of the look found, or why it found nothing."""
    try:
        with anyio.fail_after(PART_SECONDS):
            return await look_at(), ""
    except TimeoutError:
        return None, f"no answer within {PART_SECONDS:g} s"
    except (NodeagentError, OSError) as error:
        return None, str(error)


async def _look_at_hardware(
    hardware: Hardware | None, problem: str
) -> tuple[DriverEvidence | None, str, GpuReadout | None, str]:
    if hardware is None:
        return None, problem, None, problem
    async with anyio.create_task_group() as tasks:
        await tasks.start(hardware.run)
        evidence, evidence_problem = await bounded(hardware.probe.read_evidence)
        readout, readout_problem = await bounded(hardware.gpus.read_inventory)
        tasks.cancel_scope.cancel()
    return evidence, evidence_problem, readout, readout_problem


async def _look_at_runtime(settings: Settings) -> ChosenRuntime | NoRuntime:
    return decide_runtime(await build_detector(settings).read_evidence(), settings.runtime)


def _ask_agent(settings: Settings, environ: Mapping[str, str]) -> tuple[StateRecord | None, str]:
    try:
        return json.decode(find_agent(settings, environ).get("/api/v1/state"), type=StateRecord), ""
    except CommandFailed as error:
        return None, str(error)


def _read_checkpoint(settings: Settings) -> tuple[KubeletCheckpoint | None, str]:
    try:
        return read_checkpoint(settings.kubelet.device_plugins_dir / CHECKPOINT_NAME), ""
    except CheckpointUnreadable as error:
        return None, str(error)


def look_at_socket(path: Path) -> SocketFacts:
    """Whether somebody accepts connections there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except OSError as error:
            return SocketFacts(path=str(path), problem=(error.strerror or str(error)).lower())
    return SocketFacts(path=str(path))


def read_specs(directories: tuple[Path, ...]) -> tuple[SpecReading, ...]:
    """All specifications in these directories, each directory once under its real name."""
    return tuple(
        parse_spec(_read_spec(directory / name))
        for directory in dict.fromkeys(path.resolve() for path in directories)
        for name in sorted(list_names(directory))
        if is_spec_name(name)
    )


def _read_spec(path: Path) -> SpecContent:
    try:
        return SpecContent(path=str(path), content=read_bounded(path))
    except HostError as error:
        return SpecContent(path=str(path), content=b"", problem=str(error))


async def look_at_api(settings: Settings, environ: Mapping[str, str]) -> ApiFacts | None:
    """Whether the API server answers, and what it lets this identity do; `None` where it is not wanted."""
    section = settings.kubernetes
    if section.enabled == "false":
        return None
    credentials = find_credentials(section.kubeconfig, environ)
    if credentials is None:
        return ApiFacts()
    client = KubeClient(credentials, lambda: ClientSettings(timeout_seconds=section.request_timeout_seconds))
    try:
        denied = [await _ask_permission(client, *permission) for permission in PERMISSIONS]
    except KubeError as error:
        return ApiFacts(where=credentials.where, problem=str(error))
    finally:
        await client.aclose()
    return ApiFacts(where=credentials.where, denied=tuple(what for what in denied if what))


async def _ask_permission(client: KubeClient, verb: str, group: str, resource: str, subresource: str) -> str:
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    answer = await client.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        attempted="ask what it may do",
        body={
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        },
    )
    status = answer.get("status")
    allowed = isinstance(status, dict) and status.get("allowed") is True
    return "" if allowed else f"{verb} {resource}{'/' if subresource else ''}{subresource}"


def look_at_directory(path: Path) -> DirectoryFacts:
    """The directory, or the nearest one above it that exists."""
    existing = next(candidate for candidate in (path, *path.parents) if candidate.exists())
    usage = shutil.disk_usage(existing)
    writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    return DirectoryFacts(path=str(path), writable=writable, free_bytes=usage.free, total_bytes=usage.total)


def read_clock() -> bool | None:
    """What the kernel says of its clock; `None` when it may not be asked."""
    libc = ctypes.CDLL(None, use_errno=True)
    status = libc.adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if status < 0 else status != _CLOCK_UNSYNCHRONISED


def find_strangers(proc_dir: Path) -> tuple[ProcessFacts, ...]:
    """Processes whose program is one that does the same work."""
    found = []
    for name in list_names(proc_dir):
        if not (name.isascii() and name.isdigit()):
            continue
        program = read_raw_attribute(proc_dir / name / "cmdline").split(b"\0")[0].decode("utf-8", "replace")
        if Path(program).name in STRANGERS:
            found.append(ProcessFacts(pid=int(name), program=Path(program).name))
    return tuple(sorted(found, key=lambda process: process.pid))
