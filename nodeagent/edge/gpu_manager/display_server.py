"""Serves the three calls of `display.GPUDisplay` on a unix socket.

Owns the translation into messages. The answers are the caller's business, and ready before a call.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from google.protobuf.empty_pb2 import Empty

from nodeagent.edge.gpu_manager.proto import display_pb2 as wire
from nodeagent.edge.grpc.calls import CrashReporter, Methods, Unary
from nodeagent.edge.grpc.server import open_grpc_server
from nodeagent.model.display import ContainerStat, Devices

SERVICE = "/display.GPUDisplay"


class DisplayAnswers(NamedTuple):
    """Sources of the answers."""

    graph: Callable[[], str]
    usage: Callable[[], Mapping[str, ContainerStat]]
    version: str


@asynccontextmanager
async def serve_display(path: Path, answers: DisplayAnswers, report_crash: CrashReporter) -> AsyncIterator[None]:
    """Serve at `path` for as long as the block lasts.

    Raises:
        SocketUnavailable: The socket cannot be bound.
    """
    async with open_grpc_server(path, list_methods(answers), report_crash):
        yield


def list_methods(answers: DisplayAnswers) -> Methods:
    """The methods for a gRPC server."""

    async def print_graph(_request: Empty) -> wire.GraphResponse:
        return wire.GraphResponse(graph=answers.graph())

    async def print_usages(_request: Empty) -> wire.UsageResponse:
        return wire.UsageResponse(usage={key: _render_pod(stat) for key, stat in answers.usage().items()})

    async def version(_request: Empty) -> wire.VersionResponse:
        return wire.VersionResponse(version=answers.version)

    return {
        f"{SERVICE}/PrintGraph": Unary(Empty, print_graph),
        f"{SERVICE}/PrintUsages": Unary(Empty, print_usages),
        f"{SERVICE}/Version": Unary(Empty, version),
    }


def _render_pod(pod: ContainerStat) -> wire.ContainerStat:
    return wire.ContainerStat(
        stat={name: _render_devices(devices) for name, devices in pod.stat.items()},
        project=pod.project,
        user=pod.user,
        cluster=pod.cluster,
        spec={name: wire.Spec(gpu=spec.gpu, mem=spec.mem) for name, spec in pod.spec.items()},
    )


def _render_devices(devices: Devices) -> wire.Devices:
    return wire.Devices(
        dev=[
            wire.DeviceInfo(
                id=one.id, card_idx=one.card_idx, gpu=one.gpu, mem=one.mem, pids=one.pids, device_mem=one.device_mem
            )
            for one in devices.dev
        ]
    )
