"""The GPUs that a node gives out in fractions, published as one annotation of the node object.

Owns the annotation's form, written by the node and read by the scheduler's extender, so that the two cannot disagree:
the reader gets the written account, before any fraction is given.

Given fractions stand on the pods and in an annotation beside this one; here stand values that seldom change: the GPUs,
their links, the withheld GPUs, and usage by programs without any fraction.

Refuses to be read in part: an annotation that is not whole, or of a later form, is an error with a message.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from nodeagent.config.sections.fractions import EnforcementName, ProfileName
from nodeagent.model.errors import PublicationUnreadable
from nodeagent.model.gpu import Gpu
from nodeagent.model.ids import GpuUuid
from nodeagent.model.nvidia import DOMAIN
from nodeagent.model.values import Value
from nodeagent.rules.fractions.annotations import decode_annotation
from nodeagent.rules.fractions.bound import BoundFractions
from nodeagent.rules.fractions.profiles import Profile, name_profile
from nodeagent.rules.mps.limits import find_most_clients
from nodeagent.rules.placement.hierarchy import Tree
from nodeagent.rules.placement.space import GpuRoom, Space

ANNOTATION: Final = f"{DOMAIN}/gpu-fractions"
FORM: Final = 1
_LONGEST: Final = 65536
_GPUS_MAX: Final = 256
_DEPTH_MAX: Final = 16


_Branch: TypeAlias = int | list[Any]
HeldBack: TypeAlias = Literal["unhealthy", "mig", "door", "cordon", "node", "elsewhere"]
"""Why a GPU is withheld, in a word that is the same on all nodes: for its own health, for MIG, for an allocation mode
closed to new pods, for a cordon, for a fault of the node (driver, runtime, MPS daemons), or for another mode.
"""


class PublishedGpu(Value, frozen=True):
    """The facts about one GPU besides the account."""

    uuid: GpuUuid
    index: int
    model: str = ""
    numa_node: int | None = None
    mps_clients: int | None = None
    """How many containers MPS can hold to a fraction of it; `None` without MPS daemons, or unpublished."""
    held: str = ""
    """The word for why the GPU is withheld; empty where it is not, or the word is unpublished.

    One of `HeldBack`, or a word of a later version.
    """


class Published(Value, frozen=True):
    """A node's GPUs for fractions, before any fraction is given."""

    profile: str
    """The names by which pods ask for fractions, by the word for the profile."""
    space: Space
    gpus: tuple[PublishedGpu, ...]
    """In index order, one for each room."""
    has_uuids: bool = True
    """Whether UUIDs were published; otherwise an index stands for each."""
    enforcement: EnforcementName | None = None
    """The enforcement for pods without a choice of their own; `None` where unpublished."""
    bound: BoundFractions = msgspec.field(default_factory=dict)
    """The fractions held by containers, where the node publishes them; read from an annotation of its own."""

    @property
    def models(self) -> Mapping[GpuUuid, str]:
        """The model's name of each GPU."""
        return {gpu.uuid: gpu.model for gpu in self.gpus}

    @property
    def has_mps(self) -> bool:
        """Whether the node runs MPS daemons."""
        return any(gpu.mps_clients is not None for gpu in self.gpus)


class _Gpu(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One GPU as written; short, for every scheduler's extender reads every node's annotation."""

    uuid: str
    index: int
    memory: int
    model: str = ""
    numa: int | None = None
    shares: int | None = None
    withheld: str = ""
    foreign: int = 0
    busy: bool = False
    clients: int | None = None
    held: str = ""


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The annotation as written."""

    form: int
    profile: ProfileName
    block: int
    gpus: list[_Gpu]
    tree: Any = None
    """A position, or a score and branches: `[50, 0, 1]`; nothing where there is no GPU."""
    enforcement: EnforcementName | None = None
    """Absent in annotations of earlier versions."""


def plan_published(
    profile: Profile,
    space: Space,
    gpus: Iterable[Gpu],
    enforcement: EnforcementName | None,
    *,
    has_mps: bool,
    held: Mapping[GpuUuid, HeldBack] | None = None,
) -> Published:
    """The publication of a node with the given account; usage by outsiders is kept, given fractions are not."""
    told = {gpu.uuid: gpu for gpu in gpus}
    rooms = tuple(replace(room, cores_used=0, memory_used=0, users=0, processes=0) for room in space.rooms)
    return Published(
        profile=name_profile(profile),
        space=replace(space, rooms=rooms),
        gpus=tuple(
            PublishedGpu(
                uuid=room.gpu,
                index=room.index,
                model=told[room.gpu].name,
                numa_node=told[room.gpu].numa_node,
                mps_clients=find_most_clients(told[room.gpu]) if has_mps else None,
                held=(held or {}).get(room.gpu, ""),
            )
            for room in rooms
        ),
        enforcement=enforcement,
    )


def render_published(published: Published) -> str:
    """The annotation's value; equal text for equal nodes saves a write."""
    told = {gpu.uuid: gpu for gpu in published.gpus}
    gpus = [
        _Gpu(
            uuid=room.gpu,
            index=room.index,
            memory=room.memory_bytes,
            model=told[room.gpu].model,
            numa=told[room.gpu].numa_node,
            shares=room.users_max,
            withheld=room.withheld,
            foreign=room.foreign_bytes,
            busy=room.foreign,
            clients=told[room.gpu].mps_clients,
            held=told[room.gpu].held,
        )
        for room in published.space.rooms
    ]
    tree = _render_tree(published.space.tree) if gpus else None
    form = _Form(
        form=FORM,
        profile="hami" if published.profile == "hami" else "tencent",
        block=published.space.block_bytes,
        gpus=gpus,
        tree=tree,
        enforcement=published.enforcement,
    )
    return msgspec.json.encode(form).decode()


def read_published(text: str, device_class: str = "") -> Published:
    """The account published by a node, of the driver's GPUs or of a class's devices.

    Raises:
        PublicationUnreadable: the text is not whole, contradicts itself, or is of a form unknown to this version.
    """
    form = decode_annotation(ANNOTATION, text, _Form, form=FORM, longest=_LONGEST)
    _check(form)
    gpus = sorted(form.gpus, key=lambda gpu: gpu.index)
    if gpus != form.gpus:
        raise PublicationUnreadable(ANNOTATION, "its GPUs are not in the order of their indexes")
    tree = _read_tree(form.tree, 0) if gpus else Tree()
    if gpus and sorted(tree.leaves) != list(range(len(gpus))):
        raise PublicationUnreadable(ANNOTATION, "its tree does not have each GPU once")
    rooms = tuple(
        GpuRoom(
            gpu=GpuUuid(gpu.uuid),
            index=gpu.index,
            memory_bytes=gpu.memory,
            users_max=gpu.shares,
            foreign_bytes=gpu.foreign,
            foreign=gpu.busy,
            withheld=gpu.withheld,
        )
        for gpu in gpus
    )
    return Published(
        profile=device_class or form.profile,
        space=Space(rooms=rooms, tree=tree, block_bytes=form.block),
        gpus=tuple(
            PublishedGpu(
                uuid=GpuUuid(gpu.uuid),
                index=gpu.index,
                model=gpu.model,
                numa_node=gpu.numa,
                mps_clients=gpu.clients,
                held=gpu.held,
            )
            for gpu in gpus
        ),
        enforcement=form.enforcement,
    )


def _check(form: _Form) -> None:
    if len(form.gpus) > _GPUS_MAX:
        raise PublicationUnreadable(ANNOTATION, f"it has {len(form.gpus)} GPUs, at most {_GPUS_MAX} are read")
    if form.block < 1:
        raise PublicationUnreadable(ANNOTATION, f"a block of {form.block} bytes is none")
    for gpu in form.gpus:
        if min(gpu.index, gpu.memory, gpu.foreign, gpu.shares or 0, gpu.clients or 0) < 0:
            raise PublicationUnreadable(ANNOTATION, f"GPU {gpu.uuid[:60]!r} has a number below zero")
    for names in ([gpu.uuid for gpu in form.gpus], [gpu.index for gpu in form.gpus]):
        if len(set(names)) < len(names):
            raise PublicationUnreadable(ANNOTATION, "it has a GPU twice")


def _render_tree(tree: Tree) -> _Branch:
    return [tree.score, *map(_render_tree, tree.branches)] if tree.branches else tree.position


def _read_tree(branch: object, depth: int) -> Tree:
    if isinstance(branch, int) and not isinstance(branch, bool):
        return Tree(position=branch)
    if not isinstance(branch, list) or len(branch) < 3 or depth > _DEPTH_MAX or type(branch[0]) is not int:
        raise PublicationUnreadable(ANNOTATION, "its tree is neither a position nor a score with branches")
    return Tree(score=branch[0], branches=tuple(_read_tree(each, depth + 1) for each in branch[1:]))
