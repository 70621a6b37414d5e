"""One sample of all GPUs: trusted GPUs in one question, suspects alone.

Owns the order, and the way past a GPU that hangs the worker: the GPU is set aside, all others are asked again at once.
Refuses to know the content of a sample.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from nodeagent.edge.nvml.agent.asker import Asker, GpuSilent
from nodeagent.edge.nvml.agent.connection import RequestFailed
from nodeagent.edge.nvml.agent.protocol import SAMPLED, Request, SampleAnswer
from nodeagent.edge.nvml.errors import LOST_CODES
from nodeagent.model.gpu import Gpu
from nodeagent.model.telemetry import GpuSample

_DOING = "sampling"


class Taken(Struct):
    """The samples by index, and the number of library calls."""

    samples: dict[int, GpuSample] = field(default_factory=dict)
    calls: int = 0
    answers: list[SampleAnswer] = field(default_factory=list)


async def sample_gpus(asker: Asker, gpus: Mapping[int, Gpu], *, whole: bool, extras: tuple[str, ...] = ()) -> Taken:
    """Sample the GPUs that are due; `extras` names readings beside the ordinary sample.

    Raises:
        DriverError: No GPU answered.
    """
    return await _Sampling(asker, gpus, whole=whole, extras=extras).run()


class _Sampling:
    def __init__(self, asker: Asker, gpus: Mapping[int, Gpu], *, whole: bool, extras: tuple[str, ...]) -> None:
        self._asker, self._gpus, self._whole, self._extras = asker, gpus, whole, extras
        self._taken = Taken()
        self._silent: GpuSilent | None = None

    async def run(self) -> Taken:
        order = self._asker.plan_order(self._gpus)
        set_aside = await self._sample_together(self._asker.list_awake(order))
        for index in order:
            if index not in self._taken.samples and index not in set_aside:
                await self._sample_alone(index)
        if self._silent is not None and not self._taken.samples:
            raise self._silent.error
        return self._taken

    async def _sample_together(self, indices: list[int]) -> set[int]:
        """The GPUs that were silent; all GPUs where the silent GPU is unknown."""
        set_aside: set[int] = set()
        while len(indices) > 1:
            try:
                answer = await self._asker.ask_together(indices, self._render(indices), SAMPLED, _DOING)
            except RequestFailed as failed:
                self._note_failed(indices, failed)
            except GpuSilent as error:
                if error.index is None:
                    return set_aside
                self._silent = error
                set_aside.add(error.index)
                indices = self._asker.list_awake(indices)  # as the next worker finds them, without the silent one
                continue
            else:
                self._note_answer(indices, answer)
            break
        return set_aside

    async def _sample_alone(self, index: int) -> None:
        try:
            answer = await self._asker.ask(index, self._render([index]), SAMPLED, _DOING)
        except RequestFailed as failed:
            self._note_failed([index], failed)
        except GpuSilent as error:
            self._silent = error
        else:
            self._note_answer([index], answer)

    def _render(self, indices: list[int]) -> Request:
        places = ((index, str(self._gpus[index].pci.address), str(self._gpus[index].uuid)) for index in indices)
        return Request(do="sample", gpus=tuple(places), whole=self._whole, extras=self._extras)

    def _note_answer(self, indices: list[int], answer: SampleAnswer | None) -> None:
        assert answer is not None
        self._taken.samples.update(zip(indices, answer.samples, strict=True))
        self._taken.calls += answer.calls
        self._taken.answers.append(answer)

    def _note_failed(self, indices: list[int], failed: RequestFailed) -> None:
        is_silent = failed.failure.code not in LOST_CODES
        for index in indices:
            self._taken.samples[index] = GpuSample(uuid=self._gpus[index].uuid, lost=str(failed), silent=is_silent)
