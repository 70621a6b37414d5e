"""The files of containers with fractions: running containers keep all necessary files, others' files go.

Owns the choice. A running container goes on, and may start again in its pod, as long as its limits, its CDI
specification and the library are there; where processes are invisible, a container counts as running.
"""

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from nodeagent.app.runtime_edge import see_processes
from nodeagent.app.wiring.fractions import LIBRARY_FOLDER
from nodeagent.cli.uninstall.steps import Outcome, Step, act, read_ledger, remove_directory, remove_files
from nodeagent.components.fractions.decide import name_files
from nodeagent.config.schema import Settings
from nodeagent.edge.host.errors import HostError
from nodeagent.edge.host.files.pseudo_file import list_names
from nodeagent.edge.host.vgpu.fraction_folders import FRACTION_FOLDERS, SHARE_FOLDERS, list_in_memory
from nodeagent.edge.host.vgpu.fraction_users import find_mounted
from nodeagent.edge.host.vgpu.library_files import NAME, PRELOAD

_AGAIN: Final = "uninstall again when it has ended"
_IN_A_POD: Final = "KUBERNETES_SERVICE_HOST"


def find_kept(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Running containers with fractions, by the name of their files, each with the reason to keep the files."""
    state = settings.node.state_dir
    names = {name for folder in (FRACTION_FOLDERS, SHARE_FOLDERS) for name in list_names(state / folder)}
    if not names:
        return {}
    unseen = explain_unseen(settings, environ)
    if unseen:
        reason = f"whether its container runs is {unseen}: remove it by hand when no pod has parts"
        return dict.fromkeys(names, reason)
    try:
        mounted = find_mounted(names, see_processes(settings))
    except HostError as error:
        return dict.fromkeys(names, f"whether its container runs is not to be seen: {error}")
    bindings = read_ledger(settings).fractions.bindings.values()
    users = {name_files(each): f"{each.pod.describe()} ({each.container})" for each in bindings}
    return {name: f"{users.get(name, 'a container')} runs with it: {_AGAIN}" for name in sorted(mounted)}


def explain_unseen(settings: Settings, environ: Mapping[str, str]) -> str:
    """Why the host's processes are invisible, as the end of a sentence; empty where visible."""
    in_a_pod = bool(environ.get(_IN_A_POD)) and see_processes(settings) == Path("/proc")
    return "not seen from this pod" if in_a_pod else ""


def remove_fractions(settings: Settings, kept: Mapping[str, str], *, dry: bool) -> list[Outcome]:
    """Remove the limits of containers, and the vGPU library that holds containers to the limits."""
    state, outcomes = settings.node.state_dir, list[Outcome]()
    for root in (state / FRACTION_FOLDERS, state / SHARE_FOLDERS):
        folders = [root / name for name in list_names(root)]
        outcomes += [Outcome(Step.KEPT, str(each), kept[each.name]) for each in folders if each.name in kept]
        gone = [each for each in folders if each.name not in kept]
        written = (place for each in gone for place in list_in_memory(each))
        outcomes += remove_files(written, "what a container wrote", dry=dry)
        outcomes += [act(partial(shutil.rmtree, each), each, "limits of a container", dry=dry) for each in gone]
        if not kept.keys() & {each.name for each in folders}:
            outcomes += remove_directory(root, dry=dry)
    library = state / LIBRARY_FOLDER
    if kept:
        reason = f"containers with parts of GPUs run with it, {len(kept)} of them: uninstall again when they have ended"
        return [*outcomes, *([Outcome(Step.KEPT, str(library), reason)] if library.is_dir() else [])]
    ours = (library / name for name in list_names(library) if name.lstrip(".").startswith((NAME, PRELOAD)))
    outcomes += remove_files(ours, "vGPU library", dry=dry)
    return [*outcomes, *remove_directory(library, dry=dry)]
