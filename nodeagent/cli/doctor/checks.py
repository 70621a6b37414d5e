"""What the doctor concludes: a verdict, a reason and a command to paste for each check; pure."""

from collections.abc import Callable, Iterator
from enum import StrEnum

from nodeagent.cli.doctor.facts import DirectoryFacts, Facts, SocketFacts
from nodeagent.components.driver.decide import decide_driver
from nodeagent.components.runtime.choose import NoRuntime
from nodeagent.model.units import render_bytes
from nodeagent.model.values import Value

FREE_BYTES_MIN = 64 * 1024 * 1024
RESTART = "systemctl restart nodeagent"


class Grade(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Value, frozen=True):
    """One line of the doctor."""

    name: str
    grade: Grade
    found: str
    remedy: str = ""
    """A command to paste, or what to do where no command does it; empty when nothing is to be done."""


def _ok(name: str, found: str) -> Check:
    return Check(name=name, grade=Grade.OK, found=found)


def _warn(name: str, found: str, remedy: str) -> Check:
    return Check(name=name, grade=Grade.WARN, found=found, remedy=remedy)


def _fail(name: str, found: str, remedy: str) -> Check:
    return Check(name=name, grade=Grade.FAIL, found=found, remedy=remedy)


def run_checks(facts: Facts) -> tuple[Check, ...]:
    """All checks, in the order in which one thing rests on another."""
    return tuple(check for judge in CHECKS for check in judge(facts))


def find_worst(checks: tuple[Check, ...]) -> Grade:
    """The worst of all."""
    order = list(Grade)
    return max((check.grade for check in checks), key=order.index, default=Grade.OK)


def _check_configuration(facts: Facts) -> Iterator[Check]:
    for problem in facts.configuration_problems:
        yield _fail("configuration", problem, "nodeagent config check")
    for notice in facts.configuration_notices:
        yield _warn("configuration", notice, "nodeagent config show --changed")
    if not facts.configuration_problems and not facts.configuration_notices:
        yield _ok("configuration", "valid")
    if facts.user_id != 0:
        yield _warn(
            "user", "not root: sockets, processes and device files of others are not seen", "sudo nodeagent doctor"
        )


def _check_hardware(facts: Facts) -> Iterator[Check]:
    evidence = facts.evidence
    if evidence is None:
        yield _fail("hardware", f"the host could not be looked at: {facts.evidence_problem}", "dmesg | grep -i nvrm")
        return
    count = len(evidence.pci_functions)
    if count:
        yield _ok("hardware", f"{count} NVIDIA GPUs on the PCI bus" if count > 1 else "1 NVIDIA GPU on the PCI bus")
    elif facts.simulated:
        yield _ok("hardware", "simulated, the PCI bus is not looked at")
    else:
        yield _fail("hardware", "no NVIDIA GPU on the PCI bus", "lspci -d 10de:")


def _check_driver(facts: Facts) -> Iterator[Check]:
    evidence = facts.evidence
    if evidence is None:
        return
    decision = decide_driver(evidence)
    state = decision.state
    if state.ready:
        yield _ok("driver", state.detail or f"version {state.driver_version}")
    else:
        words = str(state.phase).replace("_", " ")
        yield _fail("driver", f"{words}: {state.detail}" if state.detail else words, state.remedy)
    for code, detail in decision.conditions if state.ready else ():
        yield _warn("driver", f"{code}: {detail}", "nvidia-modprobe -c 0 -u")
    if evidence.nodes_missing and not state.ready:
        yield _fail("device nodes", f"missing: {', '.join(evidence.nodes_missing)}", "nvidia-modprobe -c 0 -u")
    library, module = evidence.library_version, evidence.module_version
    if library and module and library != module:
        yield _fail("versions", f"library {library}, kernel module {module}", "rmmod the NVIDIA modules, or reboot")
    if evidence.fabric_pending:
        found = f"{len(evidence.fabric_pending)} GPUs are not registered with the NVLink fabric"
        yield _fail("fabric", found, "systemctl status nvidia-fabricmanager")
    elif evidence.nvswitch_count:
        yield _ok("fabric", f"{evidence.nvswitch_count} NVSwitches, all GPUs registered")


def _check_nvml(facts: Facts) -> Iterator[Check]:
    readout, evidence = facts.readout, facts.evidence
    if readout is None:
        yield _fail("nvml", f"GPUs cannot be read: {facts.readout_problem}", "nvidia-smi -L")
        return
    lost = [gpu for gpu in readout.gpus if gpu.lost]
    for gpu in lost:
        yield _fail("nvml", f"GPU {gpu.index} ({gpu.pci.address}): {gpu.lost}", "dmesg | grep -i nvrm")
    for missing in readout.missing:
        yield _fail("nvml", f"{missing.address} is not listed by the driver: {missing.reason}", "dmesg | grep -i nvrm")
    seen = len(evidence.pci_functions) if evidence is not None else 0
    if seen > len(readout.gpus) + len(readout.missing):
        yield _warn("nvml", f"{len(readout.gpus)} GPUs listed, {seen} on the PCI bus", "nvidia-smi -L")
    if not lost and not readout.missing:
        yield _ok("nvml", f"{len(readout.gpus)} GPUs answer")


def _check_agent(facts: Facts) -> Iterator[Check]:
    agent = facts.agent
    if agent is None:
        yield _warn("agent", facts.agent_problem, "systemctl status nodeagent")
        return
    if agent.gpu_source.startswith("simulated") and not facts.simulated:
        yield _warn("agent", "a simulation answers, no agent of this node", "systemctl status nodeagent")
        return
    for condition in agent.conditions:
        if condition.severity == "info":
            continue
        judge = _fail if condition.severity == "error" else _warn
        detail = f": {condition.detail}" if condition.detail else ""
        yield judge("agent", f"{condition.title}{detail} ({condition.code})", condition.remedy)
    if agent.version != facts.version:
        found = f"the agent that runs is {agent.version}, this command is {facts.version}"
        yield _warn("agent", found, RESTART)
    if not agent.ready:
        yield _fail("agent", f"not ready: {agent.sentence}", "nodeagent status")
    elif agent.verdict == "ok":
        yield _ok("agent", f"{agent.version}, {agent.sentence}")


def _check_kubelet(facts: Facts) -> Iterator[Check]:
    yield from _check_socket("kubelet socket", facts.kubelet)
    yield from _check_socket("pod resources", facts.pod_resources)
    agent = facts.agent
    if agent is None or agent.plugin is None or (agent.gpu_source.startswith("simulated") and not facts.simulated):
        return
    for resource in agent.plugin.resources:
        if not resource.registered:
            found = f"{resource.name} is not registered: {resource.last_error or 'the kubelet does not answer'}"
            yield _fail("registration", found, "systemctl status kubelet")
            continue
        healthy = {str(device.id) for device in resource.devices if device.healthy}
        yield _ok("registration", f"{resource.name}: {len(healthy)} of {len(resource.devices)} devices healthy")
        if facts.checkpoint is not None:
            yield from _compare_allocatable(resource.name, healthy, facts)


def _compare_allocatable(resource: str, healthy: set[str], facts: Facts) -> Iterator[Check]:
    held = {str(device) for device in (facts.checkpoint.registered if facts.checkpoint else {}).get(resource, ())}
    if held == healthy:
        yield _ok("allocatable", f"the kubelet holds the same {len(held)} healthy devices of {resource}")
        return
    found = f"{resource}: offered {len(healthy)}, the kubelet's checkpoint has {len(held)} healthy devices"
    yield _warn("allocatable", found, "nodeagent status; the kubelet writes its checkpoint at the next allocation")


def _check_socket(name: str, socket: SocketFacts | None) -> Iterator[Check]:
    if socket is None:
        return
    if socket.problem:
        yield _fail(name, f"{socket.path}: {socket.problem}", "systemctl status kubelet")
    else:
        yield _ok(name, f"{socket.path} answers")


def _check_cdi(facts: Facts) -> Iterator[Check]:
    broken = [spec for spec in facts.specs if spec.problem]
    for spec in broken:
        yield _fail("cdi", f"{spec.path} is ignored by runtimes: {spec.problem}", f"rm {spec.path}")
    whole = [spec for spec in facts.specs if not spec.problem and spec.kind.partition("/")[0].endswith("nvidia.com")]
    names = [name for spec in whole for name in spec.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        paths = ", ".join(spec.path for spec in whole)
        yield _fail("cdi", f"{twice[0]} is defined more than once, in {paths}", "remove the file of the other tool")
    elif whole:
        yield _ok("cdi", f"{len(names)} devices in {len(whole)} specifications")
    elif not broken:
        yield _warn("cdi", "no specification for NVIDIA devices", "nodeagent cdi generate")


def _check_runtime(facts: Facts) -> Iterator[Check]:
    runtime = facts.runtime
    if runtime is None:
        if facts.runtime_problem:
            yield _warn("runtime", facts.runtime_problem, "crictl info")
        return
    if isinstance(runtime, NoRuntime):
        yield _warn("runtime", runtime.reason, "nodeagent config show | grep ^runtime")
        return
    name = f"{runtime.kind} {runtime.version} at {runtime.socket}"
    if runtime.cdi_in_force is False:
        restart = " ".join(runtime.restart_command)
        yield _fail("runtime", f"{name}: CDI is off", f"nodeagent config show | grep ^runtime.manage; {restart}")
    elif runtime.cdi_in_force is None:
        yield _warn("runtime", f"{name} does not say whether CDI is on", f"grep -n cdi {runtime.config_file}")
    else:
        yield _ok("runtime", f"{name}, CDI is on")


def _check_api(facts: Facts) -> Iterator[Check]:
    api = facts.api
    if api is None:
        yield _ok("api server", "not used by these settings")
    elif not api.where:
        yield _warn(
            "api server",
            "no credentials: labels, conditions and events stay on this node",
            "nodeagent config show | grep ^kubernetes",
        )
    elif api.problem:
        yield _fail("api server", f"with {api.where}: {api.problem}", "kubectl auth whoami")
    elif api.denied:
        yield _fail(
            "api server", f"with {api.where} it may not {', '.join(api.denied)}", "kubectl apply -f deploy/rbac.yaml"
        )
    else:
        yield _ok("api server", f"answers, all permissions are there ({api.where})")


def _check_disk(facts: Facts) -> Iterator[Check]:
    for directory in facts.directories:
        yield _check_directory(directory)


def _check_directory(directory: DirectoryFacts) -> Check:
    if not directory.writable:
        return _fail("disk", f"{directory.path} cannot be written by this user", f"ls -ld {directory.path}; mount")
    free = f"{directory.path}: {render_bytes(directory.free_bytes)} of {render_bytes(directory.total_bytes)} free"
    # A volume of its own, such as a pod's /run/nodeagent, may be small: what counts then is that it is not filling up.
    if directory.free_bytes < min(FREE_BYTES_MIN, directory.total_bytes // 2):
        return _fail("disk", free, f"df -h {directory.path}")
    return _ok("disk", free)


def _check_clock(facts: Facts) -> Iterator[Check]:
    if facts.clock_synchronised is None:
        yield _warn("clock", "the kernel does not say whether the clock is synchronised", "timedatectl")
    elif facts.clock_synchronised:
        yield _ok("clock", "synchronised")
    else:
        yield _warn("clock", "not synchronised: times in logs and conditions may be off", "timedatectl set-ntp true")


def _check_strangers(facts: Facts) -> Iterator[Check]:
    for process in facts.strangers:
        remedy = f"kubectl get daemonsets -A | grep -i {process.program}"
        yield _warn("conflicts", f"{process.program} runs as pid {process.pid} and does what nodeagent does", remedy)
    if not facts.strangers:
        yield _ok("conflicts", "no other device plugin, exporter or toolkit container runs here")


CHECKS: tuple[Callable[[Facts], Iterator[Check]], ...] = (
    _check_configuration,
    _check_hardware,
    _check_driver,
    _check_nvml,
    _check_agent,
    _check_kubelet,
    _check_cdi,
    _check_runtime,
    _check_api,
    _check_disk,
    _check_clock,
    _check_strangers,
)
