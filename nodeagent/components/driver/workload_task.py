"""Validates the node by a pod with a GPU at each change of the driver or the offer, where the settings ask for that.

Owns the state `WorkloadResult` and the condition `workload-invalid`. `plan_workload.py` has the meaning of a pod's end.
"""

from contextlib import aclosing

import anyio
from anyio.abc import TaskStatus

from nodeagent.components.driver.plan_workload import choose_resource, has_healthy, judge_late_pod, judge_pod
from nodeagent.config.live import LiveSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.conditions import Conditions
from nodeagent.core.log.lines import get_logger
from nodeagent.edge.kube.own_pod import KubeValidationPod
from nodeagent.model.driver import DriverState, WorkloadResult
from nodeagent.model.errors import NodeagentError
from nodeagent.model.plugin import PluginState

INVALID = "workload-invalid"
AGAIN_SECONDS = 60.0
"""Pause before the next pod after a pod that showed nothing good."""
_REMOVE_SECONDS = 10.0
NO_API = "there is no API server to make a pod at: see kubernetes.enabled and kubernetes.kubeconfig"


class WorkloadValidation:
    """The component; `pods` is `None` without an API server."""

    name = "workload_validation"

    def __init__(self, bus: Bus, conditions: Conditions, live: LiveSettings, pods: KubeValidationPod | None) -> None:
        self._bus, self._conditions, self._live, self._pods = bus, conditions, live, pods
        self._waker = Waker()
        self._log = get_logger(component=self.name)

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Validate, and wait for the next reason; started at once, as the driver may never come."""
        task_status.started()
        if self._pods is None:
            self._conditions.set(INVALID, detail=NO_API)
            return await anyio.sleep_forever()
        states = self._bus.watch_all(DriverState, PluginState, client=self.name)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._waker.follow, states, name="workload validation subject")
            while True:
                await self._validate_once(self._pods)

    async def _validate_once(self, pods: KubeValidationPod) -> None:
        subject = self._find_subject()
        if subject is None:
            self._bus.retract_state(WorkloadResult, source=self.name)
            self._conditions.clear(INVALID)
            await self._waker.wait()
            return
        if not has_healthy(self._bus.read(PluginState), subject[1]):
            # The kubelet hears of a driver that is back some moments after this component.
            await self._waker.wait()
            return
        result = await self._try(pods, subject[1])
        if subject != self._find_subject():
            return
        self._tell(result)
        limit = None if result.passed else AGAIN_SECONDS
        with anyio.move_on_after(limit):
            while self._find_subject() == subject:
                await self._waker.wait()
            self._bus.retract_state(WorkloadResult, source=self.name)

    def _find_subject(self) -> tuple[str, str] | None:
        """The driver and the resource to validate; `None` while one of both is missing."""
        driver, resource = self._bus.read(DriverState), choose_resource(self._bus.read(PluginState))
        if driver is None or not driver.ready or not resource:
            return None
        return driver.driver_version, resource

    async def _try(self, pods: KubeValidationPod, resource: str) -> WorkloadResult:
        limit_seconds = self._live.now.driver.workload_validation_seconds
        seen = None
        try:
            with anyio.move_on_after(limit_seconds):
                await pods.remove()
                await pods.create(resource, limit_seconds)
                async with aclosing(pods.follow()) as states:
                    async for seen in states:
                        if (result := judge_pod(seen)) is not None:
                            return result
        except NodeagentError as error:
            return WorkloadResult(passed=False, detail=str(error))
        finally:
            await self._remove(pods)
        return judge_late_pod(seen, limit_seconds)

    async def _remove(self, pods: KubeValidationPod) -> None:
        """Remove the pod at the end of each try, also of a cancelled one."""
        with anyio.move_on_after(_REMOVE_SECONDS, shield=True):
            try:
                await pods.remove()
            except NodeagentError as error:
                self._log.warning("validation_pod_not_removed", reason=str(error))

    def _tell(self, result: WorkloadResult) -> None:
        self._bus.publish_state(result, source=self.name)
        if result.passed:
            self._log.info("workload_validated")
        else:
            self._log.warning("workload_not_validated", is_busy=result.is_busy, reason=result.detail)
        # A full node is no fault: it is validated once a GPU is free.
        self._conditions.show(INVALID, "" if result.passed or result.is_busy else result.detail)
