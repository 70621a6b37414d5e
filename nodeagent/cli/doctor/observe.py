"""Observes the node for the doctor: part after part, each with a time limit, none able to stop the others."""

import os
import platform
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar
from urllib.parse import quote

import anyio

from nodeagent import __version__
from nodeagent.app.hardware import Hardware, choose_hardware
from nodeagent.app.runtime_edge import build_detector
from nodeagent.cli.answers.client import find_agent
from nodeagent.cli.doctor.facts import (
    ApiFacts,
    Facts,
)
from nodeagent.cli.doctor.observe_host import observe_this_host
from nodeagent.cli.main import CommandFailed
from nodeagent.components.runtime.choose import ChosenRuntime, NoRuntime, decide_runtime
from nodeagent.components.web.api.records import StateRecord
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.edge.kube.client import ClientSettings, Json, KubeClient
from nodeagent.edge.kube.credentials import find_credentials
from nodeagent.edge.kube.errors import ApiForbidden, ApiNotFound, KubeError
from nodeagent.model.driver import DriverEvidence
from nodeagent.model.errors import NodeagentError
from nodeagent.model.gpu import GpuReadout
from nodeagent.rules.kubernetes_versions import list_wanted

T = TypeVar("T")

PART_SECONDS = 20.0
PERMISSIONS = (
    ("get", "", "nodes", ""),
    ("patch", "", "nodes", ""),
    ("patch", "", "nodes", "status"),
    ("create", "events.k8s.io", "events", ""),
)
"""The agent's necessary permissions, as given by deploy/rbac.yaml."""


def find_hardware(settings: Settings) -> tuple[Hardware | None, str]:
    """The configured source of GPUs, or why there is none; made before the event loop begins."""
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
    """All observations, with a reason for each missing part."""
    simulated = settings.gpus.simulated_profile is not None
    evidence, evidence_problem, readout, readout_problem = await _observe_hardware(hardware, hardware_problem)
    agent, agent_problem, asked_simulation = await anyio.to_thread.run_sync(lambda: _ask_agent(settings, environ))
    runtime, runtime_problem = await bounded(lambda: _observe_runtime(settings))
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
        asked_simulation=asked_simulation,
        runtime=runtime,
        runtime_problem=runtime_problem,
        api=await observe_api(settings, environ),
        wanted_abilities=list_wanted(settings),
    )
    return await anyio.to_thread.run_sync(lambda: observe_this_host(settings, seen))


async def bounded(look_at: Callable[[], Awaitable[T]]) -> tuple[T | None, str]:
    """The result of a part of the observation, or why it failed."""
    try:
        with anyio.fail_after(PART_SECONDS):
            return await look_at(), ""
    except TimeoutError:
        return None, f"no answer within {PART_SECONDS:g} s"
    except (NodeagentError, OSError) as error:
        return None, str(error)


async def _observe_hardware(
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


async def _observe_runtime(settings: Settings) -> ChosenRuntime | NoRuntime:
    return decide_runtime(await build_detector(settings).read_evidence(), settings.runtime)


def _ask_agent(settings: Settings, environ: Mapping[str, str]) -> tuple[StateRecord | None, str, str]:
    """The agent's state, or why there is none; and the profile, where a simulation answered."""
    try:
        agent = find_agent(settings, environ)
        return agent.read("/api/v1/state", StateRecord), "", agent.simulated
    except CommandFailed as error:
        return None, str(error), ""


async def observe_api(settings: Settings, environ: Mapping[str, str]) -> ApiFacts | None:
    """Whether the API server answers, and this identity's permissions; `None` where Kubernetes is off."""
    section = settings.kubernetes
    if section.enabled == "false":
        return None
    credentials = find_credentials(section.kubeconfig, environ)
    if credentials is None:
        return ApiFacts()
    client = KubeClient(credentials, lambda: ClientSettings(timeout_seconds=section.request_timeout_seconds))
    try:
        denied = [await _ask_permission(client, *permission) for permission in PERMISSIONS]
        version = await _read_version(client)
        node = await _read_node(client, settings.node.name or platform.node()) if not denied[0] else {}
    except KubeError as error:
        return ApiFacts(where=credentials.where, problem=str(error))
    finally:
        await client.aclose()
    return ApiFacts(
        where=credentials.where,
        denied=tuple(what for what in denied if what),
        allocatable=_parse_allocatable(node),
        server_version=version,
        kubelet_version=_parse_kubelet_version(node),
    )


async def _read_version(client: KubeClient) -> str:
    """The API server's version; empty where this identity may not read it."""
    try:
        answer = await client.request("GET", "/version", attempted="read the API server's version")
    except (ApiForbidden, ApiNotFound):
        return ""
    return str(answer.get("gitVersion", ""))


async def _read_node(client: KubeClient, node_name: str) -> Json:
    """The status of the node object; empty where the node object does not exist yet."""
    try:
        node = await client.request("GET", f"/api/v1/nodes/{quote(node_name, safe='')}", attempted="read the node")
    except ApiNotFound:
        return {}
    status = node.get("status")
    return status if isinstance(status, dict) else {}


def _parse_allocatable(status: Json) -> dict[str, int]:
    allocatable = status.get("allocatable")
    found = allocatable.items() if isinstance(allocatable, dict) else ()
    return {str(name): int(text) for name, text in found if "/" in str(name) and str(text).isdigit()}


def _parse_kubelet_version(status: Json) -> str:
    info = status.get("nodeInfo")
    return str(info.get("kubeletVersion", "")) if isinstance(info, dict) else ""


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
