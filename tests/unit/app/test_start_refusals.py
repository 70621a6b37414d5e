"""Why a start is refused: the setting, what is wrong with its value, and a remedy that helps."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from nodeagent.app.endpoints import prepare_directory
from nodeagent.app.errors import DirectoryUnusable
from nodeagent.edge.http.errors import ListenFailed
from nodeagent.edge.http.listeners import open_tcp_listener


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("no host", "set an address of this machine, or a name that leads to one"),
        ("192.0.2.1", "no interface of this machine has that address"),
    ],
)
def test_an_address_that_is_none_of_ours_is_not_called_taken(host: str, words: str) -> None:
    """Nobody goes looking for the owner of a port that is free."""
    with pytest.raises(ListenFailed, match=r"http\.listen") as refused:
        open_tcp_listener(host, 0, key="http.listen")
    assert words in str(refused.value)
    assert "free the port" not in str(refused.value)
    assert not refused.value.is_taken


@pytest.mark.parametrize(("flag", "words"), [(os.ST_RDONLY, "remount its file system read-write"), (0, "permissions")])
def test_a_directory_that_cannot_be_written_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: int, words: str
) -> None:
    """Root is not told to be root: a file system that is read-only is so for everybody."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flag))
    with pytest.raises(DirectoryUnusable, match=r"node\.state_dir") as refused:
        prepare_directory("node.state_dir", tmp_path)
    assert words in str(refused.value)
    assert ("run nodeagent as root" in str(refused.value)) is (flag == 0)


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryUnusable, match="not a directory; put a directory where the path expects one"):
        prepare_directory("node.run_dir", tmp_path / "file/run")
