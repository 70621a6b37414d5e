"""Pods that come and go as on a busy cluster: names, sizes and lengths are a pure plan for the script.

The script acts as the scheduler too: a pod stays pending until the node has room for the pod's request.
"""

from collections.abc import Collection, Iterator, Mapping
from random import Random
from typing import Final

from anyio import create_task_group, sleep

from nodeagent.model.values import Value
from nodeagent_sim.kubelet.kubelet import KubeletDown, StandInKubelet
from nodeagent_sim.kubelet.pods import AdmissionRefused, ContainerStartFailed

RETRY_SECONDS: Final = 5.0
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"

_WORKLOADS: Final = (
    ("ml-research", "llm-finetune", (4, 8), (60.0, 240.0)),
    ("ml-research", "vit-pretrain", (2, 4), (60.0, 180.0)),
    ("nlp", "reranker-train", (1, 2), (40.0, 120.0)),
    ("inference", "triton-server", (1,), (90.0, 300.0)),
    ("inference", "vllm-chat", (1, 2), (90.0, 300.0)),
    ("vision", "video-transcode", (1,), (15.0, 60.0)),
    ("notebooks", "jupyter", (1,), (30.0, 120.0)),
    ("recsys", "embedding-batch", (1, 2), (20.0, 90.0)),
)

CORES: Final = "/vcuda-core"
MEMORY: Final = "/vcuda-memory"
"""Suffixes of the two resources for fractions of GPUs."""
_SHARE: Final = "::"
"""Separator of a device and the number of the replica, in NVIDIA's ids and in ours."""
_CORES: Final = (10, 20, 25, 30, 50, 100)
_BLOCKS: Final = (8, 16, 32, 64)


class PodPlan(Value, frozen=True):
    """One pod of the script."""

    namespace: str
    name: str
    devices: int
    pick: float
    """Choice among the node's resources, from 0 to 1 through all devices of the resources."""
    pause_seconds: float
    """Pause before the pod's creation."""
    run_seconds: float


def plan_pods(seed: int, lane: int) -> Iterator[PodPlan]:
    """The endless sequence of pods of one lane; the same for the same seed and lane."""
    random, picks = Random(f"{seed}/{lane}"), Random(f"{seed}/{lane}/pick")  # noqa: S311  plausible, not secret
    while True:
        namespace, workload, sizes, (shortest, longest) = random.choice(_WORKLOADS)
        yield PodPlan(
            namespace=namespace,
            name=f"{workload}-{_plan_suffix(random, 9)}-{_plan_suffix(random, 5)}",
            devices=random.choice(sizes),
            pick=picks.random(),
            pause_seconds=random.uniform(0.0, 4.0),
            run_seconds=random.uniform(shortest, longest),
        )


def choose_resource(offered: Mapping[str, Collection[str]], pick: float) -> str | None:
    """The resource of the device at a place among all devices of the node; `None` on a node without devices.

    `offered` has the ids of each resource.
    """
    weights = {resource: _count_devices(resource, ids) for resource, ids in sorted(offered.items())}
    left = pick * sum(weights.values())
    for resource, weight in weights.items():
        if left < weight:
            return resource
        left -= weight
    return None


def _count_devices(resource: str, ids: Collection[str]) -> float:
    """A device in fractions or replicas weighs as much as a whole device: by ids alone, few pods would get others."""
    if resource.endswith(MEMORY):
        return 0.0
    return len(ids) / 100 if resource.endswith(CORES) else float(len({each.partition(_SHARE)[0] for each in ids}))


def choose_cores(pick: float) -> int:
    """The hundredths of a GPU that a pod asks for."""
    return _CORES[int(pick * 1000) % len(_CORES)]


def plan_request(plan: PodPlan, resource: str, size: int) -> dict[str, int]:
    """The pod's whole request: cores with blocks of memory, unless the pod asks for a whole GPU."""
    if not resource.endswith(CORES) or size >= 100:
        return {resource: size}
    return {resource: size, resource.removesuffix(CORES) + MEMORY: _BLOCKS[int(plan.pick * 100) % len(_BLOCKS)]}


def _plan_suffix(random: Random, length: int) -> str:
    return "".join(random.choices(_SUFFIX_LETTERS, k=length))


class PodScript:
    """Keeps up to `lanes` pods on the node, each replaced by another pod after its time."""

    def __init__(
        self,
        kubelet: StandInKubelet,
        *,
        lanes: int,
        resource: str | None = None,
        seed: int = 0,
        time_scale: float = 1.0,
    ) -> None:
        """`resource` is the resource of all pods; without a value each pod chooses among the node's resources."""
        self._kubelet, self._lanes, self._resource, self._seed = kubelet, lanes, resource, seed
        self._time_scale = time_scale
        self.pending: set[str] = set()
        """Pods without room on the node, by `namespace/name`."""
        self.refused = 0
        """Number of pods that the kubelet did not admit or could not start."""

    async def run(self) -> None:
        """Run the script until cancelled."""
        async with create_task_group() as tasks:
            for lane in range(self._lanes):
                tasks.start_soon(self._play, lane, name=f"pods of lane {lane}")

    async def _play(self, lane: int) -> None:
        for plan in plan_pods(self._seed, lane):
            await self._sleep(plan.pause_seconds)
            resource, size = await self._wait_room(plan)
            try:
                await self._kubelet.add_pod(plan.namespace, plan.name, plan_request(plan, resource, size))
                await self._sleep(plan.run_seconds)
            except AdmissionRefused:
                self.refused += 1
                await self._sleep(RETRY_SECONDS)
            except ContainerStartFailed:
                self.refused += 1
                await self._retry_start(plan)
            except KubeletDown:
                # The kubelet has died between the check of the node and the binding: the next pod tries again.
                continue
            self._kubelet.delete_pod(plan.namespace, plan.name)

    async def _retry_start(self, plan: PodPlan) -> None:
        """Try to start the containers until they run or the pod's time is over, as the kubelet would."""
        for number in range(1, max(1, int(plan.run_seconds / RETRY_SECONDS)) + 1):
            await self._sleep(RETRY_SECONDS)
            try:
                await self._kubelet.start_containers(plan.namespace, plan.name)
            except (ContainerStartFailed, KubeletDown):
                continue
            await self._sleep(plan.run_seconds - number * RETRY_SECONDS)
            return

    async def _wait_room(self, plan: PodPlan) -> tuple[str, int]:
        """Wait until the node has room; a pod larger than the node is cut down to the node's size."""
        name = f"{plan.namespace}/{plan.name}"
        found: list[tuple[str, int]] = []

        def has_room() -> bool:
            found[:] = self._fit(plan)
            return any(size <= self._kubelet.count_free(resource) for resource, size in found)

        self.pending.add(name)
        await self._kubelet.wait_until(has_room)
        self.pending.discard(name)
        return found[0]

    def _fit(self, plan: PodPlan) -> list[tuple[str, int]]:
        """The pod's present request, empty on a node without the resource; of MIG devices the pod asks for one."""
        offered = {
            name: self._kubelet.list_ids(name) for name, offer in self._kubelet.offers().items() if offer.capacity
        }
        resource = self._resource or choose_resource(offered, plan.pick)
        if resource is None or resource not in offered:
            return []
        if resource.endswith(MEMORY):
            resource = resource.removesuffix(MEMORY) + CORES
        if resource.endswith(CORES):
            return [(resource, choose_cores(plan.pick))]
        return [(resource, 1 if "/mig-" in resource else min(plan.devices, len(offered[resource])))]

    async def _sleep(self, seconds: float) -> None:
        await sleep(seconds * self._time_scale)
