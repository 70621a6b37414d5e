"""The whole stand-in kubelet: its lives, its pods, and its files.

One `StandInKubelet` is one machine's kubelet; the process may die and come back many times while pods go on running.
"""

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final, NamedTuple
from uuid import UUID

from anyio import TASK_STATUS_IGNORED, Event, Lock, create_task_group
from anyio.abc import TaskStatus
from msgspec.structs import replace

from nodeagent.edge.grpc.server import open_grpc_server
from nodeagent_sim.kubelet.checkpoint import parse_checkpoint, render_checkpoint
from nodeagent_sim.kubelet.device_manager import DeviceManager, DeviceRefused, Offer
from nodeagent_sim.kubelet.plugin_client import PluginClient, PluginFailed
from nodeagent_sim.kubelet.pod_resources import PodResourcesService
from nodeagent_sim.kubelet.pods import AdmissionRefused, ContainerSpec, ContainerStartFailed, Pod, PodPhase
from nodeagent_sim.kubelet.pods_service import FIRST_WITH_PODS, PodsService
from nodeagent_sim.kubelet.registration import FIRST_WITH_PATHS, PathRegistry, PluginRegistry
from nodeagent_sim.kubelet.registry_watch import RegistryWatch

CHECKPOINT_NAME: Final = "kubelet_internal_checkpoint"


class KubeletDown(Exception):
    """The kubelet process is down; pods wait."""


class CallTimes(NamedTuple):
    """The plugin's time for one container, as seen by the kubelet."""

    prefer_seconds: float
    allocate_seconds: float


class _Life(NamedTuple):
    """State that dies with the process."""

    manager: DeviceManager
    registry: PluginRegistry


class StandInKubelet:
    """Serves under `root`: `device-plugins`, `plugins_registry` and `pod-resources`, as under /var/lib/kubelet.

    `minor` is the minor version of Kubernetes whose kubelet this is.
    """

    def __init__(
        self,
        root: Path,
        *,
        seed: int = 0,
        minor: int = 37,
        now: Callable[[], float] = time.monotonic,
        dial: Callable[[str, Path], PluginClient] = PluginClient,
    ) -> None:
        self.device_plugins_dir = root / "device-plugins"
        self.plugins_registry_dir = root / "plugins_registry"
        self.pod_resources_socket = root / "pod-resources" / "kubelet.sock"
        self.pods_api_socket = root / "pods-api" / "pods-api.sock"
        self.checkpoint_file = self.device_plugins_dir / CHECKPOINT_NAME
        self.call_times: deque[CallTimes] = deque(maxlen=10_000)
        self._dial, self._now, self.minor = dial, now, minor
        self._make_registry = PathRegistry if minor >= FIRST_WITH_PATHS else PluginRegistry
        self._random = Random(seed)  # noqa: S311  plausible, not secret
        self._pods: dict[tuple[str, str], Pod] = {}
        self._admission = Lock()
        self.ignore_registrations = 0
        """Number of next registrations that are answered and then forgotten."""
        self._life: _Life | None = None
        self._wanted_up = True
        self._change = Event()
        self.pods_service = PodsService(lambda: self.pods, self._wait_change)

    # Life.

    async def run(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Be the kubelet until cancelled; started once the sockets exist."""
        served = [self.pod_resources_socket, *([self.pods_api_socket] if self.minor >= FIRST_WITH_PODS else [])]
        for directory in (self.device_plugins_dir, self.plugins_registry_dir, *(each.parent for each in served)):
            directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        ready = False
        while True:
            async with self._open_life():
                if not ready:
                    task_status.started()
                    ready = True
                await self.wait_until(lambda: not self._wanted_up)
            self._changed()
            await self.wait_until(lambda: self._wanted_up)

    async def stop(self) -> None:
        """End the process; pods keep running, sockets stay in place."""
        self._wanted_up = False
        self._changed()
        await self.wait_until(lambda: self._life is None)

    async def start(self) -> None:
        """Begin a new process, which clears its directory and reads its checkpoint."""
        self._wanted_up = True
        self._changed()
        await self.wait_until(lambda: self._life is not None)

    async def restart(self) -> None:
        """End and begin, without a loss."""
        await self.stop()
        await self.start()

    async def forget(self) -> None:
        """End, lose the checkpoint, begin: pods go on running with devices that the new process thinks are free."""
        await self.stop()
        self.checkpoint_file.unlink(missing_ok=True)
        await self.start()

    @asynccontextmanager
    async def _open_life(self) -> AsyncIterator[None]:
        self._clear_directory()
        manager = DeviceManager(self._random, self._now)
        self._read_checkpoint(manager)
        resources = PodResourcesService(manager, self._pods.values, self._now)
        async with create_task_group() as tasks:
            registry = self._make_registry(
                manager,
                self.device_plugins_dir,
                tasks,
                changed=self._lists_changed,
                wanted=self._wants_registration,
                dial=self._dial,
            )
            async with (
                open_grpc_server(self.pod_resources_socket, resources.methods(), _fail),
                open_grpc_server(self.device_plugins_dir / "kubelet.sock", registry.methods(), _fail),
                self._open_pods_api(),
            ):
                self._life = _Life(manager, registry)
                tasks.start_soon(RegistryWatch(self.plugins_registry_dir, registry).run, name="plugin watcher")
                self._changed()
                try:
                    yield
                finally:
                    self._life = None
                    registry.close()
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def _open_pods_api(self) -> AsyncIterator[None]:
        if self.minor < FIRST_WITH_PODS:
            yield
            return
        async with open_grpc_server(self.pods_api_socket, self.pods_service.methods(), _fail):
            yield

    async def _wait_change(self) -> None:
        await self._change.wait()

    def _clear_directory(self) -> None:
        for path in self.device_plugins_dir.iterdir():
            if path.is_socket():
                path.unlink()

    def drop_plugin(self, resource: str) -> None:
        """Hang up on a resource's plugin without a reason, as the real kubelet does by its defect."""
        if self._life is not None:
            self._life.registry.disconnect(resource)

    def _wants_registration(self) -> bool:
        if not self.ignore_registrations:
            return True
        self.ignore_registrations -= 1
        return False

    # Views.

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All pods bound to this node, failed pods too."""
        return tuple(self._pods.values())

    @property
    def registrations(self) -> tuple[str, ...]:
        """Each registration in this life of the kubelet, by resource, in order."""
        return tuple(self._life.registry.registrations) if self._life else ()

    def offers(self) -> Mapping[str, Offer]:
        """Capacity and allocatable of each resource, as in the node's status."""
        return self._life.manager.offers() if self._life else {}

    def list_ids(self, resource: str) -> tuple[str, ...]:
        """The ids of a resource's devices, healthy or not."""
        return tuple(self._life.manager.devices().get(resource, ())) if self._life else ()

    def count_free(self, resource: str) -> int:
        """The number of devices that a scheduler would think are free."""
        asked = sum(
            max(
                sum(spec.resources.get(resource, 0) for spec in pod.containers if not spec.init),
                max((spec.resources.get(resource, 0) for spec in pod.containers if spec.init), default=0),
            )
            for pod in self._pods.values()
            if pod.active
        )
        offer = self.offers().get(resource)
        return offer.allocatable - asked if offer else 0

    def held_devices(self, namespace: str, name: str) -> frozenset[str]:
        """The pod's devices as the kubelet knows them."""
        pod = self._pods[namespace, name]
        entries = self._life.manager.entries() if self._life else ()
        return frozenset().union(*(entry.ids for entry in entries if entry.pod_uid == pod.uid))

    def holders(self) -> dict[str, Pod]:
        """The pod that holds each device."""
        return {device: pod for pod in self.pods if pod.active for device in self.held_devices(pod.namespace, pod.name)}

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return as soon as the condition holds, checked after each change of plugins, pods or process."""
        while not condition():
            await self._change.wait()

    # Pods.

    async def add_pod(
        self,
        namespace: str,
        name: str,
        resources: Mapping[str, int],
        *,
        init_resources: Mapping[str, int] | None = None,
    ) -> Pod:
        """Admit and start a pod scheduled here, with one container and perhaps an init container.

        Raises:
            AdmissionRefused: The pod is Failed now.
            ContainerStartFailed: The pod was admitted, but a container does not start.
            KubeletDown: The kubelet process is down.
        """
        containers = [ContainerSpec(name="main", resources=dict(resources))]
        if init_resources:
            containers.insert(0, ContainerSpec(name="setup", resources=dict(init_resources), init=True))
        uid = str(UUID(int=self._random.getrandbits(128), version=4))
        pod = Pod(namespace=namespace, name=name, uid=uid, containers=tuple(containers))
        self._require_life()
        self._set_pod(pod)
        async with self._admission:
            try:
                await self._admit(pod)
            except KubeletDown:
                self.delete_pod(namespace, name)
                raise
        await self.start_containers(namespace, name)
        return self._pods[namespace, name]

    def delete_pod(self, namespace: str, name: str) -> None:
        """Delete a pod; its devices are free from the next admission on."""
        del self._pods[namespace, name]
        self._changed()

    async def start_containers(self, namespace: str, name: str) -> None:
        """Start (or restart) the containers of an admitted pod.

        Raises:
            ContainerStartFailed: A plugin objects.
            KubeletDown: The kubelet process is down.
        """
        life, pod = self._require_life(), self._pods[namespace, name]
        for spec in pod.containers:
            for resource in spec.resources:
                entry = life.manager.held(pod.uid, spec.name, resource)
                try:
                    if entry:
                        await life.registry.find(resource).pre_start(sorted(entry.ids))
                except PluginFailed as error:
                    raise ContainerStartFailed(f"{namespace}/{name}", spec.name, str(error)) from error
        self._set_pod(replace(pod, phase=PodPhase.RUNNING))

    async def _admit(self, pod: Pod) -> None:
        life = self._require_life()
        life.manager.release_all_but({other.uid for other in self._pods.values() if other.active})
        reusable: dict[str, set[str]] = {}
        try:
            for spec in pod.containers:
                for resource in self._random.sample(sorted(spec.resources), len(spec.resources)):
                    await self._allocate(life, pod, spec, resource, reusable.setdefault(resource, set()))
        except (DeviceRefused, PluginFailed) as error:
            life.manager.forget_undecided()
            refused = AdmissionRefused(f"{pod.namespace}/{pod.name}", str(error))
            self._set_pod(replace(pod, phase=PodPhase.FAILED, reason=refused.reason, message=str(refused)))
            raise refused from error
        self._write_checkpoint()

    async def _allocate(self, life: _Life, pod: Pod, spec: ContainerSpec, resource: str, reusable: set[str]) -> None:
        if not life.manager.is_device_resource(resource):
            return
        choice = life.manager.begin(pod.uid, spec.name, resource, spec.resources[resource], reusable)
        if choice is None:
            return
        plugin = life.registry.find(resource)
        before = time.perf_counter()
        preferred = await plugin.prefer(choice) if choice.open else ()
        chosen = life.manager.choose(choice, preferred)
        between = time.perf_counter()
        answer = await plugin.allocate(chosen)
        self.call_times.append(CallTimes(between - before, time.perf_counter() - between))
        life.manager.commit(pod.uid, spec.name, resource, chosen, answer.SerializeToString())
        if spec.init:
            reusable.update(chosen)
        else:
            reusable.difference_update(chosen)

    def _require_life(self) -> _Life:
        if self._life is None:
            raise KubeletDown
        return self._life

    def _set_pod(self, pod: Pod) -> None:
        self._pods[pod.namespace, pod.name] = pod
        self._changed()

    def _lists_changed(self) -> None:
        self._write_checkpoint()
        self._changed()

    def _read_checkpoint(self, manager: DeviceManager) -> None:
        if self.checkpoint_file.exists():
            manager.restore(parse_checkpoint(self.checkpoint_file.read_bytes()))

    def _write_checkpoint(self) -> None:
        if self._life is not None:
            draft = self.checkpoint_file.with_name(f".{CHECKPOINT_NAME}")
            draft.write_bytes(render_checkpoint(self._life.manager.checkpoint()))
            draft.rename(self.checkpoint_file)

    def _changed(self) -> None:
        change, self._change = self._change, Event()
        change.set()


def _fail(path: str, error: Exception) -> None:
    """A defect of the stand-in itself ends the stand-in, loudly."""
    raise RuntimeError(f"the stand-in kubelet failed on {path}") from error
