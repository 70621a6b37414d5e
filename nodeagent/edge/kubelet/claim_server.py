"""The kubelet's calls about claims, translated for the claim driver.

Owns the translation between the versions of the interface and the model, and the rhythm of health reports: without a
fresh report the kubelet takes health for unknown.
Decides nothing: the devices of a claim, and the reason for a refusal, are up to the driver.
"""

import time
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from anyio import move_on_after

from nodeagent.edge.grpc.calls import Methods, Replies, Streaming, Unary
from nodeagent.edge.kubelet.call_times import Call, CallTimes, Outcome
from nodeagent.edge.kubelet.proto import dra_health_pb2, dra_v1_pb2, dra_v1beta1_pb2
from nodeagent.model.claims import ClaimReference, DeviceAnswer, DeviceHealth
from nodeagent.model.ports import ClaimDriver

PLUGIN_TYPE: Final = "DRAPlugin"
SERVICES: Final = {"v1": dra_v1_pb2, "v1beta1": dra_v1beta1_pb2}
HEALTH_SERVICE: Final = "v1alpha1.DRAResourceHealth"
VERSIONS: Final = (*(f"{version}.DRAPlugin" for version in SERVICES), HEALTH_SERVICE)
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
            f"/{HEALTH_SERVICE}/NodeWatchResources": Streaming(
                dra_health_pb2.NodeWatchResourcesRequest, self._watch_health
            )
        }
        for version, wire in SERVICES.items():
            service = f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"
            served[f"{service}/NodePrepareResources"] = Unary(
                wire.NodePrepareResourcesRequest, _Prepare(self, wire).answer
            )
            served[f"{service}/NodeUnprepareResources"] = Unary(
                wire.NodeUnprepareResourcesRequest, _Unprepare(self, wire).answer
            )
        return served

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, tuple[DeviceAnswer, ...] | str]:
        """Ask the driver, and time the answer."""
        began = time.perf_counter()
        outcome: Outcome = "failed"
        try:
            answers = await self._driver.prepare(claims)
            outcome = "refused" if any(isinstance(each, str) for each in answers.values()) else "ok"
            return answers
        finally:
            self._note("NodePrepareResources", outcome, began)

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, str]:
        """Ask the driver, and time the answer."""
        began = time.perf_counter()
        outcome: Outcome = "failed"
        try:
            answers = await self._driver.unprepare(claims)
            outcome = "refused" if any(answers.values()) else "ok"
            return answers
        finally:
            self._note("NodeUnprepareResources", outcome, began)

    def _note(self, method: str, outcome: Outcome, began: float) -> None:
        self._times.observe(Call(method, self._name, outcome), time.perf_counter() - began)

    async def _watch_health(self, _request: dra_health_pb2.NodeWatchResourcesRequest, replies: Replies) -> None:
        known: tuple[DeviceHealth, ...] | None = None
        while True:
            with move_on_after(HEALTH_SECONDS):
                known = await self._driver.wait_health(known)
            if known:
                await replies.send(render_health(known, time.time()))


class _Prepare:
    """Answers a version's calls to prepare."""

    def __init__(self, server: ClaimServer, wire: ModuleType) -> None:
        self._server, self._wire = server, wire

    async def answer(self, request: Any) -> Any:
        answers = await self._server.prepare(read_claims(request))
        response = self._wire.NodePrepareResourcesResponse()
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


class _Unprepare:
    """Answers a version's calls to unprepare."""

    def __init__(self, server: ClaimServer, wire: ModuleType) -> None:
        self._server, self._wire = server, wire

    async def answer(self, request: Any) -> Any:
        response = self._wire.NodeUnprepareResourcesResponse()
        for uid, error in (await self._server.unprepare(read_claims(request))).items():
            response.claims[uid].error = error
        return response


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
