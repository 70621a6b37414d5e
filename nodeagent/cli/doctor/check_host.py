"""The doctor's checks of the host: configuration, CDI, runtime, disk, clock, and other software; pure."""

from collections.abc import Iterator, Sequence

from nodeagent.cli.doctor.facts import DirectoryFacts, Facts
from nodeagent.cli.doctor.verdicts import Check, fail, ok, warn
from nodeagent.components.cdi.registry import SpecReading
from nodeagent.components.runtime.choose import NoRuntime
from nodeagent.model.mps import MpsPhase
from nodeagent.model.wording import render_bytes

FREE_BYTES_MIN = 64 * 1024 * 1024
FREE_BYTES_LOW = 512 * 1024 * 1024
DEVICE_PLUGINS = ("nvidia-device-plugin", "k8s-device-plugin")
"""A second device plugin on a node hands out the same GPUs twice; the other programs only double work."""


def check_configuration(facts: Facts) -> Iterator[Check]:
    """Files, environment and flags."""
    for problem in facts.configuration_problems:
        yield fail("configuration", problem, "nodeagent config check")
    for notice in facts.configuration_notices:
        yield warn("configuration", notice, "nodeagent config show --changed")
    if not facts.configuration_problems and not facts.configuration_notices:
        yield ok("configuration", "valid")


def check_user(facts: Facts) -> Iterator[Check]:
    """Whether this user can see everything."""
    if facts.user_id == 0:
        yield ok("user", "root")
    else:
        found = "not root: sockets, processes and device files of others are not seen"
        yield warn("user", found, "sudo nodeagent doctor")


def check_cdi(facts: Facts) -> Iterator[Check]:
    """The specifications for container runtimes."""
    broken = [spec for spec in facts.specs if spec.problem]
    for spec in broken:
        yield fail("cdi", f"{spec.path} is ignored by runtimes: {spec.problem}", f"rm {spec.path}")
    whole = [spec for spec in facts.specs if not spec.problem and spec.kind.partition("/")[0].endswith("nvidia.com")]
    names = [name for spec in whole for name in spec.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        paths = ", ".join(spec.path for spec in whole)
        yield fail("cdi", f"{twice[0]} is defined more than once, in {paths}", "remove the file of the other tool")
    elif whole:
        yield ok("cdi", f"{len(names)} devices in {len(whole)} specifications")
        yield ok("cdi", _describe_layout(facts, whole))
    elif not broken:
        yield warn("cdi", "no specification for NVIDIA devices", "nodeagent cdi generate")


def _describe_layout(facts: Facts, specs: Sequence[SpecReading]) -> str:
    """How containers find the driver's libraries; either way works, but users should know."""
    state = facts.agent.cdi if facts.agent is not None else None
    hook = state.hook if state is not None else next((spec.hook for spec in specs if spec.hook), "")
    if hook:
        return f"containers get a linker cache: {hook} is run for each, and must stay on the host"
    why = f" ({state.no_hook_reason})" if state is not None and state.no_hook_reason else ""
    return (
        f"containers get no linker cache{why}: libraries are mounted where linkers look, and Triton (torch.compile,"
        " vLLM) is told of libcuda by TRITON_LIBCUDA_PATH; what else asks `ldconfig -p` needs `cdi.hooks: ldcache`"
    )


def check_mps(facts: Facts) -> Iterator[Check]:
    """The MPS daemons, and the program that starts them."""
    if facts.mps_problem is None:
        return
    state = facts.agent.mps if facts.agent is not None else None
    waiting = [one for one in state.daemons if one.phase is MpsPhase.WAITING] if state is not None else []
    if facts.mps_problem:
        yield fail("mps", facts.mps_problem, "nodeagent config show | grep ^mps")
    for one in state.list_troubled() if state is not None else ():
        yield fail("mps", f"the daemon {one.name} is down: {one.reason}", "nodeagent mps -o wide")
    for one in waiting:
        yield warn("mps", f"the daemon {one.name} waits: {one.reason}", "nodeagent allocations")
    if facts.mps_memory:
        text = (
            f"{facts.mps_memory}, which containers have as /dev/shm, has no size of its own: what they put there is"
            " taken from its file system, as the agent may not mount there so that the host sees it (docs/mps.md)"
        )
        yield warn("mps", text, f"df -h {facts.mps_memory}")
    if (
        not facts.mps_problem
        and not facts.mps_memory
        and not waiting
        and not (state is not None and any(state.list_troubled()))
    ):
        yield ok("mps", "daemons can be started, and none is down")


def check_runtime(facts: Facts) -> Iterator[Check]:
    """The container runtime's configuration in force."""
    runtime = facts.runtime
    if runtime is None:
        if facts.runtime_problem:
            yield warn("runtime", facts.runtime_problem, "crictl info")
        return
    if isinstance(runtime, NoRuntime):
        yield warn("runtime", runtime.reason, "nodeagent config show | grep ^runtime")
        return
    name = f"{runtime.kind} {runtime.version} at {runtime.socket}"
    shim = facts.shim.program if facts.shim is not None else ""
    if runtime.cdi_in_force is not True and shim and runtime.default_program == shim:
        yield ok("runtime", f"{name} takes no CDI devices: the runtime shim tells containers their parts of GPUs")
    elif runtime.cdi_in_force is False:
        restart = " ".join(runtime.restart_command) or "nodeagent config show | grep ^runtime.restart_command"
        yield fail("runtime", f"{name}: CDI is off", f"nodeagent config show | grep ^runtime.manage; {restart}")
    elif runtime.cdi_in_force is None:
        yield warn("runtime", f"{name} does not say whether CDI is on", f"grep -n cdi {runtime.config_file}")
    else:
        yield ok("runtime", f"{name}, CDI is on")


def check_shim(facts: Facts) -> Iterator[Check]:
    """The runtime shim before the low-level runtime, where configured."""
    shim = facts.shim
    if shim is None:
        return
    if shim.problem:
        found = f"{shim.program}: {shim.problem}, containers of the runtime class nvidia do not start"
        yield fail("shim", found, "nodeagent status; nodeagent config show | grep ^shim")
    elif shim.table_problem:
        judge, outcome = (warn, "start without") if shim.passes else (fail, "are refused")
        found = f"{shim.table_problem}; containers that ask for GPUs by environment {outcome}"
        yield judge("shim", found, "systemctl status nodeagent; nodeagent status")
    else:
        yield ok("shim", f"{shim.program} gives {shim.devices} devices to containers that ask by environment")
    if facts.toolkit_containers:
        found = (
            f"{facts.toolkit_containers} containers were made by NVIDIA's runtime, which has to be there to end them"
        )
        yield warn("shim", found, "keep NVIDIA's toolkit installed until they are gone")


def check_disk(facts: Facts) -> Iterator[Check]:
    """Room and permission where the agent writes."""
    for directory in facts.directories:
        yield _check_directory(directory)


def _check_directory(directory: DirectoryFacts) -> Check:
    if not directory.writable:
        return fail("disk", f"{directory.path} cannot be written by this user", f"ls -ld {directory.path}; mount")
    free = f"{directory.path}: {render_bytes(directory.free_bytes)} of {render_bytes(directory.total_bytes)} free"
    # A volume of its own, such as a pod's /run/nodeagent, may be small, so half of its size is enough there.
    # A file system without a size is no disk, and nothing can be written there.
    half = max(1, directory.total_bytes // 2)
    if directory.free_bytes < min(FREE_BYTES_MIN, half):
        return fail("disk", free, f"df -h {directory.path}")
    if directory.free_bytes < min(FREE_BYTES_LOW, half):
        return warn("disk", free, f"df -h {directory.path}")
    return ok("disk", free)


def check_clock(facts: Facts) -> Iterator[Check]:
    """Whether times can be trusted: certificates, leases and the order of events need a right clock."""
    if facts.clock_behind_seconds > 0:
        days = facts.clock_behind_seconds / 86400
        found = f"it is {days:.0f} days before this program was installed: no certificate is valid yet"
        yield fail("clock", found, "timedatectl set-ntp true")
    elif facts.clock_synchronised is None:
        yield warn("clock", "the kernel does not say whether the clock is synchronised", "timedatectl")
    elif facts.clock_synchronised:
        yield ok("clock", "synchronised")
    else:
        found = "not synchronised: times in logs and conditions may be off"
        yield warn("clock", found, "timedatectl set-ntp true")


def check_conflicts(facts: Facts) -> Iterator[Check]:
    """Other software with the same work as nodeagent."""
    for process in facts.strangers:
        judge = fail if process.program in DEVICE_PLUGINS else warn
        remedy = f"kubectl get daemonsets -A | grep -i {process.program}"
        yield judge("conflicts", f"{process.program} runs as pid {process.pid} and does what nodeagent does", remedy)
    own = facts.agent.pid if facts.agent is not None else None
    foreign = [one for one in facts.plugin_sockets if one.pid not in {own, 0}]
    for plugin in foreign:
        found = f"another device plugin, pid {plugin.pid}, serves {plugin.path}"
        yield fail("conflicts", found, "kubectl get daemonsets -A | grep -i device-plugin")
    for path in facts.foreign_files:
        found = f"{path} is there: NVIDIA's toolkit container configures the runtime of this node too"
        yield warn("conflicts", found, "kubectl get daemonsets -A | grep -i toolkit")
    if not (facts.strangers or foreign or facts.foreign_files):
        yield ok("conflicts", "no other device plugin, exporter or toolkit container runs here")
