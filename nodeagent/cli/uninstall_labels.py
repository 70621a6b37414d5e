"""Takes back what the agent wrote on this node's object, where there are credentials for it.

The API server knows which labels are the agent's, so naming none of them removes exactly those.
"""

import platform
from collections.abc import Mapping
from random import Random

from nodeagent.cli.uninstall_steps import Outcome, Step
from nodeagent.components.cluster.status import TERMINAL_ANNOTATION
from nodeagent.config.schema import Settings
from nodeagent.edge.kube.client import ClientSettings, KubeClient
from nodeagent.edge.kube.credentials import find_credentials
from nodeagent.edge.kube.errors import KubeError
from nodeagent.edge.kube.node import KubeNode
from nodeagent.kernel.clock import SystemClock


async def remove_labels(settings: Settings, environ: Mapping[str, str], *, dry: bool) -> list[Outcome]:
    """Name no label as ours any more; without credentials, say that they stay."""
    name = settings.node.name or platform.node()
    section = settings.kubernetes
    credentials = find_credentials(section.kubeconfig, environ) if section.enabled != "false" else None
    if credentials is None:
        return [Outcome(Step.KEPT, f"labels of node {name}", "no credentials for the API server here")]
    client = KubeClient(credentials, lambda: ClientSettings(timeout_seconds=section.request_timeout_seconds))
    try:
        node = KubeNode(client, name, SystemClock(), Random())  # noqa: S311 - spreads load, keeps no secret
        found = await node.read_node()
        if not dry:
            await node.apply_labels(found, {})
            if found.condition is not None:
                await node.remove_condition()
            if TERMINAL_ANNOTATION in found.annotations:
                await node.write_annotation(TERMINAL_ANNOTATION, None)
    except KubeError as error:
        return [Outcome(Step.FAILED, f"labels of node {name}", str(error))]
    finally:
        await client.aclose()
    return [Outcome(Step.REMOVED, f"labels of node {name}", "those that the agent wrote, and its node condition")]
