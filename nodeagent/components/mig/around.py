"""What writers of GPU changes need of the MIG component: states to read, and reports to make."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from nodeagent.components.mig.carry import End
from nodeagent.components.mig.request import Wish
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mig import GpuChange

V = TypeVar("V")


class Around(Protocol):
    """The component, as seen by its helpers."""

    def read(self, state: type[V]) -> V | None:
        """The newest value of a state, once published."""

    def find_gpu(self, uuid: GpuUuid) -> Gpu:
        """The GPU as seen now.

        Raises:
            ControlRefused: The GPU is not on this node any more.
        """

    def show(self, change: GpuChange, *, is_over: bool = False) -> None:
        """Publish the progress of a GPU's change; once over, the GPU's devices are offered as they are."""

    def tell_end(self, gpu: Gpu, end: End, *, layout: str = "", device: str = "") -> None:
        """Publish the end of a change for a layout or of a single device, and have the GPU polled anew."""

    def tell_stale(self, gpu: Gpu) -> None:
        """The GPU was cut by another program since the last poll: have the GPU polled anew."""

    def set_condition(self, code: str, gpu: GpuUuid, detail: str) -> None:
        """Set a condition of a GPU."""

    def clear_condition(self, code: str, gpu: GpuUuid) -> None:
        """Clear a condition of a GPU."""

    async def wait_until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Whether the condition comes true in time; checked at each change of a state by which GPUs are judged."""

    async def wait_news(self, seconds: float | None = None) -> None:
        """Return when a state by which layouts are judged has changed, or after so many seconds."""

    def is_wished(self, wish: Wish) -> bool:
        """Whether the request is still in force."""
