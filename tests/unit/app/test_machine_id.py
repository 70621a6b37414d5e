"""By what the allocation journal knows its machine."""

from pathlib import Path

import pytest

from nodeagent.app.wiring.kubelet import read_machine_id

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")


def test_the_host_says_which_machine_it_is(tmp_path: Path) -> None:
    """In a pod the host's root is mounted; the pod's own /etc says nothing of the machine."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("0123abc\n")
    assert read_machine_id(tmp_path, "node-1") == "0123abc"


@pytest.mark.parametrize("text", [None, "", "\n"])
def test_without_an_id_the_node_keeps_its_name(tmp_path: Path, text: str | None) -> None:
    """It outlives every pod; a pod's host name would make each new pod distrust the journal of the one before."""
    (tmp_path / "etc").mkdir()
    if text is not None:
        (tmp_path / "etc/machine-id").write_text(text)
    assert read_machine_id(tmp_path, "node-1") == "node-1"
