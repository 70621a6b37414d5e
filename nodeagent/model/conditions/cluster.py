"""Conditions of the node's connection to its cluster."""

from nodeagent.model.conditions.definition import ConditionDefinition

CLUSTER_CONDITIONS: tuple[ConditionDefinition, ...] = (
    ConditionDefinition(
        code="api-unreachable",
        severity="warning",
        title="the API server cannot be used",
        remedy="mend what the detail names; devices are advertised all the same, labels and conditions catch up later",
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="labels-not-written",
        severity="warning",
        title="the node's labels are not as they should be",
        remedy="mend what the detail names, see `nodeagent labels`; the last ones stay",
        show_after_seconds=30.0,
        depends_on=("api-unreachable",),
    ),
    ConditionDefinition(
        code="labels-contested",
        severity="warning",
        title="somebody else writes a label of this node otherwise",
        remedy="stop the other writer, or take the label off with `kubectl label node NAME KEY-`",
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="labels-left-out",
        severity="info",
        title="a label would not be legal and is left out",
        remedy="report it with the name of the GPU; all other labels are written",
    ),
    ConditionDefinition(
        code="slices-not-written",
        severity="error",
        title="the cluster does not know which devices claims can have on this node",
        remedy="mend what the detail names; mostly a missing right, see deploy/rbac-claims.yaml; it is tried again"
        " until the API server has it",
        show_after_seconds=10.0,
        depends_on=("api-unreachable", "claims-without-api"),
    ),
    ConditionDefinition(
        code="slices-not-kept",
        severity="warning",
        title="the API server does not keep all that it is told of this node's devices",
        remedy="switch on the feature gates that the detail names, in API server, scheduler and controller manager,"
        " then restart the agent",
        show_after_seconds=5.0,
    ),
    ConditionDefinition(
        code="resource-by-two-ways",
        severity="warning",
        title="pods get a resource of this node by the device plugin and by claims",
        remedy="give all GPUs of this node one door in `doors.rules`, with `device_plugin.enabled: false` where it is"
        " claims; or take `extendedResourceName` from the class: see docs/slices.md",
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="node-not-updated",
        severity="warning",
        title="the node's condition or taint is not as it should be",
        remedy="mend what the detail names; mostly a missing right, see deploy/rbac.yaml",
        show_after_seconds=30.0,
        depends_on=("api-unreachable",),
    ),
    ConditionDefinition(
        code="node-paused",
        severity="info",
        title="the cluster has paused this node's GPU parts, all handles are released",
        remedy="wait for the driver upgrade or MIG change, or set the label in the detail back to true",
    ),
    ConditionDefinition(
        code="workload-invalid",
        severity="warning",
        title="a pod with a GPU did not work on this node, or could not be tried",
        remedy="mend what the detail names; `nodeagent gpu validate` in a container with a GPU says the same. A pod is"
        " tried again every minute",
        show_after_seconds=30.0,
        depends_on=("api-unreachable",),
    ),
    ConditionDefinition(
        code="pod-labels-unknown",
        severity="warning",
        title="the labels of pods cannot be read for metrics",
        remedy="mend what the detail names; mostly a missing right, see deploy/rbac-pod-labels.yaml",
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="pod-events-unwritten",
        severity="warning",
        title="pods are not told of the faults of their GPUs",
        remedy="mend what the detail names; mostly a missing right or an older policy, see deploy/rbac.yaml",
        show_after_seconds=30.0,
        depends_on=("api-unreachable",),
    ),
    ConditionDefinition(
        code="pod-conditions-unwritten",
        severity="warning",
        title="pods do not get the condition by which Jobs leave faults of GPUs uncounted",
        remedy="mend what the detail names; mostly a missing right, see deploy/rbac-pod-conditions.yaml",
        show_after_seconds=30.0,
        depends_on=("api-unreachable",),
    ),
    ConditionDefinition(
        code="node-conditions-not-written",
        severity="warning",
        title="other programs are not told of faulty GPUs by the node conditions of the configuration",
        remedy="mend what the detail names; mostly a type of `signals.node_conditions` that the admission policy does"
        " not have, see docs/signals.md",
        show_after_seconds=30.0,
        depends_on=("api-unreachable",),
    ),
    ConditionDefinition(
        code="node-condition-contested",
        severity="warning",
        title="another program writes a node condition of the configuration, the agent leaves it alone",
        remedy="switch the other writer off and delete the condition, or give `signals.node_conditions` another type",
        show_after_seconds=5.0,
    ),
    ConditionDefinition(
        code="repaired-by-nvsentinel",
        severity="info",
        title="NVSentinel has marked this node",
        remedy="wait for NVSentinel, or for the program that has the node from NVSentinel; the agent changes no mark",
    ),
    ConditionDefinition(
        code="nvsentinel-not-told",
        severity="warning",
        title="NVSentinel is not told of the faults of this node's GPUs",
        remedy="see that the platform connector runs on this node and that `signals.nvsentinel.socket` is its socket",
        show_after_seconds=60.0,
    ),
    ConditionDefinition(
        code="told-faults-not-kept",
        severity="warning",
        title="the agent cannot keep of which faults NVSentinel was told",
        remedy="free space, or inodes, on the file system of `node.state_dir` and check that it is writable; after a"
        " restart faults may be told twice, and the end of one never",
        show_after_seconds=5.0,
    ),
    ConditionDefinition(
        code="refused-pods-unknown",
        severity="warning",
        title="the pods that this node refuses cannot be followed, none is deleted",
        remedy="mend what the detail names; mostly a missing right, see deploy/rbac-refused-pods.yaml",
        show_after_seconds=30.0,
        depends_on=("api-unreachable",),
    ),
    ConditionDefinition(
        code="refused-pods-left",
        severity="warning",
        title="pods that this node refuses are not deleted",
        remedy="mend what the detail names; where the node refuses one pod after the other, keep pods away with"
        " `kubectl cordon` meanwhile",
        show_after_seconds=5.0,
        depends_on=("api-unreachable",),
    ),
    ConditionDefinition(
        code="named-configuration-unknown",
        severity="warning",
        title="the node's label asks for a configuration that there is none of",
        remedy="correct the label nvidia.com/device-plugin.config or add the file; the present one stays in force",
    ),
    ConditionDefinition(
        code="configuration-not-remembered",
        severity="warning",
        title="which configuration the label chose cannot be kept, a start without the API server has the default one",
        remedy="free space, or inodes, on the file system of `node.state_dir` and check that it is writable",
        show_after_seconds=2.0,
    ),
)
