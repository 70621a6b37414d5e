"""`nodeagent run` through real pynvml on the fake driver, in a process of its own."""

import contextlib
import json
import os
import queue
import re
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.edge.host.machine.systemd_notify import SystemdNotifier
from tests.fakes.nvml.control import FakeNvml
from tests.support.programs.agent_process import (
    PATIENCE_SECONDS,
    AgentProcess,
    run_command,
    running_agent,
    running_simulation,
)


def _use(fake: FakeNvml) -> tuple[str, ...]:
    environment = json.dumps(fake.environment)
    return (
        "--set",
        f"driver.nvml_library={fake.library_path}",
        "--set",
        f"driver.worker_environment={environment}",
    )


def _holds_driver(agent: AgentProcess) -> bool:
    """Whether any process of the agent has the fake library mapped."""
    children = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    maps = [Path(f"/proc/{pid}/maps").read_text() for pid in (*children, str(agent.process.pid))]
    return any("libnvidia-ml" in text for text in maps)


def test_the_agent_sees_hardware_through_nvml(short_dir: Path, fake: FakeNvml) -> None:
    """All GPUs are found and sampled, and no native call runs in the agent's own process."""
    with running_agent(short_dir, *_use(fake)) as agent:
        agent.wait_for("/api/v1/gpus", "gpu_utilization_percent")
        assert len(agent.get_json("/api/v1/gpus")["gpus"]) == 8
        assert agent.get_json("/api/v1/driver")["phase"] == "ready"
        assert "libnvidia-ml" not in Path(f"/proc/{agent.process.pid}/maps").read_text()
        assert _holds_driver(agent)
        # No kubelet here: everything but the registration is there, and it says what it waits for.
        assert "[-] gate plugin_registered not passed yet" in agent.get("/readyz")[1]


@pytest.mark.long
def test_release_gives_up_every_handle_and_resume_takes_the_driver_back(short_dir: Path, fake: FakeNvml) -> None:
    """While released no process of the agent has the library; the GPUs stay listed; the reason is on every surface."""
    with running_agent(short_dir, *_use(fake)) as agent:
        agent.wait_for("/api/v1/gpus", "gpu_utilization_percent")
        assert agent.post("/api/v1/release", {"reason": "driver upgrade"})[0] == 200
        assert " UTC at the latest" in agent.wait_for("/readyz", "driver-released")
        assert not _holds_driver(agent)
        assert len(agent.get_json("/api/v1/gpus")["gpus"]) == 8
        assert agent.post("/api/v1/resume", {})[0] == 200
        agent.wait_for("/api/v1/driver", '"ready"')
        agent.wait_gone("/api/v1/conditions", "driver-released")


@pytest.mark.long
def test_a_forgotten_release_ends_by_itself(short_dir: Path, fake: FakeNvml) -> None:
    """The driver is taken back when the time given is over."""
    with running_agent(short_dir, *_use(fake)) as agent:
        agent.wait_for("/api/v1/driver", '"ready"')
        agent.post("/api/v1/release", {"reason": "a moment", "seconds": 1.5})
        agent.wait_for("/api/v1/driver", '"released"')
        agent.wait_for("/api/v1/driver", '"ready"')
        assert _holds_driver(agent)


def _plug(sys_dir: Path, fake: FakeNvml, gpu: int) -> None:
    """Show this GPU on the bus as the kernel does."""
    seat = fake.profile.seats[gpu]
    place = sys_dir / "bus/pci/devices" / seat.address
    place.mkdir(parents=True)
    (place / "config").write_bytes(b"\xde\x10\x30\x23")
    (place / "driver").symlink_to("../../drivers/nvidia")
    device = f"{seat.model.pci.device_id >> 16:#06x}"
    for name, value in (("vendor", "0x10de"), ("device", device), ("numa_node", "0"), ("class", "0x030200")):
        (place / name).write_text(f"{value}\n")


@pytest.mark.long
def test_a_card_that_is_put_in_is_seen_without_a_restart(short_dir: Path, fake: FakeNvml) -> None:
    """From the kernel's bus to the list, although a session of NVML lists only what was there when it began."""
    sys_dir = short_dir / "sys"
    for gpu in range(7):
        _plug(sys_dir, fake, gpu)
    fake.unplug(7)
    fake.state.lists_at_start = 1
    with running_agent(short_dir, *_use(fake), "--set", f"node.sys_dir={sys_dir}") as agent:
        agent.wait_for("/api/v1/gpus", "gpu_utilization_percent")
        assert len(agent.get_json("/api/v1/gpus")["gpus"]) == 7
        newcomer = fake.profile.seats[7].address
        fake.plug(7)
        _plug(sys_dir, fake, 7)
        agent.wait_for("/api/v1/gpus", newcomer)
        assert len(agent.get_json("/api/v1/gpus")["gpus"]) == 8


@pytest.mark.long
def test_a_hung_gpu_hangs_neither_the_agent_nor_its_stop(short_dir: Path, fake: FakeNvml) -> None:
    """With one GPU hung for ever the endpoints answer, the other GPUs are sampled, and SIGTERM ends it in order."""
    with running_agent(short_dir, *_use(fake), "--set", "driver.call_timeout_seconds=0.5") as agent:
        agent.wait_for("/api/v1/gpus", "gpu_utilization_percent")
        fake.hang_gpu(2)
        agent.wait_for("/api/v1/gpus/2", '"energy_millijoules":null')
        assert agent.get_json("/api/v1/gpus/0")["sample"]["energy_millijoules"] is not None
        assert agent.get("/livez")[0] == 200
        assert agent.stop() == 0


@pytest.mark.long
def test_a_gpu_that_hangs_at_the_start_is_named_and_no_rule_is_blamed(short_dir: Path, fake: FakeNvml) -> None:
    """Its door is decided when it answers."""
    fake.hang_gpu(3)
    hasty = ("driver.call_timeout_seconds=1", "inventory.rescan_seconds=1", "fractions.enabled=true")
    rules = 'doors.rules=[{"gpus": ["3"], "door": "none"}]'
    with running_agent(short_dir, *_use(fake), *(word for one in (*hasty, rules) for word in ("--set", one))) as agent:
        agent.wait_for("/api/v1/conditions", "door-undecided")
        told = {one["code"]: one["detail"] for one in agent.get_json("/api/v1/conditions")}
        assert "GPU at index 3: enumerating GPU 3 did not come back" in told["gpu-missing"]
        assert told["door-undecided"].endswith("may be meant by doors.rules[0]: '3'; that is decided when it answers")
        assert "doors-unclear" not in told
        fake.clear()
        agent.wait_gone("/api/v1/conditions", "door-undecided")
        assert agent.get_json("/api/v1/doors")[3]["door"] == "none"


@pytest.mark.long
def test_without_a_driver_it_waits_and_says_so(short_dir: Path) -> None:
    """No hardware is not an error of the agent: it waits, and every surface says for what."""
    nowhere = short_dir / "libnvidia-ml.so.1"
    with running_agent(short_dir, "--set", f"driver.nvml_library={nowhere}") as agent:
        body = agent.wait_for("/readyz", "driver-")
        assert "not ready" in body
        status = run_command(short_dir, "status", "--set", f"node.run_dir={short_dir}/run")
        assert status.returncode == 1
        assert "waiting for" in status.stdout


def test_required_driver_that_is_missing_ends_it_with_three(short_dir: Path) -> None:
    """One line says what is missing and what to do."""
    nowhere = short_dir / "libnvidia-ml.so.1"
    words = ("--set", f"driver.nvml_library={nowhere}", "--set", "http.listen=127.0.0.1:0")
    places = [word for key in ("state_dir", "run_dir") for word in ("--set", f"node.{key}={short_dir / key}")]
    refused = run_command(short_dir, "run", "--require-driver", *words, *places)
    assert refused.returncode == 3
    last = refused.stderr.splitlines()[-1]
    assert last.startswith("nodeagent: no working NVIDIA driver: ")


def test_systemd_hears_of_start_reload_watchdog_and_stop(short_dir: Path) -> None:
    """The service manager learns every turn of the agent's life from its notifications."""
    with running_manager(short_dir / "notify.sock") as manager:
        nowhere = ("--set", f"driver.nvml_library={short_dir}/none.so")
        variables = {"NOTIFY_SOCKET": str(short_dir / "notify.sock"), "WATCHDOG_USEC": "400000"}
        with running_agent(short_dir, *nowhere, variables=variables) as agent:
            manager.hear("READY=1")
            manager.hear("WATCHDOG=1")
            os.kill(agent.process.pid, signal.SIGHUP)
            reloading = manager.hear("RELOADING=1")
            assert re.search(r"MONOTONIC_USEC=\d+", reloading)
            manager.hear("READY=1")
            agent.process.send_signal(signal.SIGTERM)
            manager.hear("STOPPING=1")


class Manager:
    """A service manager's end of the socket. As systemd it reads all the time: the kernel may keep but ten messages."""

    def __init__(self, address: Path) -> None:
        self._address = str(address)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._address)
        self._messages: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, name="service manager")
        self._thread.start()

    def _read(self) -> None:
        while message := self._socket.recv(4096):
            self._messages.put(message.decode())

    def hear(self, wanted: str, *, patience_seconds: float = PATIENCE_SECONDS) -> str:
        """The next message that says this; what is said in between is passed over, as long as there is patience."""
        limit = time.monotonic() + patience_seconds
        passed: list[str] = []
        while (left := limit - time.monotonic()) > 0:
            try:
                message = self._messages.get(timeout=left)
            except queue.Empty:
                break
            if wanted in message.splitlines():
                return message
            passed.append(message)
        raise AssertionError(f"nobody said {wanted}, only {passed}")

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self._address)
        self._thread.join()
        self._socket.close()


@contextlib.contextmanager
def running_manager(address: Path) -> Iterator[Manager]:
    with contextlib.closing(Manager(address)) as manager:
        yield manager


def test_a_manager_hears_more_than_the_kernel_keeps(short_dir: Path) -> None:
    """Though no test asks it meanwhile; and the test fails that waits for a message that was never sent."""
    address = short_dir / "notify.sock"
    with running_manager(address) as manager:
        notifier = SystemdNotifier(str(address))
        for _ in range(300):
            while not notifier.watchdog():
                os.sched_yield()
        assert notifier.ready()
        manager.hear("READY=1")
        with pytest.raises(AssertionError, match="nobody said STOPPING=1"):
            manager.hear("STOPPING=1", patience_seconds=0.1)


@pytest.mark.long
def test_the_time_given_to_a_simulation_ends_it(short_dir: Path) -> None:
    """`--for` is the polite way to end a demonstration."""
    with running_simulation(short_dir, "--for", "300ms", "--pods", "0") as agent:
        assert agent.process.wait(30) == 0


def test_an_agent_that_gets_no_more_memory_stops_in_order(short_dir: Path) -> None:
    """Nothing that a stop needs is made only then: a thread would need address space for its stack."""
    with running_agent(short_dir, "--set", "gpus.source=simulated:dgx-h100") as agent:
        agent.wait_for("/api/v1/gpus", "gpu_utilization_percent")
        status = Path(f"/proc/{agent.process.pid}/status").read_text()
        size = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmSize:"))
        limit = size + (2 << 20)
        resource.prlimit(agent.process.pid, resource.RLIMIT_AS, (limit, limit))
        assert agent.stop(signal.SIGTERM) == 0
