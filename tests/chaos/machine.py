"""A node that can be broken in every way: the agent as a process, a fake driver, a stand-in kubelet, a small disk.

Owns the hands, not the order in which they act; knows how to bring everything back.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync

from nodeagent.edge.simulated.kubelet.kubelet import StandInKubelet
from nodeagent.edge.simulated.kubelet.pods import AdmissionRefused, ContainerStartFailed
from tests.bench.node import find_free_port
from tests.chaos.truth import Truth, Violated, find_doubled, find_left_over, find_missing
from tests.fakes.nvml.control import FakeNvml
from tests.support.agent_process import AgentProcess

GPUS = 8
RESOURCE = "nvidia.com/gpu"
NAMESPACE = "chaos"
PATIENCE_SECONDS = 60.0
"""A machine with other work on it; how long it really took is reported."""
HASTE = (
    # The fake driver has no device nodes, without which a GPU gets no CDI entry and is not offered.
    'device_plugin.device_list_strategy=["envvar"]',
    "driver.call_timeout_seconds=0.5",
    "health.poll_seconds=0.5",
    "health.flap_limit=1000",
    "health.unknown_after_missed_polls=2",
    "inventory.sample_seconds=0.25",
    "inventory.rescan_seconds=1",
    "journal.free_after_seconds=1",
    "journal.rotate_bytes=4096",
    "kubelet.pod_resources_poll_seconds=0.5",
    "kubernetes.enabled=false",
)
"""So that a step takes a second where a node may take a minute."""


class Machine:
    """One node."""

    def __init__(self, directory: Path, fake: FakeNvml, seed: int) -> None:
        self.directory, self.fake = directory, fake
        self.kubelet = StandInKubelet(directory / "kubelet", seed=seed)
        self.truth = Truth()
        self.refused = self.admitted = 0
        self.last_refusal = ""
        self.slowest_ready_seconds = 0.0
        self._port = find_free_port()
        self._filler = directory / "state" / "filler"
        self._log = (directory / "agent.log").open("wb")
        self._process, self._has_answered = self._start(), False

    # The agent.

    def _start(self) -> subprocess.Popen[bytes]:
        kubelet = self.directory / "kubelet"
        places = {
            "node.state_dir": self.directory / "state",
            "node.run_dir": self.directory / "run",
            "kubelet.root_dir": kubelet,
            "kubelet.device_plugins_dir": kubelet / "device-plugins",
            "cdi.dir": self.directory / "cdi",
            "driver.validation_dir": self.directory / "validations",
            "driver.manage_device_nodes": "false",
            "driver.nvml_library": self.fake.library_path,
            "driver.worker_environment": json.dumps(self.fake.environment),
            "http.listen": f"127.0.0.1:{self._port}",
        }
        settings = (*(f"{key}={value}" for key, value in places.items()), *HASTE)
        words = [word for setting in settings for word in ("--set", setting)]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.directory), "TMPDIR": str(self.directory)}
        command = [sys.executable, "-m", "nodeagent", "run", *words]
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=self._log)

    async def end_agent(self, sent: signal.Signals) -> None:
        """Stop or kill it, and start another."""
        self._process.send_signal(sent)
        status = await run_sync(self._process.wait, PATIENCE_SECONDS)
        # Before it listens to signals, the default is what a service manager takes for an orderly end as well.
        fine = (0,) if self._has_answered else (0, -signal.SIGTERM)
        if sent is signal.SIGTERM and status not in fine:
            raise Violated(f"asked to stop, the agent ended with {status}")
        self._process, self._has_answered = self._start(), False

    def signal(self, sent: signal.Signals) -> None:
        self._process.send_signal(sent)

    @property
    def has_answered(self) -> bool:
        """Whether this life of the agent has come so far that it listens to signals."""
        return self._has_answered

    def close(self) -> None:
        """End the agent, whatever state it is in."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body; 0 where nobody listens."""
        agent = AgentProcess(self._process, self.directory)  # type: ignore[arg-type]  # only its addresses are used
        agent.url = f"http://127.0.0.1:{self._port}/"
        try:
            answer = await run_sync(agent.get, path)
        except OSError as error:
            return 0, str(error)
        self._has_answered = True
        return answer

    # Pods.

    async def add_pod(self, name: str, size: int) -> None:
        """Have a pod admitted; a refusal is an answer too, for as long as something is broken.

        None comes to a kubelet that knows nothing of the resource: no scheduler would send it there.
        """
        if RESOURCE not in self.kubelet.offers():
            return
        try:
            await self.kubelet.add_pod(NAMESPACE, name, {RESOURCE: size})
        except (AdmissionRefused, ContainerStartFailed) as error:
            self.refused, self.last_refusal = self.refused + 1, str(error)
            self.kubelet.delete_pod(NAMESPACE, name)
            return
        self.admitted += 1
        self.truth.admit(name, self.kubelet.held_devices(NAMESPACE, name), size)

    def delete_pod(self, name: str) -> None:
        self.truth.delete(name)
        self.kubelet.delete_pod(NAMESPACE, name)

    # The disk.

    def fill_disk(self) -> None:
        """Not a byte is left on the file system of the state directory."""
        with self._filler.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 512)
            except OSError:
                return

    def empty_disk(self) -> None:
        self._filler.unlink(missing_ok=True)

    # What must hold.

    async def check(self) -> None:
        """What holds at any time, as far as the agent can be asked now.

        Raises:
            Violated: it does not.
        """
        self._check_alive()
        status, body = await self.get("/api/v1/gates")
        if status and '"allocations_recovered"' not in body:
            raise Violated(f"the gates cannot be read: {status} {body[:200]}")
        told = await self.read_table()
        if told is None:
            return
        if doubled := find_doubled(told):
            raise Violated(f"the agent's table has {doubled} twice")
        if missing := find_missing(self.truth, told):
            raise Violated(f"the agent's table lacks {missing}, which pods hold")

    def _check_alive(self) -> None:
        if self._process.poll() is not None:
            raise Violated(f"the agent ended by itself with {self._process.returncode}")

    async def read_table(self) -> list[list[str]] | None:
        """The devices of each allocation; nothing before the agent has recovered them."""
        status, body = await self.get("/readyz")
        if not status or "[+] gate allocations_recovered" not in body:
            return None
        status, body = await self.get("/api/v1/allocations")
        return [one["devices"] for one in json.loads(body)] if status else None

    async def calm(self) -> None:
        """Take every fault back, and see that all is well again.

        Raises:
            Violated: it is not, after all patience.
        """
        self.fake.clear()
        self.empty_disk()
        for gpu in range(GPUS):
            if self.fake.gpu(gpu).lost:
                self.fake.restore(gpu)
        began = time.monotonic()
        await self._wait(self._is_ready, "ready")
        self.slowest_ready_seconds = max(self.slowest_ready_seconds, time.monotonic() - began)
        await self._wait(self._are_all_healthy, "offering eight healthy GPUs to the kubelet")
        await self._wait(self._is_table_true, "in agreement with the pods")
        await self._admit_probe()

    async def _admit_probe(self) -> None:
        """With nothing broken and a GPU free, a pod that asks for one runs, whatever kubelet and agent went through."""
        if len(frozenset().union(*self.truth.held().values())) == GPUS:
            return
        refused = self.refused
        await self.add_pod("probe", 1)
        if self.refused > refused:
            raise Violated(f"nothing is broken and a GPU is free, yet a pod was refused: {self.last_refusal}")
        self.delete_pod("probe")

    async def _is_ready(self) -> bool:
        return (await self.get("/readyz"))[0] == 200

    async def _are_all_healthy(self) -> bool:
        offer = self.kubelet.offers().get(RESOURCE)
        return offer is not None and (offer.capacity, offer.allocatable) == (GPUS, GPUS)

    async def _is_table_true(self) -> bool:
        told = await self.read_table()
        return told is not None and not find_left_over(self.truth, told) and not find_missing(self.truth, told)

    async def wait_unhealthy(self) -> None:
        """Until the kubelet is told of a device that is broken.

        Raises:
            Violated: it never is.
        """
        await self._wait(self._is_any_unhealthy, "telling the kubelet of a broken GPU")

    async def _is_any_unhealthy(self) -> bool:
        offer = self.kubelet.offers().get(RESOURCE)
        return offer is not None and offer.allocatable < GPUS

    async def _wait(self, is_so: Callable[[], Any], what: str) -> None:
        with anyio.move_on_after(PATIENCE_SECONDS):
            while not await is_so():
                self._check_alive()
                await anyio.sleep(0.02)
            return
        state = [await self.get(path) for path in ("/readyz", "/api/v1/conditions", "/api/v1/allocations")]
        raise Violated(f"not {what} after {PATIENCE_SECONDS:.0f} s: {state}, pods {dict(self.truth.held())}")
