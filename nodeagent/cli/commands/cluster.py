"""Commands about the agents of the whole cluster, which run anywhere with an API server."""

from nodeagent.cli.commands.shared import CONFIG, SET, TABLE
from nodeagent.cli.frame.command import Argument, Command, Example
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.frame.values import parse_duration

_REACHING = (
    CONFIG,
    SET,
    Argument(
        ("--kubeconfig",),
        "credentials (default: kubernetes.kubeconfig, the pod's account, KUBECONFIG, ~/.kube/config)",
        metavar="FILE",
    ),
    Argument(
        ("--namespace", "-n"),
        "of the agents' DaemonSet (default: kubernetes.namespace, in a pod the pod's own, else every namespace)",
        metavar="NAMESPACE",
    ),
)

CLUSTER = Command(
    "cluster",
    "the agents of the whole cluster: which nodes are not ready, and why",
    examples=(Example("nodeagent cluster status", "which nodes are not ready, from anywhere with a kubeconfig"),),
    subcommands=(
        Command(
            "status",
            "whether every node's agent and GPUs are ready, and else which are not, why, and what to do",
            runs="nodeagent.cli.cluster.status:run",
            exits=(ExitCode.NOT_READY, ExitCode.UNREACHABLE),
            description=(
                "Asks the API server, and no agent: DaemonSets, pods of agents, and the condition nvidia.com/GPUReady\n"
                "of each node with an agent. Ready nodes are counted, by version and by GPU model.\n"
                "Exit code 7: a node is not ready, or an update is under way; 4: no DaemonSet or no API server."
            ),
            arguments=(
                *_REACHING,
                *TABLE,
                Argument(
                    ("--wait",),
                    "until every node has been ready for ten seconds, or for so long, with a line for each change",
                    metavar="DURATION",
                    nargs="?",
                    default=0.0,
                    parse=parse_duration,
                ),
            ),
            examples=(
                Example("nodeagent cluster status", "every node that is not ready"),
                Example("nodeagent cluster status --wait 10m", "after an installation or update, in a script"),
                Example("nodeagent cluster status -o name", "the nodes that are not ready, for a loop in a shell"),
            ),
        ),
        Command(
            "publish",
            "keep the condition nodeagent.io/Ready of the agents' DaemonSet: one process in a cluster",
            runs="nodeagent.cli.cluster.publish:run",
            exits=(ExitCode.STOP_OVERRAN,),
            description=(
                "Runs until SIGTERM; the chart runs it with clusterStatus.enabled. It watches what `cluster status`\n"
                "reads and writes when the answer changes, for `kubectl wait --for=condition=nodeagent.io/Ready`."
            ),
            arguments=_REACHING,
            examples=(Example("nodeagent cluster publish", "as its Deployment does"),),
        ),
    ),
)
