"""Which files are read, and what is said about those that cannot be."""

import os
import socket
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.config import files
from nodeagent.config.files import LARGEST_BYTES, read_config_files
from nodeagent.config.globs import is_pattern, overlap


def problems(path: Path) -> list[str]:
    return [str(problem).replace(f"{path.parent}/", "") for problem in read_config_files(path).problems]


def test_drop_ins_are_read_after_the_main_file_by_name(tmp_path: Path) -> None:
    """The main file first, then conf.d in the order of names; hidden files and other endings do not count."""
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "c.yaml").write_text("m")
    for name in ("20.yaml", "10.yaml", ".hidden.yaml", "x.yaml.bak", "y.yml"):
        (tmp_path / "conf.d" / name).write_text(name)
    found = read_config_files(tmp_path / "c.yaml")
    assert [text.text for text in found.texts] == ["m", "10.yaml", "20.yaml"]
    assert found.problems == ()
    (notice,) = found.notices
    assert notice.endswith("y.yml: not read; only names that end in .yaml are")


def test_default_file_may_be_missing_but_its_drop_ins_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node configured by drop-ins alone needs no main file; one that is named must be there."""
    monkeypatch.setattr(files, "DEFAULT_CONFIG_FILE", tmp_path / "config.yaml")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.yaml").write_text("x")
    assert [text.text for text in read_config_files(None).texts] == ["x"]
    assert read_config_files(None).problems == ()
    assert problems(tmp_path / "config.yaml") == ["config.yaml: file not found; create it or name another"]


def test_drop_in_that_leads_nowhere_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dangling link in conf.d is not a missing default file."""
    monkeypatch.setattr(files, "DEFAULT_CONFIG_FILE", tmp_path / "config.yaml")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.yaml").symlink_to("nowhere")
    (problem,) = read_config_files(None).problems
    assert "conf.d/a.yaml: file not found" in str(problem)


def test_no_file_at_all_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent without a configuration has its defaults."""
    monkeypatch.setattr(files, "DEFAULT_CONFIG_FILE", tmp_path / "none" / "config.yaml")
    assert read_config_files(None) == files.FilesRead((), (), ())


def test_null_device_is_an_empty_file() -> None:
    """`--config /dev/null` means no configuration."""
    assert [text.text for text in read_config_files(Path(os.devnull)).texts] == [""]


def test_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    """An editor's mark at the start is no text."""
    (tmp_path / "c.yaml").write_bytes(b"\xef\xbb\xbfa: 1")
    assert read_config_files(tmp_path / "c.yaml").texts[0].text == "a: 1"


def test_directory_pipe_and_socket_are_refused_without_being_read(tmp_path: Path) -> None:
    """A pipe would block the start for ever; each is named for what it is."""
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "p")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert problems(tmp_path / "d") == ["d: a directory where a file is expected; name a file in it"]
        assert problems(tmp_path / "p") == ["p: not a regular file; name one"]
        assert problems(tmp_path / "s") == ["s: not a regular file; name one"]


def test_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """The limit is a MiB, exactly."""
    (tmp_path / "c.yaml").write_bytes(b"#" * LARGEST_BYTES)
    assert problems(tmp_path / "c.yaml") == []
    (tmp_path / "c.yaml").write_bytes(b"#" * (LARGEST_BYTES + 1))
    assert problems(tmp_path / "c.yaml") == ["c.yaml: larger than 1048576 bytes; no configuration is"]


def test_file_that_is_not_utf8_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(b"a: 1\nb: \xe4\n")
    assert problems(tmp_path / "c.yaml") == ["c.yaml:2: byte 0xe4 is not UTF-8; save the file as UTF-8"]


def test_system_errors_are_told_with_their_remedy(tmp_path: Path) -> None:
    """A file used as a directory, and a name that is too long, are problems and no exceptions."""
    (tmp_path / "f").write_text("")
    lines = problems(tmp_path / "f" / "c.yaml")
    assert [line.partition(": ")[2] for line in lines] == ["cannot be read: not a directory; check the path"] * 2
    assert "file name too long; check the path" in problems(tmp_path / ("x" * 300))[0]


def test_file_without_permission_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the kernel to a user without permission; tests may run as root, who gets no such answer."""

    def deny(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", deny)
    assert problems(tmp_path / "c.yaml") == [
        "c.yaml: cannot be read: permission denied; give the agent's user read permission"
    ]


def test_who_only_looks_goes_on_without_default_files_that_are_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files and the directory of drop-ins are noted; the agent itself refuses, and so does whoever named the file."""
    monkeypatch.setattr(files, "DEFAULT_CONFIG_FILE", tmp_path / "config.yaml")
    (tmp_path / "config.yaml").write_text("x")
    (tmp_path / "conf.d").mkdir()

    def refuse(*_: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "_read_text", refuse)
    found = read_config_files(None, skip_forbidden=True)
    assert (found.texts, found.problems) == ((), ())
    assert found.notices == (f"{tmp_path}/config.yaml is not for you to read: passed over",)
    assert len(read_config_files(None).problems) == 1
    assert len(read_config_files(tmp_path / "config.yaml", skip_forbidden=True).problems) == 1
    monkeypatch.setattr(files, "_list_drop_ins", refuse)
    assert len(read_config_files(None, skip_forbidden=True).notices) == 2
    assert read_config_files(None, skip_forbidden=True).problems == ()
    assert len(read_config_files(None).problems) == 2


@pytest.mark.parametrize(
    ("left", "right", "is_same"),
    [
        ("/dev/kvm", "/dev/kvm", True),
        ("/dev/kvm", "/dev/kv", False),
        ("/dev/kv?", "/dev/kvm", True),
        ("/dev/*", "/dev/kvm", True),
        ("/dev/*", "/dev/net/tun", False),
        ("/dev/a*", "/dev/*b", True),
        ("/dev/a*c", "/dev/ab*d", False),
        ("/dev/x[0-9]", "/dev/x[5-7]", True),
        ("/dev/x[0-4]", "/dev/x[5-7]", False),
        ("/dev/x[!0-9]", "/dev/x[0-9]", False),
        ("/dev/x[0-9]", "/dev/x[!0-8]", True),
        ("/dev/x[!a]", "/dev/x[!b]", True),
        ("/dev/x[]]", "/dev/x]", True),
        ("/dev/x[", "/dev/x[", True),
        ("/dev/x[!]]", "/dev/x]", False),
        ("/dev/x[a-]", "/dev/x-", True),
        ("/dev/x*", "/dev/x", True),
        ("/dev/**", "/dev/x", True),
    ],
)
def test_patterns_overlap_where_a_path_matches_both(left: str, right: str, *, is_same: bool) -> None:
    assert overlap(left, right) is is_same
    assert overlap(right, left) is is_same


PARTS = st.text(alphabet="ab*?", max_size=5)


@given(PARTS, PARTS, st.text(alphabet="ab", max_size=6))
def test_a_path_that_matches_both_is_never_missed(left: str, right: str, path: str) -> None:
    if fnmatchcase(path, left) and fnmatchcase(path, right):
        assert overlap(left, right)


def test_a_pattern_is_told_from_a_path() -> None:
    assert [is_pattern(path) for path in ("/dev/x", "/dev/*", "/dev/?", "/dev/[a]")] == [False, True, True, True]
