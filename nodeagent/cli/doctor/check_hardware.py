"""The doctor's checks of hardware and driver: GPUs on the bus, and whether the driver answers; pure."""

from collections.abc import Iterator

from nodeagent.cli.doctor.facts import Facts
from nodeagent.cli.doctor.verdicts import Check, fail, ok, warn
from nodeagent.components.driver.decide import decide_driver
from nodeagent.model.driver import DriverEvidence, LibraryOutcome

OWN_DRIVER = "nvidia"
NODES_COMMAND = "nvidia-modprobe -c 0 -u"


def check_hardware(facts: Facts) -> Iterator[Check]:
    """GPUs on the PCI bus, and their kernel drivers."""
    evidence = facts.evidence
    if evidence is None:
        yield fail("hardware", f"the host could not be looked at: {facts.evidence_problem}", "dmesg | grep -i nvrm")
        return
    functions = evidence.pci_functions
    if not functions and _does_without(facts):
        yield ok("hardware", "no NVIDIA GPU on the PCI bus, and none is needed")
        return
    others = [one for one in functions if one.bound_driver not in {"", OWN_DRIVER}]
    for one in others:
        found = f"{one.address} belongs to the kernel driver {one.bound_driver}"
        yield warn("hardware", found, f"lspci -nnk -s {one.address}")
    if functions and not others:
        yield ok("hardware", f"{len(functions)} NVIDIA {'GPUs' if len(functions) > 1 else 'GPU'} on the PCI bus")
    elif not functions and facts.simulated:
        yield ok("hardware", "simulated, the PCI bus is not looked at")
    elif not functions:
        yield fail("hardware", "no NVIDIA GPU on the PCI bus", "lspci -d 10de:")


def _does_without(facts: Facts) -> bool:
    """Whether the agent of this node serves other devices alone."""
    driver = facts.agent.driver if facts.agent is not None else None
    return driver is not None and driver.is_done_without


def check_driver(facts: Facts) -> Iterator[Check]:
    """The kernel module, and the agent's decision about the driver."""
    evidence = facts.evidence
    if evidence is None or _does_without(facts):
        return
    decision = decide_driver(evidence)
    state = decision.state
    if not state.ready:
        words = str(state.phase).replace("_", " ")
        yield fail("driver", f"{words}: {state.detail}" if state.detail else words, state.remedy)
        return
    for code, detail in decision.conditions:
        yield warn("driver", f"{code}: {detail}", NODES_COMMAND)
    if not decision.conditions:
        yield ok("driver", state.detail or f"version {state.driver_version}")


def check_nodes(facts: Facts) -> Iterator[Check]:
    """The device nodes, necessary for every container with a GPU."""
    evidence = facts.evidence
    if evidence is None:
        return
    if not evidence.nodes_missing:
        found = "simulated, there are none" if facts.simulated else "all are there"
        yield ok("device nodes", found if evidence.pci_functions or facts.simulated else "none is needed without a GPU")
        return
    is_ready = decide_driver(evidence).state.ready
    yield (warn if is_ready else fail)("device nodes", f"missing: {', '.join(evidence.nodes_missing)}", NODES_COMMAND)


def check_versions(facts: Facts) -> Iterator[Check]:
    """Library against kernel module, agent against this command."""
    evidence, agent = facts.evidence, facts.agent
    library = evidence.library_version if evidence is not None else ""
    module = evidence.module_version if evidence is not None else ""
    if library and module and library != module:
        yield fail("versions", f"library {library}, kernel module {module}", "rmmod the NVIDIA modules, or reboot")
        return
    if agent is not None and agent.version != facts.version:
        found = f"the agent that runs is {agent.version}, this command is {facts.version}"
        yield warn("versions", found, "systemctl restart nodeagent")
        return
    driver = f", driver {module or library}" if module or library else ""
    yield ok("versions", f"nodeagent {facts.version}, Python {facts.python}, kernel {facts.kernel}{driver}")


def check_nvml(facts: Facts) -> Iterator[Check]:
    """Whether each GPU answers."""
    readout, evidence = facts.readout, facts.evidence
    if readout is None:
        yield fail("nvml", f"GPUs cannot be read: {facts.readout_problem}", "nvidia-smi -L")
        return
    lost = [gpu for gpu in readout.gpus if gpu.lost]
    for gpu in lost:
        yield fail("nvml", f"GPU {gpu.index} ({gpu.pci.address}): {gpu.lost}", "dmesg | grep -i nvrm")
    for missing in readout.missing:
        yield fail("nvml", f"{missing.address} is not listed by the driver: {missing.reason}", "dmesg | grep -i nvrm")
    seen = len(evidence.pci_functions) if evidence is not None else 0
    if seen > len(readout.gpus) + len(readout.missing):
        yield warn("nvml", f"{len(readout.gpus)} GPUs listed, {seen} on the PCI bus", "nvidia-smi -L")
    elif not lost and not readout.missing:
        yield ok("nvml", f"{len(readout.gpus)} GPUs answer")


def check_fabric(facts: Facts) -> Iterator[Check]:
    """NVLink switches, and the manager that connects GPUs to switches."""
    evidence = facts.evidence
    if evidence is None:
        return
    if evidence.fabric_pending:
        found = f"{len(evidence.fabric_pending)} GPUs are not registered with the NVLink fabric"
        yield fail("fabric", found, "systemctl status nvidia-fabricmanager")
    elif not evidence.nvswitch_count:
        yield ok("fabric", "no NVSwitch on this node")
    elif not _answers(evidence):
        found = f"{evidence.nvswitch_count} NVSwitches, but without NVML nobody knows whether GPUs are registered"
        yield warn("fabric", found, "systemctl status nvidia-fabricmanager")
    else:
        yield ok("fabric", f"{evidence.nvswitch_count} NVSwitches, all GPUs registered")


def _answers(evidence: DriverEvidence) -> bool:
    return evidence.library is not None and evidence.library.outcome is LibraryOutcome.WORKS
