"""`fractions`: fractions of GPUs, under resource names in use by clusters already."""

from pathlib import Path
from typing import Literal, TypeAlias

from nodeagent.config.compound import ListOf
from nodeagent.config.kinds import AbsolutePath, Address, Flag, ListenAddress, Maybe, Number, OneOf, Text, Whole
from nodeagent.config.knobs import Section, knob

ProfileName: TypeAlias = Literal["tencent", "hami"]
EnforcementName: TypeAlias = Literal["advise", "library", "mps"]

_LABEL = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
QUALIFIED = Text(
    "a qualified name such as tencent.com/vcuda-core", rf"{_LABEL}/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", 63
)
PROCESS = Text("a process's name such as nv-hostengine", r"[^\s/]+", 64)
PREFIX = Text("the beginning of a qualified name", rf"{_LABEL}/[A-Za-z0-9]([A-Za-z0-9_.-]*)", 60)


class FractionsSettings(Section):
    """Fractions of GPUs: the resource names for pods, and the enforcement of limits."""

    enabled: bool = knob(
        Flag(),
        default=False,
        what="give out GPUs behind the door `fractions` in fractions; `doors.rules` chooses the GPUs",
        why="a GPU is given whole unless somebody asks for another way",
    )
    profile: ProfileName = knob(
        OneOf[ProfileName](("tencent", "hami")),
        "tencent",
        "by which names parts are asked for: tencent counts hundredths of a GPU and blocks of memory, hami counts"
        " shares and reads from the pod how large each is (needs the API server)",
        "with the resource a pod's request is complete",
    )
    core_resource: str = knob(
        QUALIFIED,
        "tencent.com/vcuda-core",
        "resource that counts hundredths of a GPU (tencent)",
        "pods ask for this resource",
    )
    memory_resource: str = knob(
        QUALIFIED,
        "tencent.com/vcuda-memory",
        "resource that counts blocks of memory (tencent)",
        "pods ask for this resource",
    )
    block_mib: int = knob(Whole(1, 65536), 256, "MiB of memory in one block (tencent)", "as in Tencent's gpu-manager")
    core_limit_annotation: str = knob(
        QUALIFIED,
        "tencent.com/vcuda-core-limit",
        "the annotation by which a pod may use more compute than its fraction while no other pod"
        " uses the GPU (tencent)",
        "pods have this annotation already",
    )
    predicate_annotation: str = knob(
        PREFIX,
        "tencent.com/predicate-gpu-idx-",
        "the annotation of a scheduler's choice of GPUs, followed by the container's number (tencent)",
        "gpu-admission writes this annotation",
    )
    share_resource: str = knob(
        QUALIFIED,
        "nvidia.com/gpu",
        "the resource that counts GPU fractions by container (profile hami)",
        "pods of HAMi ask for this resource",
    )
    shares_per_gpu: int = knob(Whole(1, 1024), 10, "shares of one GPU at most (hami)", "as in HAMi")
    memory_overcommit_ratio: float = knob(
        Number(1.0, 10.0),
        1.0,
        "how much memory is promised for each byte that there is; more than 1 promises more than there is",
        "memory promised twice ends in an out-of-memory error of some container",
    )
    enforcement: EnforcementName = knob(
        OneOf[EnforcementName](("advise", "library", "mps")),
        "advise",
        "how a container is held to its fraction: advise only passes the limits on, library puts"
        " the vGPU library into the container, mps has the container work through an MPS daemon of"
        " the GPU, which limits each process",
        "neither has been measured on real hardware yet; mps waits for a restart where it comes for the first time",
        reload=True,
        makes_part="mps".__eq__,
    )
    enforcement_annotation: str = knob(
        QUALIFIED,
        "nodeagent.io/gpu-enforcement",
        "annotation by which a pod chooses another enforcement for itself: advise, library, or mps where"
        " the agent looks after MPS daemons",
        "a single program that fails with the library is no reason to switch the library off for all pods",
        reload=True,
    )
    allow_advise: bool = knob(
        Flag(),
        default=False,
        what="let that annotation choose advise where `fractions.enforcement` is another: the pod is held to nothing",
        why="the author of a pod could lift the pod's limits, and take compute and memory promised to other pods",
        reload=True,
    )
    usage_listen: Address | None = knob(
        Maybe(ListenAddress()),
        None,
        "address and port at which use is told as by Tencent's gpu-manager: /usage, /graph, /version and /metric;"
        " and at /metrics under the metric names of HAMi's monitor",
        "only programs that ask gpu-manager or HAMi today need the address",
    )
    usage_socket: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "unix socket at which the same is told over gRPC; gpu-manager's is /var/run/gpu-manager.sock",
        "as for `fractions.usage_listen`",
    )
    limit_compute: bool = knob(
        Flag(),
        default=False,
        what="have the vGPU library hold containers to their part of compute too; MPS always does",
        why="memory is what programs fail by; how compute is limited has not been measured on real hardware yet",
        reload=True,
    )
    kill_over_memory: bool = knob(
        Flag(),
        default=False,
        what="end the largest process of a container that uses more of a GPU's memory than its part by the driver's"
        " count, in two measurements",
        why="with the library nothing gets so far, and without it a container is only told of",
        reload=True,
    )
    ignored_processes: tuple[str, ...] = knob(
        ListOf(PROCESS),
        ("nvidia-cuda-mps-server", "nv-hostengine", "dcgm-exporter", "Xorg"),
        "names of processes of the host that may use GPUs given in parts beside everybody; what any other program uses"
        " that was given nothing is nobody's to promise, and no container gets such a GPU alone",
        "these programs serve all pods, or take next to no memory",
        reload=True,
    )
    context_mib: int = knob(
        Whole(0, 65536),
        0,
        "MiB of GPU memory that each CUDA context takes by itself, counted as the container's where the library holds"
        " it; what `nvidia-smi` shows for a program that has only called cuInit and cuCtxCreate; 0 for what the"
        " library measures of each process's first one, by NVML",
        "it differs by model and driver, and is measured where the container has NVML",
        reload=True,
    )
    publish: bool = knob(
        Flag(),
        default=True,
        what="publish the node's GPUs and the fractions of each pod in annotations of the node, for"
        " the scheduler's extender",
        why="without it a scheduler knows how many cores are free, and not on how many GPUs",
        reload=True,
    )
    use_scheduler_choice: bool = knob(
        Flag(),
        default=True,
        what="obey the GPUs that a scheduler has chosen in the pod's annotations, where that is possible",
        why="a scheduler that knows the cluster chose them for a reason",
        reload=True,
    )
    correct_choice: bool = knob(
        Flag(),
        default=True,
        what="write on a pod which GPUs it has where a scheduler's choice could not be obeyed; needs the right to"
        " change pods, deploy/rbac-fractions.yaml",
        why="the scheduler would count the pod's fractions on other GPUs than the pod's own",
        reload=True,
    )
