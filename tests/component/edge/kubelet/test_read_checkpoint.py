"""The kubelet's file, when it is not there or not what it should be."""

from pathlib import Path

import pytest

from nodeagent.edge.kubelet.checkpoint_file import read_checkpoint
from nodeagent.edge.kubelet.errors import CheckpointUnreadable


def test_unreadable_checkpoints_are_named(tmp_path: Path) -> None:
    """A missing file, a directory and a broken file are each one error with the path and the reason."""
    (tmp_path / "broken").write_bytes(b'{"Data":')
    for name, reason in (("missing", "No such file"), (".", "Is a directory"), ("broken", "not a JSON object")):
        with pytest.raises(CheckpointUnreadable, match=reason) as failed:
            read_checkpoint(tmp_path / name)
        assert str(tmp_path / name) in str(failed.value)
