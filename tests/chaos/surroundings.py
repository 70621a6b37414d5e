"""The neighbours of a node that come and go without it: an API server, and a container runtime at its socket."""

from contextlib import AsyncExitStack
from pathlib import Path

from tests.fakes.apiserver import NODE, FakeApiServer
from tests.fakes.cri import FakeCri

READY = "nvidia.com/GPUReady"
HEALTHY_COUNT = "nvidia.com/gpu.healthy.count"


class Surroundings:
    """Both, running from `start` to `stop`."""

    def __init__(self, directory: Path) -> None:
        self.api = FakeApiServer()
        self.runtime_socket = directory / "containerd.sock"
        self.kubeconfig = directory / "kubeconfig"
        self._runtime: AsyncExitStack | None = None
        self._cri = FakeCri(config={"enableCDI": True})
        self._is_api_up = False

    async def start(self) -> None:
        """Bring back whatever is away; nothing is refused or hangs any more."""
        self.api.answers.clear()
        await self.start_api()
        await self.start_runtime()

    async def stop(self) -> None:
        await self.stop_api()
        await self.stop_runtime()

    async def start_api(self) -> None:
        if not self._is_api_up:
            await self.api.start()
            self.api.write_kubeconfig(self.kubeconfig)
            self._is_api_up = True

    async def stop_api(self) -> None:
        """Connections are cut, and new ones refused; the node object stays as it is."""
        if self._is_api_up:
            await self.api.stop()
            self._is_api_up = False

    @property
    def has_runtime(self) -> bool:
        """Whether the container runtime can be asked."""
        return self._runtime is not None

    async def start_runtime(self) -> None:
        if self._runtime is None:
            self._runtime = AsyncExitStack()
            await self._runtime.enter_async_context(self._cri.serving(self.runtime_socket))

    async def stop_runtime(self) -> None:
        if self._runtime is not None:
            await self._runtime.aclose()
            self._runtime = None

    def show_container(self, uid: str, namespace: str, pod: str) -> None:
        """A container of this pod runs from now on, whether or not anybody can ask the runtime."""
        self._cri.containers[f"{uid}-main"] = {
            "io.kubernetes.pod.uid": uid,
            "io.kubernetes.pod.namespace": namespace,
            "io.kubernetes.pod.name": pod,
            "io.kubernetes.container.name": "main",
        }

    def hide_container(self, uid: str) -> None:
        """It has ended, and was removed."""
        del self._cri.containers[f"{uid}-main"]

    def is_node_told(self, healthy: int) -> bool:
        """Whether the node object says that its GPUs are ready, and how many are fit for work."""
        conditions = {each["type"]: each["status"] for each in self.api.nodes[NODE]["status"]["conditions"]}
        return conditions.get(READY) == "True" and self.api.labels().get(HEALTHY_COUNT) == str(healthy)
