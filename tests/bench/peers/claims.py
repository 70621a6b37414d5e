"""Claims of the agent and of NVIDIA's DRA driver: one after the other, many in one call, many calls at once.

Both read claims at a real API server, and both give away the GPUs of one fake driver whose device nodes are there.
The DRA driver's client is let ask as often as it wants: by default it asks five times a second, and what would be
measured is that. Many claims at a time have the devices for administrators, who are refused no device by either side.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import grpc

from nodeagent.edge.kubelet.proto import dra_v1_pb2 as wire
from tests.bench.around.node import BenchNode
from tests.bench.compare import Rows
from tests.bench.peers.api_server import real_api_server, write_node
from tests.bench.peers.node import NotMeasured, list_words, peer_node, render_command, wait_for
from tests.bench.peers.originals import Built
from tests.bench.peers.table import Goal, Turn
from tests.bench.pieces.claims import BY_CLAIMS, DRIVER, SERVICE, WARM, prepare_each, register
from tests.bench.rows import Row, index_rows
from tests.integration.claims import CLAIMS, GPU
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import NODE_NAME

ONE, MANY, LINEAR, AT_ONCE, REFUSED = (
    "Prepare of a claim",
    "1,000 claims in one call",
    "a claim of 1,000 in one call, by one of 100",
    "250 calls at once",
    "refused of 250 calls at once",
)
GOALS: Final = (
    Goal(ONE, limit=0.5),
    Goal(ONE, "p99"),
    Goal(MANY),
    Goal(LINEAR, limit=1.5, is_of_ours=True),
    Goal(AT_ONCE),
    Goal(REFUSED, limit=0.0, is_of_ours=True),
)
CALL_SECONDS: Final = 45.0
"""As long as the kubelet waits for an answer."""
TOGETHER_SECONDS: Final = 600.0
"""For a call about many, so that one that the kubelet would have given up is told with its time."""
SETTLE_SECONDS: Final = 5.0
"""Whoever has just registered is still busy with the start."""
ADMINISTRATORS: Final = "administrators"
GPUS: Final = 8
WRITERS: Final = 16


class Sizes(NamedTuple):
    """How many claims of each kind; one that was put away is not made ready again."""

    one: int = 100
    few: int = 100
    many: int = 1000
    calls: int = 250


SIZES: Final = Sizes()


class Claims(NamedTuple):
    """Those that a turn asks about."""

    one: list[wire.Claim]
    few: list[wire.Claim]
    many: list[wire.Claim]
    calls: list[wire.Claim]


def measure(original: Built, turns: int, sizes: Sizes = SIZES) -> Iterator[Turn]:
    """Each on a fresh node; the claims are there before the first."""
    with real_api_server() as cluster:
        write_node(cluster)
        labels = {"resource.kubernetes.io/admin-access": "true"}
        cluster.api.post("/api/v1/namespaces", {"metadata": {"name": ADMINISTRATORS, "labels": labels}})
        claims = Claims(
            write_claims(cluster, "one", sizes.one + WARM),
            *(
                write_claims(cluster, name, count, namespace=ADMINISTRATORS)
                for name, count in list(sizes._asdict().items())[1:]
            ),
        )
        for _ in range(turns):
            yield _measure(cluster, None, claims), _measure(cluster, original, claims)


def _measure(cluster: Cluster, original: Built | None, claims: Claims) -> Rows:
    with peer_node() as (node, driver), running_claims(cluster, node, driver, original) as socket:
        millis = prepare_each(socket, claims.one)[WARM:]
        few_seconds = _prepare_together(socket, claims.few)
        many_seconds = _prepare_together(socket, claims.many)
        refused, at_once_seconds = _prepare_at_once(socket, claims.calls)
    each = (many_seconds / len(claims.many)) / (few_seconds / len(claims.few))
    return index_rows(
        [
            Row(ONE, "ms", millis),
            Row(MANY, "ms", [1000 * many_seconds]),
            Row(LINEAR, "x", [each]),
            Row(AT_ONCE, "ms", [1000 * at_once_seconds]),
            Row(REFUSED, "", [float(refused)]),
        ]
    )


@contextmanager
def running_claims(cluster: Cluster, node: BenchNode, driver: Path, original: Built | None) -> Iterator[Path]:
    """The socket on which the agent answers about claims, or the original."""
    registry = node.directory / "registry"
    registry.mkdir()
    with ExitStack() as stack:
        if original is None:
            words = list_words(
                {
                    "node.name": NODE_NAME,
                    "driver.root": driver,
                    "kubernetes.enabled": "true",
                    "kubernetes.kubeconfig": cluster.layout.kubeconfig("admin"),
                    "claims.enabled": "true",
                    "claims.plugins_dir": node.directory / "plugins",
                    "claims.registry_dir": registry,
                }
            )
            running = stack.enter_context(node.running_agent(*words, "--set", BY_CLAIMS))
        else:
            kubeconfig = cluster.layout.kubeconfig("admin")
            running = stack.enter_context(node.running_plugin(render_driver(original, node, driver, kubeconfig)))
        wait_for([running], lambda: any(registry.iterdir()), "a registration socket")
        socket = register(registry)
        time.sleep(SETTLE_SECONDS)
        yield socket


def render_driver(original: Built, node: BenchNode, driver: Path, kubeconfig: Path) -> str:
    """The command of NVIDIA's DRA driver."""
    words: dict[str, object] = {
        "node-name": NODE_NAME,
        "namespace": "default",
        "image-name": "none",
        "cdi-root": node.directory / "cdi-of-claims",
        "nvidia-driver-root": driver,
        "container-driver-root": driver,
        "nvidia-cdi-hook-path": "/usr/bin/nvidia-cdi-hook",
        "kubelet-registrar-directory-path": node.directory / "registry",
        "kubelet-plugins-directory-path": node.directory / "plugins",
        "kubeconfig": kubeconfig,
        "kube-api-qps": 10_000,
        "kube-api-burst": 10_000,
    }
    return render_command(original.program, words)


def write_claims(cluster: Cluster, prefix: str, count: int, namespace: str = "default") -> list[wire.Claim]:
    """Claims that the scheduler has given a GPU of this node; in any other namespace as for administrators."""
    is_admin = namespace != "default"
    path = CLAIMS.replace("/default/", f"/{namespace}/")
    admin = {"adminAccess": True} if is_admin else {}

    def write(number: int) -> wire.Claim:
        exactly = {"deviceClassName": GPU, **admin}
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
        claim = cluster.api.post(path, {"metadata": {"name": f"{prefix}-{number}"}, "spec": spec})
        result = {"request": "gpu", "driver": DRIVER, "pool": NODE_NAME, "device": f"gpu-{number % GPUS}", **admin}
        reserved = {"resource": "pods", "name": f"p{number}", "uid": f"pod-{number}"}
        status = {"reservedFor": [reserved], "allocation": {"devices": {"results": [result]}}}
        metadata = cluster.api.put(f"{path}/{prefix}-{number}/status", claim | {"status": status})["metadata"]
        return wire.Claim(namespace=namespace, name=metadata["name"], uid=metadata["uid"])

    with futures.ThreadPoolExecutor(WRITERS) as writers:
        return list(writers.map(write, range(count)))


def _prepare_together(socket: Path, claims: Sequence[wire.Claim]) -> float:
    """Seconds of one call about all of them; they are put away again, which nobody times.

    Raises:
        NotMeasured: some were refused, or all.
    """
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        prepare, unprepare = _find_calls(channel)
        began = time.perf_counter()
        try:
            answer = wire.NodePrepareResourcesResponse.FromString(prepare(_ask(claims), timeout=TOGETHER_SECONDS))
        except grpc.RpcError as error:
            raise NotMeasured(f"a call about {len(claims)} claims: {error}") from error
        seconds = time.perf_counter() - began
        wrong = [each.error for each in answer.claims.values() if not each.devices]
        if wrong or len(answer.claims) != len(claims):
            raise NotMeasured(f"a call about {len(claims)} claims: {len(answer.claims)} answers, refused: {wrong[:1]}")
        unprepare(_ask(claims), timeout=TOGETHER_SECONDS)
    return seconds


def _prepare_at_once(socket: Path, claims: Sequence[wire.Claim]) -> tuple[int, float]:
    """How many of as many calls were refused, and the seconds until the last was answered."""
    refused = 0
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        prepare, unprepare = _find_calls(channel)
        began = time.perf_counter()
        calls = [prepare.future(_ask([claim]), timeout=CALL_SECONDS) for claim in claims]
        for claim, call in zip(claims, calls, strict=True):
            if call.exception() is not None:
                refused += 1
            else:
                answer = wire.NodePrepareResourcesResponse.FromString(call.result())
                refused += bool(answer.claims[claim.uid].error)
        seconds = time.perf_counter() - began
        unprepare(_ask(claims), timeout=TOGETHER_SECONDS)
    return refused, seconds


def _find_calls(channel: grpc.Channel) -> tuple[grpc.UnaryUnaryMultiCallable, grpc.UnaryUnaryMultiCallable]:
    return (
        channel.unary_unary(f"{SERVICE}/NodePrepareResources"),
        channel.unary_unary(f"{SERVICE}/NodeUnprepareResources"),
    )


def _ask(claims: Sequence[wire.Claim]) -> bytes:
    """Both questions have the same form."""
    return wire.NodePrepareResourcesRequest(claims=claims).SerializeToString()
