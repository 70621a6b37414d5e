"""What those who change GPUs need of the component that they are parts of: what is seen, and who is told."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from nodeagent.components.mig.carry import End
from nodeagent.components.mig.wish import Wish
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.mig import GpuChange

V = TypeVar("V")


class Around(Protocol):
    """The component, as its parts see it."""

    def read(self, state: type[V]) -> V | None:
        """The newest of a state, if anybody has told of it."""

    def find_gpu(self, uuid: GpuUuid) -> Gpu:
        """The GPU as seen now.

        Raises:
            ControlRefused: it is not on this node any more.
        """

    def show(self, change: GpuChange, *, is_over: bool = False) -> None:
        """Tell everybody how far a GPU is; over, its devices are offered as they are."""

    def tell_end(self, gpu: Gpu, end: End, *, layout: str = "", device: str = "") -> None:
        """Tell everybody how a change for a layout or of a single device ended, and have the GPU looked at anew."""

    def tell_stale(self, gpu: Gpu) -> None:
        """Somebody else has cut the GPU since it was seen: have it looked at anew."""

    def set_condition(self, code: str, gpu: GpuUuid, detail: str) -> None:
        """Say of a GPU that it is so."""

    def clear_condition(self, code: str, gpu: GpuUuid) -> None:
        """It is no longer so."""

    async def wait_until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Whether it is so before the time is up; looked at whenever a state changes that GPUs are judged by."""

    async def wait_news(self, seconds: float | None = None) -> None:
        """Return when anything has changed that a layout is judged by, or after so long."""

    def is_wished(self, wish: Wish) -> bool:
        """Whether this is still what is asked for."""
