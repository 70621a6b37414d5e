"""Takes back the agent's writes on the node object, and resumes paused clients, where there are credentials.

The API server knows the agent's labels and annotations: exactly these are removed, and no list can miss one.
"""

import platform
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random

import anyio

from nodeagent.app.wiring.mig_paused_clients import STORE
from nodeagent.cli.uninstall.steps import Outcome, Step, read_ledger
from nodeagent.components.cluster.node_requests import parse_taint
from nodeagent.components.mig.request import LayoutRequestUnreadable, decode_remembered
from nodeagent.config.schema import Settings
from nodeagent.core.clock import SystemClock
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.edge.kube.client import ClientSettings, KubeClient
from nodeagent.edge.kube.credentials import find_credentials
from nodeagent.edge.kube.errors import ApiForbidden, ApiNotFound, KubeError
from nodeagent.edge.kube.node import KubeNode
from nodeagent.edge.kube.node_feature import NodeFeatureObject
from nodeagent.edge.kube.slices import KubeSlices
from nodeagent.model.cluster import BRAKE_TAINT, DEPLOY_LABEL, ClusterNode
from nodeagent.model.slices import SlicePool
from nodeagent.rules.paused_clients import MIG_PAUSE, UPGRADE_PAUSE


async def remove_from_cluster(settings: Settings, environ: Mapping[str, str], *, dry: bool) -> list[Outcome]:
    """Remove labels, conditions, annotations and start-up taint; without credentials, report that they stay."""
    name = settings.node.name or platform.node()
    section = settings.kubernetes
    credentials = find_credentials(section.kubeconfig, environ) if section.enabled != "false" else None
    if credentials is None:
        return [Outcome(Step.KEPT, f"labels and condition of node {name}", "no credentials for the API server here")]
    client = KubeClient(credentials, lambda: ClientSettings(timeout_seconds=section.request_timeout_seconds))
    try:
        node = KubeNode(client, name, SystemClock(), Random())  # noqa: S311 - spreads load, keeps no secret
        found = await node.read_node()
        outcomes = [await _take_back(what, act, dry=dry) for what, act in _list_ours(settings, node, found).items()]
        for key, value in (await anyio.to_thread.run_sync(_list_paused, settings, found)).items():
            what = f"label {key}={value} of node {name}"
            outcomes.append(await _take_back(what, partial(node.write_label, key, value), Step.RESTORED, dry=dry))
        outcomes += await _remove_feature(NodeFeatureObject(client, name, section.namespace), name, dry=dry)
        pool = SlicePool(driver=settings.claims.driver, node=name)
        slices = KubeSlices(client, pool, Random())  # noqa: S311 - spreads load, keeps no secret
        return outcomes + await _remove_slices(slices, pool, dry=dry)
    except KubeError as error:
        return [Outcome(Step.FAILED, f"labels and condition of node {name}", str(error))]
    finally:
        await client.aclose()


def _list_ours(settings: Settings, node: KubeNode, found: ClusterNode) -> dict[str, Callable[[], Awaitable[None]]]:
    """The agent's objects on the node, each with the call that removes it."""
    ours: dict[str, Callable[[], Awaitable[None]]] = {}
    if found.owned_labels:
        ours[f"{len(found.owned_labels)} labels of node {found.name}"] = lambda: node.apply_labels(found, {})
    configured = (each for each in found.other_conditions if each.type in found.written_conditions)
    for condition in (*filter(None, [found.condition]), *found.device_conditions, *configured):
        ours[f"condition {condition.type} of node {found.name}"] = partial(node.remove_condition, condition.type)
    for key in found.written_labels:
        # The labels that pause others are not the agent's: the agent has changed only their values, and restores them.
        if key in found.labels and not key.startswith(DEPLOY_LABEL):
            ours[f"label {key} of node {found.name}"] = partial(node.write_label, key, None)
    for key in found.written_annotations:
        ours[f"annotation {key} of node {found.name}"] = partial(node.write_annotation, key, None)
    startup = settings.kubernetes.startup_taint
    for taint in (*([parse_taint(startup)] if startup is not None else []), BRAKE_TAINT):
        if found.has_taint(taint):
            ours[f"taint {taint.key}:{taint.effect} of node {found.name}"] = partial(
                node.change_taint, taint, present=False
            )
    return ours


def _list_paused(settings: Settings, found: ClusterNode) -> Mapping[str, str]:
    """Labels of clients left paused by a killed agent, for a MIG change or an upgrade, with the earlier values."""
    stored = SealedFile(settings.node.state_dir / STORE[0], *STORE[1:]).read()
    try:
        paused = decode_remembered(stored.body).paused if stored.body is not None else {}
    except LayoutRequestUnreadable:
        paused = {}
    upgrades = [one.put_aside.labels for one in read_ledger(settings).upgrades.values() if one.is_open]
    owed = [(MIG_PAUSE, paused), *((UPGRADE_PAUSE, labels) for labels in upgrades)]
    return {
        key: value
        for pause, labels in owed
        for key, value in pause.list_returns(pause.list_paused(labels, found.labels), found.labels).items()
    }


async def _remove_feature(feature: NodeFeatureObject, name: str, *, dry: bool) -> list[Outcome]:
    """Remove the NodeFeature object; no report without an object."""
    what = f"NodeFeature of node {name}"
    try:
        there = bool(await feature.read()) if dry else await feature.remove()
    except ApiForbidden:
        return []
    except KubeError as error:
        return [Outcome(Step.FAILED, what, str(error))]
    return [Outcome(Step.REMOVED, what)] if there else []


async def _remove_slices(slices: KubeSlices, pool: SlicePool, *, dry: bool) -> list[Outcome]:
    """Remove the node's resource slices; an agent without permission to list slices has written none."""
    what = f"slices of {pool.driver} on node {pool.node}"
    try:
        found = await slices.list_slices()
        for one in () if dry else found:
            await slices.delete(one)
    except (ApiForbidden, ApiNotFound):
        return []
    except KubeError as error:
        return [Outcome(Step.FAILED, what, str(error))]
    return [Outcome(Step.REMOVED, what)] if found else []


async def _take_back(what: str, act: Callable[[], Awaitable[None]], step: Step = Step.REMOVED, *, dry: bool) -> Outcome:
    try:
        if not dry:
            await act()
    except KubeError as error:
        return Outcome(Step.FAILED, what, str(error))
    return Outcome(step, what)
