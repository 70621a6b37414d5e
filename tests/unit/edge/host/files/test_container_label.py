"""The label by which SELinux lets containers have the agent's files."""

import errno
import os
from pathlib import Path

import anyio
import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import FileNotWritten
from nodeagent.edge.host.files import container_label
from nodeagent.edge.host.files.container_label import LABEL, label_for_containers
from nodeagent.edge.host.vgpu.fraction_folders import HostFractionFolders
from nodeagent.model.fractions import FractionLimit
from nodeagent.model.ids import GpuUuid

UUID = GpuUuid("GPU-00000000-0000-0000-0000-000000000000")


class Labels:
    """What was labelled, on a kernel that takes labels or refuses them."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, bytes]] = {}
        self.refusal = 0

    def set(self, path: Path, name: str, value: bytes, *, follow_symlinks: bool) -> None:
        if self.refusal:
            raise OSError(self.refusal, os.strerror(self.refusal))
        assert not follow_symlinks
        self.found[str(path)] = (name, value)


@pytest.fixture
def labels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Labels:
    made = Labels()
    monkeypatch.setattr(os, "setxattr", made.set)
    monkeypatch.setattr(container_label, "ENFORCE", tmp_path / "enforce")
    (tmp_path / "enforce").write_text("1")
    return made


def test_without_selinux_nothing_is_labelled(labels: Labels, tmp_path: Path) -> None:
    """A file system of such a node need not keep labels."""
    (tmp_path / "enforce").unlink()
    label_for_containers(tmp_path)
    assert labels.found == {}


def test_what_cannot_be_labelled_is_told(labels: Labels, tmp_path: Path) -> None:
    """A container would start, and its library would limit nothing."""
    labels.refusal = errno.EOPNOTSUPP
    with pytest.raises(FileNotWritten, match=r"label it for containers \(SELinux\)"):
        label_for_containers(tmp_path)


@pytest.mark.may_block("the folder's worker has a loop of its own")
def test_the_files_of_a_container_are_labelled_also_those_of_a_version_before(labels: Labels, tmp_path: Path) -> None:
    """Each time that the container starts: what is there already may have no label."""

    async def write() -> None:
        worker = WorkerThread("test")
        try:
            limit = FractionLimit(gpu=UUID, memory_bytes=1 << 30, cores=30, cores_max=30, context_bytes=0)
            await HostFractionFolders(tmp_path / "parts", worker).write("p1", [limit])
        finally:
            worker.close()

    for _ in range(2):
        labels.found.clear()
        anyio.run(write)
        assert labels.found == {str(tmp_path / f"parts/p1/{name}"): LABEL for name in ("usage", "limits")}
