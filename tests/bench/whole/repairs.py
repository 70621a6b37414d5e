"""Repairs and idle-time proving: what they cost while nothing is wrong, and how soon a faulty GPU is free again.

The driver's program is a script that takes five seconds for a reset; nobody holds the GPUs: no drain is in it.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.around.api_server import ApiServerThread, api_server
from tests.bench.around.node import BenchNode, PluginProcess, bench_node
from tests.bench.rows import Row
from tests.bench.whole.agent import GPUS, XID_EVENT
from tests.fakes.apiserver import NODE

RESET_SECONDS = 5
FIRMWARE_SILENT = 119
ON = ("repairs.mode=act", "proof.idle=quick")
SETTLE_SECONDS, QUIET_SECONDS, FAULTS = 30.0, 60.0, 3


def measure() -> list[Row]:
    (plain, _), (whole, requests) = _weigh(()), _weigh(ON)
    return [
        Row("repairs and proof on and idle, more memory, PSS", "MiB", [whole - plain], limit=2),
        Row("API requests in a quiet minute, repairs on", "", [requests], limit=0),
        Row(f"fault to free and proven, over a {RESET_SECONDS} s reset", "s", _measure_faults(), limit=10),
    ]


@contextmanager
def _repairing(settings: tuple[str, ...]) -> Iterator[tuple[BenchNode, PluginProcess, ApiServerThread]]:
    with api_server() as api, bench_node() as node:
        programs = _make_program(node.directory / "programs")
        kubeconfig = api.server.write_kubeconfig(node.directory / "kubeconfig")
        common = ("kubernetes.enabled=true", f"kubernetes.kubeconfig={kubeconfig}", f"node.name={NODE}", *settings)
        words = (word for setting in common for word in ("--set", setting))
        with node.running_agent(*words, programs=programs) as agent:
            node.kubelet.wait("list", since=agent.began, healthy=GPUS)
            agent.wait_ready()
            yield node, agent, api


def _make_program(directory: Path) -> Path:
    directory.mkdir()
    program = directory / "nvidia-smi"
    program.write_text(f'#!/bin/sh\ncase "$1" in --gpu-reset) sleep {RESET_SECONDS};; esac\n')
    program.chmod(0o755)
    return directory


def _weigh(settings: tuple[str, ...]) -> tuple[float, int]:
    """Memory in MiB, and requests in a quiet minute, once the findings have settled."""
    with _repairing(settings) as (_, agent, api):
        time.sleep(SETTLE_SECONDS)
        before = len(api.server.requests)
        time.sleep(QUIET_SECONDS)
        return agent.memory_mib("Pss"), len(api.server.requests) - before


def _measure_faults() -> list[float]:
    """One GPU after the other; a person is not waited for, nor a week."""
    seconds = []
    with _repairing(ON) as (node, agent, _):
        agent.wait_until(lambda: _is_settled(agent))
        for gpu in range(FAULTS):
            began = time.perf_counter()
            node.fake.push_event(gpu, XID_EVENT, FIRMWARE_SILENT)
            node.kubelet.wait("list", since=began, healthy=GPUS - 1)
            agent.wait_until(lambda wanted=gpu + 1: _count_repaired(agent) == wanted)  # type: ignore[misc]
            node.kubelet.wait("list", since=began, healthy=GPUS)
            seconds.append(time.perf_counter() - began - RESET_SECONDS)
    return seconds


def _is_settled(agent: PluginProcess) -> bool:
    state = json.loads(agent.get("/api/v1/repairs")[1])
    return state["mode"] == "act" and not state["unsettled"]


def _count_repaired(agent: PluginProcess) -> int:
    sessions = json.loads(agent.get("/api/v1/repairs")[1])["sessions"]
    return sum(session["ending"] == "repaired" for session in sessions)
