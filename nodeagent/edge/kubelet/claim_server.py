"""The kubelet's calls about claims, translated for the claim driver.

Owns the translation between the versions of the interface and the model, and the rhythm of health reports: without a
fresh report the kubelet takes health for unknown.
Decides nothing: the devices of a claim, and the reason for a refusal, are up to the driver.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Final, TypeVar

from anyio import move_on_after

from nodeagent.edge.grpc.calls import Methods, Replies, Streaming, Unary
from nodeagent.edge.kubelet.call_times import Call, CallTimes, Outcome
from nodeagent.edge.kubelet.proto import dra_health_pb2, dra_v1_pb2, dra_v1beta1_pb2
from nodeagent.model.claims import ClaimReference, DeviceHealth
from nodeagent.model.ports import ClaimDriver

T = TypeVar("T")

PLUGIN_TYPE: Final = "DRAPlugin"
SERVICES: Final = {"v1": dra_v1_pb2, "v1beta1": dra_v1beta1_pb2}
HEALTH_SERVICES: Final = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""The same messages under two names: kubelets up to 1.36 ask for the second alone, from 1.40 for the first alone."""
VERSIONS: Final = (*(f"{version}.DRAPlugin" for version in SERVICES), *HEALTH_SERVICES)
"""The services reported to the kubelet, the newest first: the kubelet takes the first known service."""
HEALTH_SECONDS: Final = 10.0
"""Pause between two health reports without a change."""
HEALTH_TIMEOUT_SECONDS: Final = 30
"""The age at which the kubelet takes the last report for out of date."""
_HEALTH: Final = {
    None: dra_health_pb2.UNKNOWN,
    True: dra_health_pb2.HEALTHY,
    False: dra_health_pb2.UNHEALTHY,
}


class ClaimServer:
    """The servicer for claims."""

    def __init__(self, driver: ClaimDriver, name: str, times: CallTimes | None = None) -> None:
        self._driver, self._name = driver, name
        self._times = CallTimes() if times is None else times

    def methods(self) -> Methods:
        """The methods for a gRPC server."""
        served: dict[str, Unary | Streaming] = {
            f"/{service}/NodeWatchResources": Streaming(dra_health_pb2.NodeWatchResourcesRequest, self._watch_health)
            for service in HEALTH_SERVICES
        }
        for version, wire in SERVICES.items():
            service = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
            served[f"{service}/NodePrepareResources"] = Unary(
                wire.NodePrepareResourcesRequest, partial(self._prepare, wire)
            )
            served[f"{service}/NodeUnprepareResources"] = Unary(
                wire.NodeUnprepareResourcesRequest, partial(self._unprepare, wire)
            )
        return served

    async def _prepare(self, wire: ModuleType, request: Any) -> Any:
        """Answer a version's call to prepare."""
        answers = await self._time(
            "NodePrepareResources", self._driver.prepare(read_claims(request)), lambda each: isinstance(each, str)
        )
        response = wire.NodePrepareResourcesResponse()
        for uid, answer in answers.items():
            entry = response.claims[uid]
            if isinstance(answer, str):
                entry.error = answer
                continue
            for device in answer:
                line = entry.devices.add(
                    request_names=device.requests,
                    pool_name=device.pool,
                    device_name=device.device,
                    cdi_device_ids=device.cdi_names,
                )
                if device.share_id and "share_id" in line.DESCRIPTOR.fields_by_name:
                    line.share_id = device.share_id
        return response

    async def _unprepare(self, wire: ModuleType, request: Any) -> Any:
        """Answer a version's call to unprepare."""
        response = wire.NodeUnprepareResourcesResponse()
        answers = await self._time("NodeUnprepareResources", self._driver.unprepare(read_claims(request)), bool)
        for uid, error in answers.items():
            response.claims[uid].error = error
        return response

    async def _time(
        self, method: str, asked: Awaitable[Mapping[str, T]], is_refusal: Callable[[T], bool]
    ) -> Mapping[str, T]:
        """The driver's answer, timed."""
        began = time.perf_counter()
        outcome: Outcome = "failed"
        try:
            answers = await asked
            outcome = "refused" if any(map(is_refusal, answers.values())) else "ok"
            return answers
        finally:
            self._times.observe(Call(method, self._name, outcome), time.perf_counter() - began)

    async def _watch_health(self, _request: dra_health_pb2.NodeWatchResourcesRequest, replies: Replies) -> None:
        known: tuple[DeviceHealth, ...] | None = None
        while True:
            with move_on_after(HEALTH_SECONDS):
                known = await self._driver.wait_health(known)
            if known:
                await replies.send(render_health(known, time.time()))


def read_claims(request: Any) -> tuple[ClaimReference, ...]:
    """The claims of a call, in the call's order."""
    return tuple(ClaimReference(namespace=one.namespace, name=one.name, uid=one.uid) for one in request.claims)


def render_health(devices: Sequence[DeviceHealth], now_seconds: float) -> dra_health_pb2.NodeWatchResourcesResponse:
    """The message for the whole list."""
    response = dra_health_pb2.NodeWatchResourcesResponse()
    for device in devices:
        response.devices.add(
            device=dra_health_pb2.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
            health=_HEALTH[device.is_healthy],
            last_updated_time=int(now_seconds),
            health_check_timeout_seconds=HEALTH_TIMEOUT_SECONDS,
            message=device.message,
        )
    return response
