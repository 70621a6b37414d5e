"""Settings about the cluster: labels, the API server, metrics."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from nodeagent.config.compound import ListOf, MapOf, Nested
from nodeagent.config.kinds import LABEL_KEY, NAMESPACE, AbsolutePath, Flag, Maybe, Number, OneOf, Regex, Text, Whole
from nodeagent.config.knobs import Section, knob
from nodeagent.config.sections.repairers import NodeConditionSettings, NvsentinelSettings

LabelSink: TypeAlias = Literal["node", "nfd_file", "node_feature", "stdout"]
LabelCompatibility: TypeAlias = Literal["gpu_manager"]
RefusedPhase: TypeAlias = Literal["failed", "pending"]

POD_NAME = Text("the name of a pod", r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", 253)
TAINT = Text(
    "a taint such as nvidia.com/gpu-starting:NoSchedule",
    r"[A-Za-z0-9./_-]+(=[A-Za-z0-9._-]*)?:(NoSchedule|PreferNoSchedule|NoExecute)",
    400,
)
LABEL_VALUE = Text("a label's value", r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", 63)
EXTENDED_RESOURCE = Text("a resource name with its domain", r"[a-z0-9.-]+/[A-Za-z0-9._-]+", 253)


class LabelsSettings(Section):
    """The labels about the node's GPUs, and the places where labels are written."""

    sinks: tuple[LabelSink, ...] = knob(
        ListOf(OneOf[LabelSink](("node", "nfd_file", "node_feature", "stdout"))),
        ("node",),
        "where labels go: node object, NFD feature file, NodeFeature object, standard output; empty means nowhere",
        "the node object needs no other program",
        reload=True,
    )
    hold_seconds: float = knob(
        Number(0, 3600),
        10.0,
        "how long a change must last before it is published; changes of capacity are published at once",
        "labels that change to and fro must not move pods",
        reload=True,
    )
    per_model: bool = knob(
        Flag(),
        default=False,
        what="describe nodes with several GPU models model by model as well",
        why="most nodes have one model, and every label costs the API server",
        reload=True,
    )
    timestamp: bool = knob(
        Flag(),
        default=True,
        what="write when the labels last changed",
        why="GPU feature discovery writes that key",
        reload=True,
    )
    static: Mapping[str, str] = knob(
        MapOf(LABEL_KEY, LABEL_VALUE),
        {},
        "labels of your own for this node, key by key; the chart's admission policy lets the agent write these too",
        "what marks a pool of GPU nodes is yours to say",
        reload=True,
    )
    compatibility: tuple[LabelCompatibility, ...] = knob(
        ListOf(OneOf[LabelCompatibility](("gpu_manager",))),
        (),
        "labels of other programs to write too: `gpu_manager` is `gaia.tencent.com/gpu-model`",
        "only clusters that come from such a program select on them",
        reload=True,
    )
    nfd_dir: Path = knob(
        AbsolutePath(),
        Path("/etc/kubernetes/node-feature-discovery/features.d"),
        "where NFD reads feature files",
        "NFD's default",
    )
    machine_type_file: Path = knob(
        AbsolutePath(),
        Path("/sys/class/dmi/id/product_name"),
        "where the name of the machine is read",
        "the firmware's own word",
    )


class KubernetesSettings(Section):
    """The API server, needed for the node's labels, conditions, taints and events, and where other settings say so."""

    enabled: Literal["auto", "true", "false"] = knob(
        OneOf(("auto", "true", "false")),
        "auto",
        "talk to the API server: if credentials are found, always, or never",
        "the same configuration then serves nodes in and out of a cluster",
    )
    kubeconfig: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "credentials; empty means the service account of the pod",
        "a pod of a DaemonSet has a service account",
    )
    namespace: str | None = knob(
        Maybe(NAMESPACE),
        None,
        "namespace of what we create; empty means the service account's own, or default",
        "the agent's objects live beside the agent",
    )
    pod_name: str | None = knob(
        Maybe(POD_NAME),
        None,
        "the agent's own pod, whose DaemonSet then owns NodeFeature objects; empty means"
        " NodeFeature objects without an owner",
        "only the chart's DaemonSet passes the name",
        also_env="POD_NAME",
    )
    request_timeout_seconds: float = knob(
        Number(0.5, 300),
        10.0,
        "time a request to the API server may take",
        "an API server that is slower than this is as good as away",
        reload=True,
    )
    watch_silence_seconds: float = knob(
        Number(5, 3600),
        150.0,
        "silence after which the watch of the node is taken for dead and begun anew",
        "the server says something each minute, a connection whose other end is gone never",
    )
    requests_per_second: float = knob(
        Number(0.1, 1000), 5.0, "requests in the long run", "a thousand nodes share one API server", reload=True
    )
    request_burst: int = knob(Whole(1, 1000), 10, "requests at once", "enough for a start", reload=True)
    catch_up_max_seconds: float = knob(
        Number(0, 600),
        10.0,
        "longest random pause before the node is brought up to date after the API server was away",
        "all agents notice its return in the same second",
        reload=True,
    )
    node_condition: bool = knob(
        Flag(),
        default=True,
        what="keep the node condition nvidia.com/GPUReady",
        why="autoscalers and people look at node conditions",
        reload=True,
    )
    events: bool = knob(
        Flag(),
        default=True,
        what="write Kubernetes events for what a person must know",
        why="events show in `kubectl describe node`",
        reload=True,
    )
    startup_taint: str | None = knob(
        Maybe(TAINT),
        None,
        "taint that is taken off the node once its GPUs are ready",
        "node pools whose nodes start with a taint name the taint here",
        reload=True,
    )
    hami_cordon: bool = knob(
        Flag(),
        default=False,
        what="keep new pods from the GPUs that HAMi's annotation hami.io/device-cordon of the node names, too",
        why="only clusters that come from HAMi cordon GPUs by that annotation",
        reload=True,
    )
    taint_again: bool = knob(
        Flag(),
        default=False,
        what="put that taint back when the GPUs are no longer ready",
        why="unhealthy devices are withdrawn one by one; a taint withdraws the node",
        reload=True,
    )
    terminal_after_attempts: int = knob(
        Whole(1, 1000),
        5,
        "failed attempts to get the GPUs ready after which the node is reported as lost for good",
        "autoscalers then replace the node",
        reload=True,
    )
    delete_refused_pods: tuple[RefusedPhase, ...] = knob(
        ListOf(OneOf[RefusedPhase](("failed", "pending"))),
        (),
        "pods of this node to delete that were refused for a resource of the agent, have a controller and have never"
        " run: `failed` are those given up by the kubelet (UnexpectedAdmissionError), `pending` those whose container"
        " was refused at its start; needs the right to delete pods, deploy/rbac-refused-pods.yaml",
        "a node needs no such right for its own work; waits for a restart where it comes for the first time",
        reload=True,
        makes_part=bool,
    )
    refused_pod_wait_seconds: float = knob(
        Number(10, 86400),
        300.0,
        "how long a pending pod must be refused before it is deleted",
        "the kubelet asks again, with pauses of up to some minutes, and room may come",
        reload=True,
    )
    refused_pods_max: int = knob(
        Whole(1, 1000),
        10,
        "refused pods deleted in ten minutes; the others stay, and a condition names them",
        "on a node that refuses everything, each deletion brings the next pod",
        reload=True,
    )


class SignalsSettings(Section):
    """Faults of GPUs: told to pods and to programs that repair nodes; the brake keeps further pods from being lost."""

    pod_events: bool = knob(
        Flag(),
        default=True,
        what="write an event on each pod that holds a GPU with a fault, where `kubernetes.events` is on",
        why="whose fault it was that a pod died is asked of the pod, and the node's events are not its owner's to read",
        reload=True,
    )
    brake: bool = knob(
        Flag(),
        default=True,
        what="close a GPU to new pods while start after start on the GPU is lost, and let single pods try it later",
        why="a GPU on which every pod dies at once is free at once, and takes the next pod of the queue",
        reload=True,
    )
    brake_losses: int = knob(
        Whole(1, 1000),
        3,
        "starts on one GPU, lost by faults of that GPU in an hour, that close the GPU",
        "one fault may be chance, and each further one costs a pod; user XIDs and ends without an XID never count",
        reload=True,
    )
    brake_within_seconds: float = knob(
        Number(1, 3600),
        60.0,
        "how soon after its start a pod must end to be lost; a start that lasts longer proves its GPU",
        "programs need tens of seconds to load, and a GPU that runs a program for a minute is no trap",
        reload=True,
    )
    brake_refusals: int = knob(
        Whole(1, 1000),
        5,
        "requests of the kubelet for one GPU, refused within a minute, that close the GPU",
        "the kubelet gives a pod up whose request is refused, and its controller makes the next pod at once",
        reload=True,
    )
    brake_pause_seconds: float = knob(
        Number(1, 86400),
        300.0,
        "how long a GPU is closed before a single pod may try it; twice as long after each trial that fails, up to 8 h",
        "each trial may cost a pod",
        reload=True,
    )
    pod_condition: bool = knob(
        Flag(),
        default=False,
        what="write the condition nodeagent.io/GPUFault on each pod that holds a GPU or a node that failed, for the"
        " `podFailurePolicy` of Jobs; needs the right to write the status of pods, deploy/rbac-pod-conditions.yaml",
        why="a node needs no such right for its own work, and only Jobs that ask for the condition read it",
        reload=True,
    )
    node_conditions: tuple[NodeConditionSettings, ...] = knob(
        ListOf(Nested(NodeConditionSettings)),
        (),
        "node conditions that tell other programs of faulty GPUs; the chart's admission policy lets the agent write"
        " these types too",
        "whoever reads such a condition may replace the node: no type is a default",
        reload=True,
    )
    nvsentinel: NvsentinelSettings = knob(
        Nested(NvsentinelSettings), NvsentinelSettings(), "faults of GPUs, told to NVSentinel's platform connector"
    )
    receipts: bool = knob(
        Flag(),
        default=False,
        what="give each container with GPUs a read-only directory /run/nodeagent: its devices, and their faults",
        why="each new container has a mount more; containers with such a directory keep it when this is off again",
    )


class MetricsSettings(Section):
    """The metrics at /metrics: names, labels and values of DCGM exporter, and the agent's own."""

    fields_file: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "list of fields in DCGM exporter's CSV format; it replaces the default list",
        "existing dashboards use the fields of the default list",
    )
    stale_after_seconds: float = knob(
        Number(1, 86400),
        60.0,
        "age at which a sample is left out rather than shown",
        "a number that old misleads; its age is shown from the first second",
        reload=True,
    )
    xid_window_seconds: float = knob(
        Number(1, 86400), 300.0, "window in which XIDs are counted", "as in DCGM exporter", reload=True
    )
    xid_zero_before_first: bool = knob(
        Flag(),
        default=False,
        what="show DCGM_FI_DEV_XID_ERRORS as 0 with `No Error` before a GPU's first XID, where it is absent else",
        why="current releases of DCGM exporter leave it out; alerts with `changes()` made for older ones need the 0",
        reload=True,
    )
    clock_events_window_seconds: float = knob(
        Number(1, 86400), 300.0, "window in which clock events are counted", "as in DCGM exporter", reload=True
    )
    host_label: Literal["Hostname", "hostname", "none"] = knob(
        OneOf(("Hostname", "hostname", "none")),
        "Hostname",
        "spelling of the host name's label, or none",
        "as in DCGM exporter up to release 4.8.2; later builds of its branch main write hostname",
        reload=True,
    )
    replace_blanks_in_model_name: bool = knob(
        Flag(), default=False, what="write blanks in model names as dashes", why="as in DCGM exporter", reload=True
    )
    pod_attribution: bool = knob(
        Flag(),
        default=True,
        what="say which pod, namespace and container holds each GPU",
        why="the agent knows the pods of all devices from its journal",
        reload=True,
    )
    old_namespace_labels: bool = knob(
        Flag(),
        default=False,
        what="write pod_name, pod_namespace, container_name instead of pod, namespace, container",
        why="only dashboards of the 1.x exporter need the old labels",
        reload=True,
    )
    pod_uid: bool = knob(
        Flag(), default=False, what="write the pod's UID as a label", why="every pod makes new series then", reload=True
    )
    pod_labels: bool = knob(
        Flag(),
        default=False,
        what="write the labels of pods as an info series",
        why="the labels need permission to read pods",
        reload=True,
    )
    pod_label_allowlist: tuple[str, ...] = knob(
        ListOf(Regex()),
        (),
        "regular expressions for the keys of those labels; empty means every label",
        "as in DCGM exporter",
        reload=True,
    )
    extra_resource_names: tuple[str, ...] = knob(
        ListOf(EXTENDED_RESOURCE),
        (),
        "resources of other device plugins whose ids are GPU UUIDs too",
        "the agent's own are known",
        reload=True,
    )
    processes: bool = knob(
        Flag(),
        default=True,
        what="share the use of a GPU out among the pods on it, from process accounting",
        why="without these series nobody sees which process uses a shared GPU",
        reload=True,
    )
