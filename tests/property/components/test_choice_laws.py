"""A correction says what is bound, and having said it there is nothing left to correct."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.components.fractions.bind import plan_correction
from nodeagent.config.sections.fractions import ProfileName
from nodeagent.model.fractions import ContainerRequest, PodRequest
from nodeagent.rules.fractions.choices import read_scheduler_choice
from tests.support.fractions import make_bound, make_parted, make_pod, make_view, part
from tests.support.gpus import gpu_uuid

GPUS = 4
VIEWS = {name: make_view(make_parted(GPUS), profile=name) for name in ("tencent", "hami")}
sets_of_gpus = st.lists(st.integers(0, GPUS - 1), min_size=1, max_size=3, unique=True)
written = st.one_of(st.none(), sets_of_gpus, st.just([9]))
"""What a scheduler wrote for a container: nothing, GPUs, or one that the node does not have."""


def write_choice(profile: str, chosen: list[list[int] | None], inits: int) -> dict[str, str]:
    """By indexes for Tencent's names, by UUIDs for HAMi's."""
    if profile == "hami":
        devices = ["".join(f"{gpu_uuid(gpu)},NVIDIA,1024,10:" for gpu in gpus or ()) for gpus in chosen]
        return {"hami.io/vgpu-devices-allocated": "".join(f"{each};" for each in devices)}
    return {
        f"tencent.com/predicate-gpu-idx-{number - inits}": ",".join(map(str, gpus))
        for number, gpus in enumerate(chosen)
        if gpus is not None and number >= inits
    }


@given(
    profile=st.sampled_from(["tencent", "hami"]),
    chosen=st.lists(written, min_size=1, max_size=3),
    bound=st.lists(sets_of_gpus, min_size=3, max_size=3),
    inits=st.integers(0, 1),
)
def test_after_corrections_pods_say_what_is_bound(
    profile: ProfileName, chosen: list[list[int] | None], bound: list[list[int]], inits: int
) -> None:
    """Container after container, whatever each said; what the pod says of others, and beside it, stays."""
    view = VIEWS[profile]
    containers = tuple(ContainerRequest(name=f"c{n}", is_init=n < inits) for n in range(len(chosen)))
    pod = PodRequest(
        pod=make_pod(), annotations={"other": "x", **write_choice(profile, chosen, inits)}, containers=containers
    )

    def read(number: int, pod: PodRequest) -> tuple[set[str], str]:
        request = read_scheduler_choice(
            view.profile, pod.annotations, view.inventory.gpus, container=number, init_containers=inits
        )
        return set(request.gpus), request.problem

    for number, container in enumerate(containers):
        has = {gpu_uuid(gpu) for gpu in bound[number]}
        binding = replace(
            make_bound(number + 1, (), *(part(gpu, 10, 1) for gpu in bound[number])), container=container.name
        )
        said, problem = read(number, pod)
        rest = [read(other, pod) for other in range(len(chosen)) if other != number]
        correction = plan_correction(view, pod, binding)
        assert (correction is None) == ((not said and not problem) or said == has)
        if correction is not None:
            pod = replace(pod, annotations={**pod.annotations, **correction.annotations})
            assert read(number, pod) == (has, "")
            assert [read(other, pod) for other in range(len(chosen)) if other != number] == rest
            assert plan_correction(view, pod, binding) is None
        assert pod.annotations["other"] == "x"
