"""The labeler's own edges on a real directory: the feature file and the node's facts."""

from pathlib import Path

import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.errors import FileNotWritten, HostStuck
from nodeagent.edge.host.files import feature_file
from nodeagent.edge.host.files.feature_file import FeatureFile
from nodeagent.edge.host.files.pseudo_file import list_names
from nodeagent.edge.host.machine.node_facts import HostNodeFacts
from nodeagent.model.labels import NodeFacts
from nodeagent_sim.node import simulate_facts
from tests.support.waiting import hanging


async def test_a_feature_file_is_written_whole(tmp_path: Path) -> None:
    """None reads as nothing; what is written is read; nothing else is left in the directory."""
    worker = WorkerThread("test")
    file = FeatureFile(tmp_path / "nodeagent", worker)
    assert await file.read() == ""
    await file.write("a=1\n")
    assert await file.read() == "a=1\n"
    assert list_names(tmp_path) == ("nodeagent",)
    worker.close()


async def test_what_a_killed_writer_left_goes_though_nothing_is_written(tmp_path: Path) -> None:
    """The file may be right as it is, and not be written again for as long as the node lives."""
    (tmp_path / "nodeagent").write_text("a=1\n")
    (tmp_path / ".nodeagent.0123abcd.tmp").write_text("a=")
    (tmp_path / ".nodeagent.tmp").write_text("somebody else's")
    worker = WorkerThread("test")
    assert await FeatureFile(tmp_path / "nodeagent", worker).read() == "a=1\n"
    assert list_names(tmp_path) == (".nodeagent.tmp", "nodeagent")
    worker.close()


async def test_a_directory_that_nobody_reads_is_not_made(tmp_path: Path) -> None:
    """Without node feature discovery's directory the write fails and says which one."""
    worker = WorkerThread("test")
    with pytest.raises(FileNotWritten, match=r"features\.d"):
        await FeatureFile(tmp_path / "features.d" / "nodeagent", worker).write("a=1\n")
    worker.close()


async def test_a_disk_that_hangs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the file system does, the caller hears within its time."""
    monkeypatch.setattr(feature_file, "_TIMEOUT_SECONDS", 0.05)
    worker = WorkerThread("test")
    with hanging() as hang:
        monkeypatch.setattr(feature_file, "read_bounded", hang)
        with pytest.raises(HostStuck):
            await FeatureFile(tmp_path / "x", worker).read()
    worker.close()


async def test_facts_that_hang_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise for the node's own files."""
    monkeypatch.setattr("nodeagent.edge.host.machine.node_facts._TIMEOUT_SECONDS", 0.05)
    worker = WorkerThread("test")
    with hanging() as hang, pytest.raises(HostStuck):
        await HostNodeFacts(hang, worker, tmp_path).read_facts()
    worker.close()


def test_a_simulated_node_has_its_gpus_on_the_bus() -> None:
    """The host's kernel, the profile's GPUs, and a machine that says that it is made up."""
    facts = simulate_facts("l40s")(NodeFacts(kernel_release="6.8"))
    assert facts.kernel_release == "6.8"
    assert facts.machine_type == "Simulated l40s"
    assert {each.pci_class for each in facts.functions} == {"0302"}
