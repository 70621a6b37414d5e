"""The planner of each runtime's configuration."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.containerd_config import arrange_imports
from nodeagent.components.runtime.plan import RuntimePlan, Wanted
from nodeagent.components.runtime.plan_containerd import find_read_files, list_other_places, plan_containerd
from nodeagent.components.runtime.plan_crio import find_crio_drop_in, plan_crio
from nodeagent.components.runtime.plan_docker import plan_docker
from nodeagent.components.runtime.plan_drop_in import arrange_directory
from nodeagent.components.runtime.plan_podman import find_podman_drop_in, plan_podman
from nodeagent.model.runtime import ConfigTree, RuntimeKind


class Planner(NamedTuple):
    """The planner of one runtime, and everything else about the runtime's way of reading files."""

    plan: Callable[[ChosenRuntime, ConfigTree, Wanted], RuntimePlan]
    arrange: Callable[[ChosenRuntime, ConfigTree], ConfigTree] = lambda _runtime, tree: tree
    """Changed files in the order of reading."""
    list_other_places: Callable[[ChosenRuntime], tuple[str, ...]] = lambda _runtime: ()
    """Places of files that count though no file names them: the agent's own, or a mark of the distribution's."""
    is_provable: bool = False
    """Whether the runtime's program can be started on the side to prove a plan."""


PLANNERS: Final[Mapping[RuntimeKind, Planner]] = {
    RuntimeKind.CONTAINERD: Planner(
        plan_containerd,
        arrange=lambda runtime, tree: arrange_imports(find_read_files(runtime, tree)),
        list_other_places=list_other_places,
        is_provable=True,
    ),
    RuntimeKind.CRIO: Planner(
        plan_crio,
        arrange=lambda _runtime, tree: arrange_directory(tree),
        list_other_places=lambda runtime: (find_crio_drop_in(runtime),),
    ),
    RuntimeKind.DOCKER: Planner(plan_docker),
    RuntimeKind.PODMAN: Planner(
        plan_podman,
        arrange=lambda _runtime, tree: arrange_directory(tree),
        list_other_places=lambda runtime: (find_podman_drop_in(runtime),),
    ),
}
