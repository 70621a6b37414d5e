"""`nodeagent run --await-gpu` on a node without GPUs: ready, nearly weightless, traceless, and whole with the first."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeagent.components.inventory.gpu_store import STORE, GpuStore, encode_gpu_store
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.model.gpu import StoredGpu
from nodeagent.model.ids import GpuUuid, PciAddress
from tests.support.programs.agent_process import AgentProcess, run_command, starting

LIMIT_KIB = 12 * 1024
"""What the process that waits may weigh, by its own measure of the kernel's; the whole agent takes five times that."""


@contextmanager
def running(directory: Path, *words: str) -> Iterator[AgentProcess]:
    """An agent on a bus without functions, which waits or not as it finds."""
    (directory / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
    settings = {
        "node.state_dir": directory / "state",
        "node.run_dir": directory / "run",
        "node.sys_dir": directory / "sys",
        "node.host_root": directory / "host",
        "kubelet.root_dir": directory / "kubelet",
        "kubelet.device_plugins_dir": directory / "kubelet" / "device-plugins",
        "cdi.dir": directory / "cdi",
        "driver.manage_device_nodes": "false",
        "log.format": "json",
    }
    (directory / "host").mkdir(exist_ok=True)
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with starting(directory, "run", "--await-gpu", *sets, *words) as agent:
        yield agent


def wait_said(agent: AgentProcess) -> dict[str, object]:
    """The line by which the agent says that it waits, or that it works."""
    assert agent.process.stderr is not None
    for line in agent.process.stderr:
        agent.output.append(line)
        said: dict[str, object] = json.loads(line)
        if said["event"] == "gpu_awaited":
            agent.url = f"http://{said['listen']}"
            assert agent.get("/readyz")[0] == 200  # who answers has its signal handlers
            return said
        if said["event"] == "agent_started":
            agent.url = str(said["url"])
            return said
    raise AssertionError("".join(agent.output))


def put_gpu(directory: Path) -> None:
    place = directory / "sys/bus/pci/devices/0000:17:00.0"
    place.mkdir(parents=True)
    (place / "vendor").write_text("0x10de\n")
    (place / "class").write_text("0x030200\n")


def test_a_node_without_gpus_costs_next_to_nothing_and_is_left_alone(short_dir: Path) -> None:
    """It is ready and alive, a scrape is empty, only its socket is written, and its memory is an interpreter's."""
    with running(short_dir) as agent:
        assert wait_said(agent)["event"] == "gpu_awaited"
        for path in ("/livez", "/readyz"):
            status, said = agent.get(path)
            assert status == 200
            assert "no NVIDIA GPU" in said
        assert agent.get("/metrics") == (200, "")
        assert agent.get("/api/v1/gpus")[0] == 503
        rollup = Path(f"/proc/{agent.process.pid}/smaps_rollup").read_text()
        (rss,) = (int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Rss:"))
        assert rss < LIMIT_KIB
        assert not (short_dir / "state").exists()
        assert not (short_dir / "cdi").exists()
        assert [path.name for path in (short_dir / "run").iterdir()] == ["admin.sock"]
        assert agent.stop() == 0


def test_a_command_is_told_that_there_is_no_gpu(short_dir: Path) -> None:
    """Whoever looks into any pod of a DaemonSet is told why this one knows nothing."""
    with running(short_dir) as agent:
        wait_said(agent)
        done = run_command(short_dir, "gpu", "list")
        assert done.returncode != 0
        assert "no GPU on this node: this node has no NVIDIA GPU" in done.stderr


def test_with_its_first_gpu_the_node_has_a_whole_agent(short_dir: Path) -> None:
    """In the same process, with the same words; here by SIGHUP, as nobody waits for the next look."""
    with running(short_dir) as agent:
        assert wait_said(agent)["event"] == "gpu_awaited"
        put_gpu(short_dir)
        agent.process.send_signal(signal.SIGHUP)
        assert wait_said(agent)["event"] == "agent_started"
        assert agent.get("/api/v1/gpus")[0] == 200
        assert agent.stop() == 0


def test_a_reload_without_a_gpu_waits_on(short_dir: Path) -> None:
    """SIGHUP reads the configuration anew, and there is still nothing to do."""
    with running(short_dir) as agent:
        first = wait_said(agent)
        agent.process.send_signal(signal.SIGHUP)
        assert wait_said(agent)["event"] == first["event"]
        assert agent.get("/readyz")[0] == 200


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("made-up GPUs", ("--gpus", "simulated:dgx-h100")),
        ("devices of other vendors", ("--set", "devices.classes=[{resource: vendor/fuse, nodes: [/dev/fuse]}]")),
    ],
)
def test_an_agent_with_other_work_does_not_wait(short_dir: Path, what: str, words: tuple[str, ...]) -> None:
    """Nor for GPUs that nobody has asked of the bus."""
    with running(short_dir, *words) as agent:
        assert wait_said(agent)["event"] == "agent_started", what


def test_a_node_that_has_lost_its_gpus_is_not_silent(short_dir: Path) -> None:
    """Where an agent before has seen GPUs, one that is gone is told of; a list of no GPUs holds nobody up."""
    name, seal, version = STORE
    (short_dir / "state").mkdir()
    file = SealedFile(short_dir / "state" / name, seal, version)
    file.write(encode_gpu_store(GpuStore(source="nvml")))
    with running(short_dir) as agent:
        assert wait_said(agent)["event"] == "gpu_awaited"
    known = StoredGpu(uuid=GpuUuid("GPU-1"), name="H100", index=0, address=PciAddress("0000:17:00.0"))
    file.write(encode_gpu_store(GpuStore(source="nvml", gpus=(known,))))
    with running(short_dir) as agent:
        assert wait_said(agent)["event"] == "agent_started"
    (short_dir / "state" / name).write_bytes(b"damaged")
    with running(short_dir) as agent:
        assert wait_said(agent)["event"] == "agent_started"
