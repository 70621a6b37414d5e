"""What the scheduler's extender takes: an answer for clusters of several sizes, memory, and a start from full lists.

Nodes have eight GPUs, half of which is given away in parts of many sizes, pods differ from one to the next, and each
that is placed counts from then on. An answer is measured from the bytes of the question to the bytes of the answer,
filter and prioritize together; what the API server takes to write a choice down is its own. The first answer when the
extender says that it is ready, and those about containers that fit a node singly but not together, are told as ratios
to the usual ones of the same run, which mean the same on any machine.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from tests.bench.rows import Row

SIZES: Final = (1000, 5000)
LIMITS_MS: Final = {1000: 10.0, 5000: 40.0}
COMPARED: Final = (5000, 20000)
TIMES: Final = 2.0
"""Any question may take so many times as long as the longest of a hundred usual ones."""
CURVE: Final = (1000, 2000, 5000, 10000, 20000)
ASKED: Final = 200
TOGETHER: Final = 50
MEMORY_NODES, MEMORY_PODS = 5000, 50_000
GPUS: Final = 8


def measure() -> list[Row]:
    rows = [_tell_usual(nodes, ask(nodes)) for nodes in CURVE]
    told = _run("weigh", str(MEMORY_NODES), str(MEMORY_PODS))
    rows.append(Row(f"extender: {MEMORY_NODES} nodes, {MEMORY_PODS} pods", "MiB", [told["mebibytes"]], limit=400))
    rows.append(Row("extender: the same from full lists", "s", [told["seconds"]], limit=5))
    return rows


def measure_ratios() -> list[Row]:
    """Questions that are not the usual ones against the 99th percentile of those, in one run for each size."""
    rows = []
    for nodes in COMPARED:
        told = _run("answer", str(nodes))
        usual = _tell_usual(nodes, told["millis"]).percentile(0.99)
        for what, millis in (
            ("the first question", told["millis"][:1]),
            ("what does not fit together", told["together"]),
        ):
            times = [each / usual for each in millis]
            rows.append(Row(f"{what}, {nodes} nodes, times the usual p99", "x", times, TIMES, limit_is_for=0.99))
    return rows


def ask(nodes: int) -> list[float]:
    """Milliseconds of each usual question, in a process of its own."""
    millis: list[float] = _run("answer", str(nodes))["millis"]
    return millis


def _tell_usual(nodes: int, millis: list[float]) -> Row:
    name = f"filter and prioritize, {nodes} nodes"
    return Row(name, "ms", millis, LIMITS_MS.get(nodes), limit_is_for=0.99)


def _run(*words: str) -> Any:
    line = (sys.executable, "-m", "tests.bench.whole.extender", *words)
    return json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    what, nodes, *more = sys.argv[1:]
    told = answer(int(nodes)) if what == "answer" else weigh(int(nodes), int(more[0]))
    sys.stdout.write(json.dumps(told))


def answer(nodes: int) -> dict[str, Any]:
    from nodeagent.extender.program import settle_heap  # noqa: PLC0415 - likewise
    from nodeagent.extender.wire import parse_question, render_filtered, render_scores  # noqa: PLC0415 - see `weigh`
    from tests.support.scheduling import FakeScheduler  # noqa: PLC0415 - likewise

    chance = Random(nodes)
    scheduler = FakeScheduler()
    cluster, decider = scheduler.cluster, scheduler.decider
    for page in _list_nodes(nodes):
        _take_nodes(cluster, page)
    _fill(scheduler, chance)
    names = list(cluster.nodes)
    cluster.prepare(names)
    settle_heap()

    def ask_once(pod_document: dict[str, Any], *, only_best: bool = False) -> float:
        body = json.dumps({"Pod": pod_document, "NodeNames": names, "Nodes": None}).encode()
        began = time.perf_counter()
        asked = parse_question(body, most_nodes=nodes)
        pod = cluster.read_pod(asked.pod)
        assert pod is not None
        found = decider.filter(pod, asked.names, only_best=only_best)
        rendered = render_filtered(asked, found)
        scores = render_scores(decider.prioritize(pod, found.fitting))
        taken = 1000 * (time.perf_counter() - began)
        assert rendered
        assert scores
        if found.chosen is not None:
            cluster.assume(pod, found.chosen.node, found.chosen.placement.parts, None, 1e9)
        return taken

    millis = [ask_once(_make_pod(f"new-{number}", chance)) for number in range(ASKED)]
    together = []
    for number in range(TOGETHER):
        count, cores = chance.choice(((3, 200), (9, chance.randrange(51, 100)), (5, chance.randrange(40, 100))))
        pod = _make_pod(f"together-{number}", chance, cores=cores, blocks=chance.randrange(1, 60))
        pod["spec"]["containers"] *= count
        together.append(ask_once(pod, only_best=True))
    return {"millis": millis, "together": together}


def weigh(nodes: int, pods: int) -> dict[str, Any]:
    """Resident memory after everything was listed, and how long that took; the lists are read as they come."""
    from nodeagent.extender.cluster import Cluster  # noqa: PLC0415 - imports count into what is weighed
    from tests.support.scheduling import PROFILES  # noqa: PLC0415 - likewise

    cluster = Cluster(PROFILES, assume_seconds=600.0)
    seconds = 0.0
    for page in _list_nodes(nodes):
        began = time.perf_counter()
        _take_nodes(cluster, page)
        seconds += time.perf_counter() - began
    for page in _list_pods(nodes, pods):
        began = time.perf_counter()
        _take_pods(cluster, page)
        seconds += time.perf_counter() - began
    began = time.perf_counter()
    cluster.prepare(cluster.nodes)
    seconds += time.perf_counter() - began
    with open("/proc/self/status") as status:  # noqa: PTH123 - pathlib is none of the extender's
        resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
    return {"mebibytes": resident / 1024, "seconds": seconds, "pods": len(cluster.pods)}


def _take_nodes(cluster: Any, page: bytes) -> None:
    import msgspec  # noqa: PLC0415 - as above

    from nodeagent.edge.kube.fleet_documents import parse_node  # noqa: PLC0415 - as above

    for item in msgspec.json.decode(page, type=dict[str, list[msgspec.Raw]])["items"]:
        cluster.note_node(parse_node(item))


def _take_pods(cluster: Any, page: bytes) -> None:
    import msgspec  # noqa: PLC0415 - as above

    from nodeagent.edge.kube.fleet_documents import parse_pod  # noqa: PLC0415 - as above

    for item in msgspec.json.decode(page, type=dict[str, list[msgspec.Raw]])["items"]:
        cluster.note_pod(parse_pod(item), 0.0)


def _list_nodes(count: int) -> Iterator[bytes]:
    """Pages of 500; each node has the annotation of eight GPUs of its own and what else a node says of itself."""
    from tests.support.gpus import gpu_uuid, make_inventory  # noqa: PLC0415 - as above
    from tests.support.placement import eight, eight_paths  # noqa: PLC0415 - as above
    from tests.support.scheduling import publish  # noqa: PLC0415 - as above

    text = publish(make_inventory(eight().gpus, eight_paths))
    for start in range(0, count, 500):
        items = []
        for number in range(start, min(start + 500, count)):
            own = text
            for index in range(GPUS):
                own = own.replace(gpu_uuid(index), _name_gpu(number, index))
            metadata = {"name": f"node-{number:05}", "annotations": {"nvidia.com/gpu-fractions": own}}
            images = [{"names": [f"registry.example/image-{each}@sha256:{each:064x}"]} for each in range(50)]
            items.append({"metadata": metadata, "status": {"capacity": {"cpu": "64"}, "images": images}})
        yield json.dumps({"items": items}).encode()


def _list_pods(nodes: int, count: int) -> Iterator[bytes]:
    """Pages of 500; each pod has a tenth of a GPU, and as much else as pods have."""
    for start in range(0, count, 500):
        items = []
        for number in range(start, min(start + 500, count)):
            node, slot = number % nodes, number // nodes
            uuid = _name_gpu(node, slot % GPUS)
            pod = _make_pod(f"pod-{number}", Random(number), cores=10, blocks=8)
            pod["metadata"]["annotations"] |= {
                "tencent.com/predicate-gpu-idx-0": str(slot % GPUS),
                "tencent.com/predicate-gpu-uuid-0": uuid,
                "tencent.com/predicate-node": f"node-{node:05}",
                "tencent.com/predicate-time": str(1_700_000_000_000_000_000 + number),
                "tencent.com/gpu-assigned": "true",
            }
            pod["spec"]["nodeName"] = f"node-{node:05}"
            items.append(pod)
        yield json.dumps({"items": items}).encode()


def _name_gpu(node: int, index: int) -> str:
    return f"GPU-b{node:07x}-{index:04x}-0000-0000-000000000000"


def _make_pod(name: str, chance: Random, *, cores: int = 0, blocks: int = 0) -> dict[str, Any]:
    """As a Deployment makes them: a part of any size, or now and then some whole GPUs."""
    cores = cores or chance.choice((chance.randrange(1, 100), chance.randrange(1, 60), 100, 200))
    limits = {"tencent.com/vcuda-core": str(cores)}
    if cores < 100:
        limits["tencent.com/vcuda-memory"] = str(blocks or chance.randrange(1, 128))
    environment = [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(20)]
    container = {"name": "main", "image": "image:1", "env": environment, "resources": {"limits": limits}}
    fields: dict[str, Any] = {f"f:{number}": {} for number in range(40)}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"00000000-0000-0000-0000-{abs(hash(name)) % 10**12:012}",
            "resourceVersion": "1",
            "annotations": {},
            "labels": {"app": "bench"},
            "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": fields}],
        },
        "spec": {"containers": [container], "tolerations": [{"key": "nvidia.com/gpu"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}] * 5},
    }


def _fill(scheduler: Any, chance: Random) -> None:
    """Half of every node's GPUs are given away, in parts, to pods that say where they are."""
    from tests.support.scheduling import limit, make_pod  # noqa: PLC0415 - as above

    for name in scheduler.names:
        for index in range(GPUS):
            cores = chance.choice((0, 20, 30, 50, 50, 70, 80, 100))
            if cores:
                request = {"tencent.com/predicate-gpu-idx-0": str(index)}
                limits = limit(cores, 0 if cores == 100 else chance.randrange(8, 80))
                pod = make_pod(f"{name}-{index}", limits, node=name, annotations=request)
                scheduler.cluster.note_pod(pod, 0.0)


if __name__ == "__main__":
    main()
