"""One look at the runtime: kind, files, missing settings, and settings in force.

Owns the order of the questions, for the component and the command line alike. Refuses to write anything.
"""

from nodeagent.components.runtime.choose import ChosenRuntime, NoRuntime, decide_runtime
from nodeagent.components.runtime.plan import CLASS, RuntimePlan, Wanted, apply_to_tree
from nodeagent.components.runtime.planners import PLANNERS
from nodeagent.components.runtime.toml_edit import ConfigUneditable, ConfigUnparsable
from nodeagent.config.sections.containers import RuntimeSettings
from nodeagent.config.sections.shim import ShimSettings
from nodeagent.model.nvidia import RUNTIME_PROGRAM
from nodeagent.model.ports import ContainerRuntime
from nodeagent.model.runtime import ConfigTree, RuntimeKind, RuntimeState
from nodeagent.model.shim_names import LEGACY_SUFFIX
from nodeagent.model.values import Value

_NO_WRAPPER = f"the program {RUNTIME_PROGRAM} is not on this node: install it, or set `runtime.legacy_class: false`"


class ShimInPlace(Value, frozen=True):
    """The runtime shim in place."""

    program: str
    names: tuple[str, ...] = ()
    """Other names of the program."""
    default: bool = False
    """Whether the shim is also for containers without a runtime class."""
    takes_names: bool = True
    """Whether devices can be asked for by their CDI names."""


def decide_shim(settings: ShimSettings, program: str) -> ShimInPlace | None:
    """The shim as the settings want it; `None` without the shim's program in place."""
    names = tuple(map(str, settings.further_names))
    if not program:
        return None
    takes_names = settings.mode != "legacy"
    return ShimInPlace(program=program, names=names, default=settings.default_runtime, takes_names=takes_names)


class Probe(Value, frozen=True):
    """The kubelet's runtime with its files, and the plan derived from both."""

    runtime: ChosenRuntime
    tree: ConfigTree
    wanted: Wanted
    plan: RuntimePlan
    shim: ShimInPlace | None = None

    @property
    def planned_tree(self) -> ConfigTree:
        """The files after the plan, in the order of reading."""
        return PLANNERS[self.runtime.kind].arrange(self.runtime, apply_to_tree(self.tree, self.plan.changes))

    @property
    def restart_needed(self) -> str:
        """How to bring the present files into force, as advice; empty when they are in force, or when unknown."""
        running, files = self.runtime.cdi_in_force, self.plan.cdi_enabled
        cdi_waits = self.wanted.cdi and files and running is False
        handlers = self.runtime.handlers
        class_waits = bool(self.wanted.wrapper) and handlers is not None and self._is_class_stale(handlers)
        waits = cdi_waits or (class_waits and not self.plan.problem)
        return self.runtime.restart_advice if waits and not self.plan.changes else ""

    def _is_class_stale(self, handlers: tuple[str, ...]) -> bool:
        """Whether the daemon, by its own word, runs another program or default than written in the files."""
        program = self.runtime.programs.get(CLASS, self.wanted.wrapper)
        default = self.runtime.default_handler or CLASS
        return CLASS not in handlers or self.wanted.lacks_class(program) or (self.wanted.default and default != CLASS)

    @property
    def takes_cdi(self) -> bool:
        """Whether a container can be given a CDI device now; the daemon's word counts more than the files."""
        running = self.runtime.cdi_in_force
        return running if running is not None else self.plan.cdi_enabled

    @property
    def goes_through_shim(self) -> bool:
        """Whether every container can be given a device by CDI name through the shim now."""
        if self.shim is None or not self.shim.takes_names:
            return False
        program = self.runtime.default_program
        return program in {self.shim.program, *self.shim.names} and not program.endswith(LEGACY_SUFFIX)

    @property
    def is_in_force(self) -> bool:
        """Whether all wanted settings are in force now."""
        return not self.plan.changes and not self.plan.problem and not self.restart_needed


async def probe_runtime(
    runtime: ContainerRuntime, settings: RuntimeSettings, *, cdi: bool = True, shim: ShimInPlace | None = None
) -> Probe | NoRuntime:
    """Look once; a shim in place must be the program of the class.

    Raises:
        NodeagentError: the node does not answer.
    """
    evidence = await runtime.read_evidence()
    chosen = decide_runtime(evidence, settings)
    if isinstance(chosen, NoRuntime):
        return chosen
    tree = await read_tree(runtime, chosen)
    # A release too old for CDI serves by its runtime class alone, where that was asked for.
    wrapper = shim.program if shim is not None else evidence.wrapper if settings.legacy_class else ""
    wanted = Wanted(
        cdi=cdi and (chosen.knows_cdi or not wrapper),
        wrapper=wrapper,
        names=shim.names if shim is not None else None,
        default=shim is not None and shim.default,
    )
    plan = _plan(chosen, tree, wanted, lacks_program=settings.legacy_class and not wrapper)
    return Probe(runtime=chosen, tree=tree, wanted=wanted, plan=plan, shim=shim)


async def read_tree(runtime: ContainerRuntime, chosen: ChosenRuntime) -> ConfigTree:
    """The runtime's files, whether or not the runtime answers.

    Raises:
        NodeagentError: the node does not answer.
    """
    if not chosen.config_file:
        return ConfigTree(files=())
    return await runtime.read_config(chosen.kind, chosen.config_file, PLANNERS[chosen.kind].list_other_places(chosen))


def render_state(look: Probe | NoRuntime) -> RuntimeState:
    """The published state of the runtime."""
    if isinstance(look, NoRuntime):
        return RuntimeState(kind=RuntimeKind.UNKNOWN, problem=look.reason)
    return RuntimeState(
        kind=look.runtime.kind,
        version=look.runtime.version,
        socket=look.runtime.socket,
        config_file=look.runtime.config_file,
        cdi_enabled=look.takes_cdi,
        problem=look.plan.problem,
        restart_needed=look.restart_needed,
        through_shim=look.goes_through_shim,
    )


def _plan(chosen: ChosenRuntime, tree: ConfigTree, wanted: Wanted, *, lacks_program: bool) -> RuntimePlan:
    if not chosen.config_file:
        problem = (
            f"the process behind {chosen.socket} cannot be told from others of its name, and so neither can its"
            " configuration file: set `runtime.config_file`"
        )
        return RuntimePlan(cdi_enabled=chosen.cdi_in_force is not False, problem=problem)
    try:
        plan = PLANNERS[chosen.kind].plan(chosen, tree, wanted)
    except (ConfigUnparsable, ConfigUneditable) as error:
        return RuntimePlan(cdi_enabled=bool(chosen.cdi_in_force), problem=str(error))
    if lacks_program and not (plan.problem and chosen.knows_cdi):
        return RuntimePlan(cdi_enabled=plan.cdi_enabled, problem=_NO_WRAPPER)
    return plan
