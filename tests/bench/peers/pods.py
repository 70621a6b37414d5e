"""Pods with a GPU on a real cluster, from bound to container running: the agent, and NVIDIA's plugin in two ways.

By its runtime class, as the toolkit has it configured, and by CDI names alone as the agent has it. A pod is bound as it
is made, so that no scheduler is in it; its container has begun when the container runtime says so.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from json import loads
from typing import Final

from tests.bench.compare import Rows
from tests.bench.peers.api_server import real_cluster
from tests.bench.peers.node import NotMeasured
from tests.bench.peers.originals import Built, build_cdi_hook, build_plugin, build_runtime
from tests.bench.peers.table import Goal, Turn
from tests.bench.rows import Row, index_rows
from tests.fakes.nvml.control import FakeNvml
from tests.integration.cluster.agent import AgentUnderTest, Settings
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.layout import NODE_NAME
from tests.integration.cluster.namespace import join_namespace
from tests.integration.cluster.node import reset_node
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.host_driver import find_driver, installed_driver
from tests.integration.runtimes.support import built

BY_CLASS: Final = "pod with a GPU, bound to running, runtime class"
BY_CDI: Final = "pod with a GPU, bound to running, plain CDI"
GOALS: Final = (
    Goal(BY_CLASS, limit=0.85),
    Goal(BY_CLASS, "p99", limit=0.9),
    Goal(BY_CDI, limit=1.0),
    Goal(BY_CDI, "p99", limit=1.0),
)
PODS: Final = 100
GPU, GPUS = "nvidia.com/gpu", 8
CLASS: Final = "nvidia"
CLASSES: Final = "/apis/node.k8s.io/v1/runtimeclasses"
STOP_SECONDS: Final = 30.0


def measure(plugin: Built, turns: int, count: int = PODS) -> Iterator[Turn]:
    """On one cluster, with a node as new for each side."""
    hook, runtime = build_cdi_hook(), build_runtime()
    with real_cluster() as cluster, built():
        cluster.api.post(CLASSES, {"metadata": {"name": CLASS}, "handler": CLASS})
        for _ in range(turns):
            ours = _measure_ours(cluster, count)
            by_class = _measure_theirs(cluster, plugin, count, hook=hook, runtime=runtime)
            by_cdi = _measure_theirs(cluster, plugin, count, hook=hook)
            yield _index(ours, ours), _index(by_class, by_cdi)


def _index(by_class: Sequence[float], by_cdi: Sequence[float]) -> Rows:
    return index_rows([Row(BY_CLASS, "ms", by_class), Row(BY_CDI, "ms", by_cdi)])


def _measure_ours(cluster: Cluster, count: int) -> list[float]:
    reset_node(cluster)
    with installed_driver(cluster.layout) as fake:
        settings: Settings = {
            "driver": {
                "root": str(find_driver(cluster.layout)),
                "manage_device_nodes": False,
                "worker_environment": dict(fake.environment),
            },
            "cdi": {"dir": str(cluster.layout.cdi_dirs[1]), "hook_dir": str(cluster.layout.agent / "hook")},
        }
        agent = AgentUnderTest(cluster, "nvml", settings)
        agent.start()
        try:
            agent.wait_ready()
            return _run_pods(cluster, count)
        finally:
            agent.stop()


def _measure_theirs(
    cluster: Cluster, plugin: Built, count: int, *, hook: Built, runtime: Built | None = None
) -> list[float]:
    """By the runtime class where there is a runtime for it."""
    reset_node(cluster)
    driver = find_driver(cluster.layout)
    flags = [f"--nvidia-driver-root={driver}", f"--container-driver-root={driver}", "--mig-strategy=none"]
    flags += [f"--nvidia-cdi-hook-path={hook.program}"]
    flags += [f"--device-list-strategy={'envvar' if runtime else 'cdi-cri'}"]
    with installed_driver(cluster.layout) as fake, ExitStack() as stack:
        if runtime is not None:
            stack.enter_context(_configured(cluster, fake, runtime, hook))
        command = join_namespace(cluster.layout, (str(plugin.program), *flags))
        with cluster.layout.log("plugin").open("ab") as log:
            environment = {**os.environ, **_find_fake(fake)}
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        stack.callback(_end, process)
        return _run_pods(cluster, count, runtime_class=CLASS if runtime else "")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(STOP_SECONDS)


def _find_fake(fake: FakeNvml) -> dict[str, str]:
    """What a program in Go needs to load the fake driver."""
    return {**fake.environment, "LD_LIBRARY_PATH": str(fake.library_directory)}


@contextmanager
def _configured(cluster: Cluster, fake: FakeNvml, runtime: Built, hook: Built) -> Iterator[None]:
    """The runtime class in containerd's configuration, by a script that says where everything is, as an installer's."""
    layout = cluster.layout
    place, config = layout.root / "toolkit", layout.config("containerd")
    place.mkdir(exist_ok=True)
    (place / "config.toml").write_text(
        f'[nvidia-container-cli]\nroot = "{find_driver(layout)}"\n'
        f'[nvidia-container-runtime]\nmode = "auto"\nruntimes = ["runc"]\n[nvidia-ctk]\npath = "{hook.program}"\n'
    )
    variables = {"NVIDIA_CTK_CONFIG_FILE_PATH": str(place / "config.toml"), **_find_fake(fake)}
    script = place / "nvidia-container-runtime"
    exports = "".join(f"export {key}={value}\n" for key, value in variables.items())
    script.write_text(f'#!/bin/sh\n{exports}exec {runtime.program} "$@"\n')
    script.chmod(0o755)
    before = config.read_text()
    table = f"plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{CLASS}"
    config.write_text(
        f'{before}[{table}]\n  runtime_type = "io.containerd.runc.v2"\n[{table}.options]\n  SystemdCgroup = false\n'
        f'  BinaryName = "{script}"\n  Root = "{layout.containerd}/runc"\n'
    )
    cluster.restart_containerd()
    try:
        yield
    finally:
        Pods(cluster).delete_all()
        config.write_text(before)
        cluster.restart_containerd()
        shutil.rmtree(place)


def _run_pods(cluster: Cluster, count: int, *, runtime_class: str = "") -> list[float]:
    """Milliseconds of each, one after the other; those that have the GPUs go when there is none left."""
    cluster.wait_count(GPU, GPUS)
    pods, millis = Pods(cluster), list[float]()
    there: list[str] = []
    for number in range(count):
        if len(there) == GPUS:
            pods.delete(*there)
            there.clear()
        spec = {"nodeName": NODE_NAME, **({"runtimeClassName": runtime_class} if runtime_class else {})}
        pod = render_pod(f"pod-{number}", limits={GPU: 1}, spec=spec)
        bound = time.time()
        there.append(pods.run(pod))
        if not number:
            _require_gpu(pods, there[-1])
        millis.append(1000 * (_read_start(cluster, pods.container_id(there[-1])) - bound))
    pods.delete(*there)
    return millis


def _require_gpu(pods: Pods, name: str) -> None:
    """Raises:
    NotMeasured: a container that was given no GPU is no pod that is to be measured.
    """
    nodes = pods.exec(name, "ls", "/dev").split()
    if sum(bool(re.fullmatch(r"nvidia\d+", node)) for node in nodes) != 1:
        raise NotMeasured(f"the container of {name} has not one GPU in /dev: {' '.join(nodes)}")


def _read_start(cluster: Cluster, container: str) -> float:
    """When the container runtime had it running, in seconds since the epoch."""
    told = loads(cluster.run("crictl", "inspect", container))["status"]["startedAt"]
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", told)).timestamp()


def build() -> Built:
    """The plugin, under the name of all that takes part."""
    return build_plugin()._replace(name=f"{build_plugin().name}, {build_runtime().name}")
