"""Proves a plan before any file is written: the node's own containerd is started on the side with the planned files.

Owns the meaning of the answer. A failed trial is held against a trial without configuration: where both fail, the
place is unfit for trials, and nothing is proved either way.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nodeagent.components.runtime.plan_containerd import find_read_files
from nodeagent.components.runtime.plan_docker import is_daemon_json, parse_daemon_json
from nodeagent.components.runtime.planners import PLANNERS
from nodeagent.components.runtime.probe import Probe
from nodeagent.components.runtime.toml_edit import KeyPath, parse_toml
from nodeagent.components.runtime.trial import Trial, find_wrong, render_control, render_trial
from nodeagent.model.errors import NodeagentError
from nodeagent.model.ports import ContainerRuntime
from nodeagent.model.runtime import ConfigTree, FileChange, TrialAnswer
from nodeagent.model.values import Value


class Proof(Value, frozen=True):
    """The result of a trial."""

    handlers: tuple[str, ...] = ()
    """The runtimes with which CRI came up."""
    unproved: str = ""
    """Why nothing could be proved; empty when the plan was."""


class PlanDisproved(NodeagentError):
    """The runtime would not act by the plan; no file was written."""

    def __init__(self, path: str, reason: str, *, was_broken: bool) -> None:
        found = "already with the files as they are" if was_broken else "with the planned change"
        remedy = f"mend {path} or what it imports" if was_broken else f"compare {path} with `nodeagent runtime plan`"
        super().__init__(
            f"containerd, started on the side {found}, shows what its next start would be: {reason}: nothing was"
            f" written; {remedy}"
        )


async def prove_plan(runtime: ContainerRuntime, look: Probe) -> Proof:
    """Show the runtime coming up with the planned files and acting by the plan, where a trial is possible.

    Raises:
        PlanDisproved: the runtime does not.
    """
    if not PLANNERS[look.runtime.kind].is_provable:
        return Proof(unproved="that is done with containerd alone")
    trial = render_trial(look.planned_tree)
    answer = await _try_out(runtime, look, trial)
    wrong = find_wrong(answer, look.plan, look.wanted)
    if answer.obstacle or not wrong:
        return Proof(handlers=tuple(sorted(filter(None, answer.handlers or ()))), unproved=answer.obstacle)
    if trial.left_out:
        return Proof(unproved=f"{trial.left_out}, and without them {wrong}")
    control = await _try_out(runtime, look, render_control())
    if not control.is_ready:
        said = control.obstacle or control.said
        return Proof(unproved=f"containerd does not come up on the side even without configuration: {said}")
    present = await _try_out(runtime, look, render_trial(find_read_files(look.runtime, look.tree)))
    raise PlanDisproved(look.runtime.config_file, wrong, was_broken=not present.is_ready)


async def _try_out(runtime: ContainerRuntime, look: Probe, trial: Trial) -> TrialAnswer:
    return await runtime.try_out(look.runtime.executable, look.runtime.config_file, ConfigTree(files=trial.files))


_MOST: Final = 3


def describe_difference(change: FileChange) -> str:
    """The file, and the settings with wrong values, each with both values.

    Raises:
        ConfigUnparsable: one of the two is no document.
    """
    parse = parse_daemon_json if is_daemon_json(change.after) else parse_toml
    before, after = parse(change.path, change.before), parse(change.path, change.after)
    found = [f"{'.'.join(key)} is {now}, not {wanted}" for key, now, wanted in _list_differences(before, after)]
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return f"{change.path} ({', '.join(found[:_MOST])}{more})"


def _list_differences(
    before: Mapping[str, Any], after: Mapping[str, Any], at: KeyPath = ()
) -> Iterator[tuple[KeyPath, str, str]]:
    for key, wanted in after.items():
        now = before.get(key)
        if isinstance(wanted, Mapping):
            yield from _list_differences(now if isinstance(now, Mapping) else {}, wanted, (*at, key))
        elif key not in before or now != wanted:
            yield (*at, key), _render(now) if key in before else "missing", _render(wanted)


def _render(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
