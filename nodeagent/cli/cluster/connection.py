"""The way of the cluster commands to the API server: the flags, the settings, or what kubectl would use."""

import argparse
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

import anyio

from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed
from nodeagent.config.schema import Settings
from nodeagent.core.clock import SystemClock
from nodeagent.edge.kube.client import ClientSettings, KubeClient
from nodeagent.edge.kube.credentials import Credentials, InClusterCredentials, find_credentials
from nodeagent.edge.kube.errors import ApiForbidden, KubeError
from nodeagent.edge.kube.readiness.cluster import ClusterApi

_KUBECONFIG: Final = "KUBECONFIG"


def find_cluster(arguments: argparse.Namespace, settings: Settings, environ: Mapping[str, str]) -> Credentials:
    """The credentials of the flag, the settings, the pod, or of kubectl's usual file.

    Raises:
        CommandFailed: there are none.
    """
    named = Path(arguments.kubeconfig) if arguments.kubeconfig else settings.kubernetes.kubeconfig
    usual = Path(environ.get(_KUBECONFIG) or Path(environ.get("HOME") or "/") / ".kube" / "config")
    found = find_credentials(named, environ) or (find_credentials(usual, environ) if usual.exists() else None)
    if found is None:
        raise CommandFailed(
            f"cannot reach the cluster: there is neither a pod's service account nor {usual}: set --kubeconfig",
            ExitCode.BAD_INPUT,
        )
    return found


def describe_error(error: KubeError) -> str:
    """The error with the remedy for these commands: an agent's own rights are not enough."""
    if not isinstance(error, ApiForbidden):
        return str(error)
    return (
        f"cannot {error.attempted}: the API server answered {error.status}: {error.message}:"
        " use an account with the rights in deploy/rbac-cluster-status.yaml"
    )


@asynccontextmanager
async def open_cluster(
    arguments: argparse.Namespace, settings: Settings, credentials: Credentials
) -> AsyncIterator[ClusterApi]:
    """The cluster's agents; without a namespace by flag or setting, a pod means its own and a person means all."""
    section = settings.kubernetes
    limits = ClientSettings(section.request_timeout_seconds, section.requests_per_second, section.request_burst)
    client = KubeClient(credentials, lambda: limits)
    try:
        namespace = arguments.namespace or section.namespace or ""
        if not namespace and isinstance(credentials, InClusterCredentials):
            namespace = await client.read_namespace()
        spread = Random()  # noqa: S311 - spreads load, keeps no secret
        yield ClusterApi(client, namespace, SystemClock(), spread, silence_seconds=section.watch_silence_seconds)
    finally:
        with anyio.move_on_after(1, shield=True):
            await client.aclose()
