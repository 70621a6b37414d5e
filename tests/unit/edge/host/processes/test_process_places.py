"""Which pod a process belongs to."""

import threading
from pathlib import Path

import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.processes.process_places import HostProcessPlaces
from nodeagent.model.ports import ProcessPlace

UID = "0f3c2b1a-1111-2222-3333-444455556666"
CONTAINER = "c" * 64


def put_process(proc: Path, pid: int, cgroup: str) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "cgroup").write_text(cgroup)


async def test_a_process_of_a_pod_is_told_from_one_of_the_host(tmp_path: Path) -> None:
    """By the path of its control group; one that is not in sight is left out."""
    put_process(tmp_path, 1, f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-{CONTAINER}.scope\n")
    put_process(tmp_path, 2, "0::/system.slice/nvidia-persistenced.service\n")
    (tmp_path / "2" / "comm").write_text("nvidia-persiste\n")
    worker = WorkerThread("test")
    places = await HostProcessPlaces(worker, tmp_path).read_places([1, 2, 3])
    worker.close()
    assert places == {1: ProcessPlace(pod_uid=UID, container_id=CONTAINER), 2: ProcessPlace(name="nvidia-persiste")}


async def test_an_answer_is_remembered_only_while_the_process_is_asked_for(tmp_path: Path) -> None:
    """A pid that was away may have come back as another process."""
    put_process(tmp_path, 1, f"0::/kubepods/pod{UID}/{CONTAINER}\n")
    worker = WorkerThread("test")
    places = HostProcessPlaces(worker, tmp_path)
    first = await places.read_places([1])
    put_process(tmp_path, 1, "0::/user.slice\n")
    assert await places.read_places([1]) == first
    assert await places.read_places([]) == {}
    assert await places.read_places([1]) == {1: ProcessPlace()}
    worker.close()


async def test_a_reading_that_hangs_leaves_the_known_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics without a pod are better than no metrics."""
    put_process(tmp_path, 1, "0::/user.slice\n")
    worker = WorkerThread("test")
    places = HostProcessPlaces(worker, tmp_path, timeout_seconds=0.05)
    known = await places.read_places([1])
    blocked = threading.Event()
    monkeypatch.setattr(places, "_read", lambda pids: blocked.wait(20))
    assert await places.read_places([1, 2]) == known
    blocked.set()
    worker.close()
