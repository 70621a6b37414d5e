"""THE list of words: the terms of the field that this project uses, and the words that it has put away for them.

`docs/development/glossary.md` is made from this list; `test_words.py` holds names of modules and classes against it.
"""

from typing import Final, NamedTuple


class Term(NamedTuple):
    """A term of the field, in one sentence. Settings, commands and conditions may call it otherwise: `seen_as`."""

    name: str
    meaning: str
    seen_as: str = ""


class Retired(NamedTuple):
    """A word that stands in no name of a module or class, and the term to say instead.

    A word that is `pending` still stands in names of former days, which are renamed room by room.
    """

    word: str
    instead: str
    pending: bool = False


TERMS: Final = (
    # Devices and how they are given out
    Term("GPU", "A graphics processor as its driver counts it: one PCI device with one UUID."),
    Term(
        "MIG device",
        "A slice of a GPU with memory and engines of its own, cut by the driver and named by a UUID of its own.",
    ),
    Term(
        "MIG layout",
        "Which MIG devices each GPU of a node is to have; a file or the label `nvidia.com/mig.config` names it.",
    ),
    Term(
        "fraction",
        "A number of hundredths of a GPU's compute and an amount of its memory, held by one container.",
        "part",
    ),
    Term(
        "device id", "A string under which the kubelet counts a device; a fraction is counted in many of them.", "token"
    ),
    Term(
        "replica",
        "One of several device ids that stand for the same GPU or MIG device, which containers share by time slicing.",
    ),
    Term(
        "time slicing", "Containers that take turns on one GPU as its driver schedules them, with nothing held apart."
    ),
    Term(
        "MPS daemon",
        "NVIDIA's multi-process service: the process through which several clients use one GPU at the same time.",
    ),
    Term(
        "allocation mode",
        "The one way in which a GPU is given out: whole, in fractions, as MIG devices, by claims.",
        "door",
    ),
    Term("resource", "A name under which the kubelet counts devices, such as `nvidia.com/gpu`."),
    Term("device class", "Devices of any vendor that the configuration describes, with one resource name."),
    Term("device node", "A file below `/dev` through which a process reaches a device."),
    Term("driver root", "The directory below which the driver's libraries and programs lie on this host."),
    Term(
        "CDI specification",
        "A file that tells container runtimes which files, device nodes and hooks a device is made of.",
    ),
    Term("hook", "A program that the container runtime starts at a step of a container's creation."),
    Term(
        "runtime shim",
        "The program that stands before runc where the runtime knows no CDI, and adds what a container asks for.",
    ),
    Term("vGPU library", "The library in front of the driver's that holds a container to the limits of its fraction."),
    Term("limits file", "The file in which the vGPU library reads what its container may use."),
    Term("usage file", "The file in which the processes of a container count what they use of their fraction."),
    # Kubernetes
    Term("kubelet", "Kubernetes' agent on the node, which starts pods and counts devices."),
    Term("device plugin", "The gRPC service by which the kubelet learns of devices and asks for them."),
    Term("Allocate", "The kubelet's question what a container needs for the devices that it has been given."),
    Term(
        "PreStart", "The kubelet's call before a container with such devices starts; a fraction is bound to GPUs in it."
    ),
    Term("claim", "A ResourceClaim: devices that a pod asked for by dynamic resource allocation."),
    Term("Prepare", "The kubelet's call to make the devices of a claim ready before its first container."),
    Term("resource slice", "The object in which the node publishes the devices that claims can have."),
    Term("extender", "The program that the scheduler asks which nodes and GPUs suit a pod with fractions."),
    Term("choice", "The GPUs that the extender has picked for a pod and written on it."),
    Term("binding", "A fraction that is held by a container on certain GPUs."),
    Term(
        "node request",
        "What the cluster asks of one node by label or annotation: a pause, a named configuration, a MIG layout.",
    ),
    Term("named configuration", "A set of settings that a node chooses by its label."),
    Term(
        "condition",
        "What is wrong with the node, with a code, a severity and a remedy; also a Kubernetes condition of the Node.",
    ),
    Term("brake", "What closes a GPU on which pod after pod is lost, and lets one pod try the GPU later."),
    Term("taint", "A mark on the Node, or on a device in a resource slice, that keeps pods away."),
    Term("drain", "Pods leave a GPU or the node before something is done to it."),
    # What the agent keeps
    Term("journal", "The file in which everything given out is durable before anybody is answered."),
    Term("ledger", "What the records of the journal amount to: who has what now."),
    Term("store", "Any other file that the agent keeps over restarts."),
    Term(
        "kubelet state",
        "What the kubelet itself says is allocated, in its checkpoint and by its pod resources service.",
    ),
    Term("record", "One line of the journal."),
    Term(
        "adoption", "A container that runs already is entered in the journal, because the agent's notes of it are gone."
    ),
    Term("recovery", "What the agent does at its start with what the journal holds and the node has."),
    Term(
        "audit log",
        "One line for each change that the agent made outside itself, and each step of a fault session.",
    ),
    Term("history", "What was given out and has come back, or happened, as it is shown later."),
    # How the agent runs
    Term("component", "One part of the agent with a life of its own, started and restarted by the supervisor."),
    Term("supervisor", "The code that starts components, counts their failures and ends them in order."),
    Term("gate", "A fact that opens once and lets components start that need it."),
    Term("bus", "The channel by which components publish states and facts to one another."),
    Term("state", "The newest whole truth about something, retained on the bus."),
    Term("fact", "Something that happened once."),
    Term("port", "A Protocol by which one component asks another and waits for the answer."),
    Term("Handle", "A value that stands for an object that is built later, and refuses or waits until then."),
    Term("edge", "Code that touches the world outside the process and decides nothing."),
    Term("worker", "A child process that makes the calls which can hang, and is killed when they do."),
    Term("wiring", "The place where objects are built and given to one another."),
    Term("simulation", "A node with profiles of real boards in place of hardware."),
    Term("stand-in", "A program of the tests that plays another one, held against it by a shared test."),
    # Health
    Term("XID", "A number by which NVIDIA's driver reports an error of a GPU in the kernel's log."),
    Term("verdict", "What the agent holds a device to be good for: healthy, degraded, unhealthy, lost or stuck."),
    Term("evidence", "An observation from which verdicts are made."),
    Term("sample", "One reading of all GPUs at one time."),
    Term("reading", "One number of a sample."),
    Term("severity", "How soon a person must look: info, warning or error."),
    Term("remedy", "The sentence that says what to do about a condition."),
    Term("fault session", "The faults of GPUs that are repaired together, from the first of them to their end."),
    Term("rung", "A kind of repair, in the order from the mildest to the last resort: the ladder."),
    Term("attempt", "A repair that was begun: its intent is in the journal before the act, its outcome after it."),
    Term("guard", "How often a GPU may be reset and a node be rebooted for repairs within seven days."),
    Term("settling", "The wait after a start until several polls in a row find the same."),
)

RETIRED: Final = (
    Retired("part", "fraction"),
    Retired("parts", "fractions"),
    Retired("share", "fraction"),
    Retired("shares", "fractions"),
    Retired("token", "device id"),
    Retired("tokens", "device ids"),
    Retired("door", "allocation mode"),
    Retired("doors", "allocation modes"),
    Retired("wish", "node request, or what is asked for"),
    Retired("wishes", "node requests"),
    Retired("book", "journal, or store"),
    Retired("roster", "store of known GPUs"),
    Retired("past", "history"),
    Retired("account", "kubelet state"),
    Retired("keeper", "the noun of what is kept: supervisor, writer, files"),
    Retired("maker", "partition writer"),
    Retired("desk", "the noun of what is handled there"),
    Retired("around", "ports, or dependencies"),
    Retired("surroundings", "dependencies"),
    Retired("neighbours", "ports"),
    Retired("relay", "Handle"),
    Retired("tending", "reconcile"),
    Retired("renewing", "limits sync"),
    Retired("measuring", "utilization"),
    Retired("callers", "pod resolver"),
    Retired("reasons", "decision log"),
    Retired("turns", "time slicing"),
    Retired("tell", "publish, or report"),
    Retired("told", "reported, registered or advertised"),
    Retired("known", "registered, or the noun of what is known"),
    Retired("again", "retry"),
    Retired("settled", "drift"),
    Retired("owed", "paused clients"),
    Retired("changing", "apply"),
    Retired("hearing", "monitoring"),
    Retired("hearsay", "recent XIDs"),
    Retired("deafness", "monitoring gaps"),
    Retired("look", "poll"),
    Retired("looks", "poll schedule"),
    Retired("picture", "watches"),
    Retired("texts", "messages"),
    Retired("side", "wiring"),
    Retired("sides", "wiring"),
    Retired("visit", "connection"),
    Retired("crowd", "connection table"),
    Retired("allowance", "flood guard"),
)
