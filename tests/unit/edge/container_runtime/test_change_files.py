"""Writing a runtime's files, and the way back."""

import json
from pathlib import Path

import pytest

from nodeagent.components.runtime.withdraw import withdraw
from nodeagent.edge.container_runtime.change_files import RECORD_NAME, RuntimeFiles
from nodeagent.edge.container_runtime.errors import BackupUnreadable, FileChangedMeanwhile
from nodeagent.edge.host.errors import FileNotWritten, FileUnreadable
from nodeagent.edge.host.machine.host_paths import HostPaths
from nodeagent.model.runtime import FileChange, Restored

PLAIN = b"# by hand\r\nversion = 2\r\n"
BEFORE = b"# by hand\r\nversion = 2\n\xe2\x9c\x93"


class Node:
    """A configuration directory and a state directory."""

    def __init__(self, root: Path) -> None:
        self.main, self.drop_in = root / "etc/config.toml", root / "etc/conf.d/99.toml"
        self.state = root / "state"
        self.main.parent.mkdir()
        self.main.write_bytes(BEFORE)
        self.files = RuntimeFiles(self.state)

    def change(self, after: bytes, path: Path | None = None) -> FileChange:
        path = path or self.main
        return FileChange(path=str(path), before=path.read_bytes() if path.exists() else None, after=after)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_everything_is_given_back_byte_for_byte(node: Node) -> None:
    """A changed file is as it was, a new one is gone, and so is the record."""
    node.files.apply([node.change(b"new"), node.change(b"ours", node.drop_in)])
    assert (node.main.read_bytes(), node.drop_in.read_bytes()) == (b"new", b"ours")
    assert node.files.list_paths() == (str(node.main), str(node.drop_in))
    restored = RuntimeFiles(node.state).restore(withdraw)
    assert restored == Restored(given_back=(str(node.main), str(node.drop_in)))
    assert node.main.read_bytes() == BEFORE
    assert not node.drop_in.exists()
    assert list(node.state.iterdir()) == []
    assert node.files.restore(withdraw) == Restored()


def list_paths(node: Node) -> list[str]:
    """Everything below the configuration directory."""
    return sorted(str(path.relative_to(node.main.parent)) for path in node.main.parent.rglob("*"))


def test_directories_that_were_made_for_a_file_go_with_it(node: Node) -> None:
    """Both of two; also where somebody has taken the file away meanwhile, and after a second change of ours."""
    deep = node.drop_in.with_name("deep") / "own.toml"
    node.files.apply([node.change(b"ours", deep)])
    node.files.apply([node.change(b"ours again", deep)])
    deep.unlink()
    node.files.apply([node.change(b"once more", deep)])
    RuntimeFiles(node.state).restore(withdraw)
    assert list_paths(node) == ["config.toml"]


def test_a_directory_that_was_there_stays(node: Node) -> None:
    """Empty as it was; and one of ours in which somebody has put a file since."""
    node.drop_in.parent.mkdir()
    node.files.apply([node.change(b"ours", node.drop_in)])
    node.files.restore(withdraw)
    assert list_paths(node) == ["conf.d", "config.toml"]
    other = node.main.parent / "more/own.toml"
    node.files.apply([node.change(b"ours", other)])
    other.with_name("theirs.toml").touch()
    node.files.restore(withdraw)
    assert list_paths(node) == ["conf.d", "config.toml", "more", "more/theirs.toml"]


def test_a_directory_of_a_file_that_is_kept_stays(node: Node) -> None:
    """What others have made of it cannot be told from ours."""
    node.files.apply([node.change(b"a = 1\n", node.drop_in)])
    node.drop_in.write_bytes(b"no TOML")
    assert node.files.restore(withdraw).kept == (str(node.drop_in),)
    node.drop_in.unlink()
    assert node.files.restore(withdraw) == Restored()
    assert list_paths(node) == ["config.toml"]


def test_a_directory_goes_where_a_writer_was_killed_in_it(node: Node) -> None:
    """What it left beside the file that it did not come to write is ours; a file in the directory's place is not."""
    changes = [node.change(b"x", node.drop_in)]
    node.files.apply(changes)
    node.drop_in.rename(node.drop_in.with_name(f".{node.drop_in.name}.0123abcd.tmp"))
    node.files.restore(withdraw)
    assert list_paths(node) == ["config.toml"]
    node.files.apply(changes)
    node.drop_in.unlink()
    node.drop_in.parent.rmdir()
    node.drop_in.parent.touch()
    assert node.files.restore(withdraw) == Restored()
    assert list_paths(node) == ["conf.d", "config.toml"]


def test_a_change_that_is_undone_leaves_no_directory(node: Node) -> None:
    """After a restart that failed, and where the second file could not be written."""
    changes = [node.change(b"x", node.drop_in)]
    node.files.apply(changes)
    node.files.undo(changes)
    assert list_paths(node) == ["config.toml"]
    node.main.with_name("in-place").touch()
    second = FileChange(path=str(node.main.parent / "in-place/b.toml"), before=None, after=b"x")
    with pytest.raises(FileNotWritten):
        node.files.apply([*changes, second])
    assert list_paths(node) == ["config.toml", "in-place"]


def test_several_changes_lead_back_to_the_first_state(node: Node) -> None:
    """What was there before us is what counts, however often we wrote."""
    for after in (b"one", b"two", b"three"):
        node.files.apply([node.change(after)])
    node.files.restore(withdraw)
    assert node.main.read_bytes() == BEFORE


@pytest.mark.parametrize("edited", [b"", b"[b]\ntheirs = 2\n"])
def test_a_drop_in_that_got_another_name_is_gone_by_both(node: Node, edited: bytes) -> None:
    """What others had put into it under its former name stays there, without ours."""
    former, ours = node.drop_in.with_name("98.toml"), b"[a]\nours = 1\n"
    node.files.apply([node.change(ours, former), node.change(BEFORE + b"98")])
    former.write_bytes(ours + edited)
    gone = FileChange(path=str(former), before=ours + edited, after=None)
    node.files.apply([node.change(ours + edited, node.drop_in), gone, node.change(BEFORE + b"99")])
    assert not former.exists()
    RuntimeFiles(node.state).restore(withdraw)
    assert node.main.read_bytes() == BEFORE
    assert (former.read_bytes() if former.exists() else b"") == edited
    assert not node.drop_in.exists()


def test_what_somebody_else_wrote_meanwhile_is_what_is_given_back(node: Node) -> None:
    """A repair is taken back to the file of the program that had undone the setting."""
    node.files.apply([node.change(b"ours")])
    node.main.write_bytes(b"theirs")
    node.files.apply([node.change(b"ours again")])
    node.files.restore(withdraw)
    assert node.main.read_bytes() == b"theirs"


def test_our_part_is_taken_out_of_a_file_that_others_changed_since(node: Node) -> None:
    """Theirs stays to the byte; a drop-in of ours with their keys in it stays with those; nothing is left on record."""
    node.main.write_bytes(PLAIN)
    ours = b"version = 2\n[a]\nours = 1\n"
    node.files.apply([node.change(PLAIN + b"[a]\nours = 1\n"), node.change(ours, node.drop_in)])
    node.main.write_bytes(b"# theirs\n" + node.main.read_bytes() + b"theirs = 2\n")
    node.drop_in.write_bytes(b"version = 2\n[a]\nours = 1\n[b]\ntheirs = 2\n")
    assert node.files.restore(withdraw) == Restored(taken_out=(str(node.main), str(node.drop_in)))
    assert node.main.read_bytes() == b"# theirs\n" + PLAIN + b"[a]\ntheirs = 2\n"
    assert node.drop_in.read_bytes() == b"version = 2\n[b]\ntheirs = 2\n"
    assert node.files.list_paths() == ()


def test_our_part_of_before_goes_too_where_we_wrote_again_over_what_others_made_of_it(node: Node) -> None:
    """A default runtime that stayed behind would be a program that is gone."""
    node.main.write_bytes(PLAIN)
    node.files.apply([node.change(PLAIN + b"ours = 1\n")])
    node.main.write_bytes(PLAIN + b"ours = 1\ntheirs = 2\n")
    node.files.apply([node.change(PLAIN + b"ours = 1\ntheirs = 2\nalso_ours = 3\n")])
    assert node.files.list_paths() == (str(node.main),)
    assert RuntimeFiles(node.state).restore(withdraw) == Restored(taken_out=(str(node.main),))
    assert node.main.read_bytes() == PLAIN + b"theirs = 2\n"
    assert node.files.list_paths() == ()


@pytest.mark.parametrize("theirs", [PLAIN, None], ids=["as it was", "gone"])
def test_what_others_took_back_is_what_is_given_back(node: Node, theirs: bytes | None) -> None:
    """However often; the record has one entry for it."""
    node.main.write_bytes(PLAIN)
    for number in range(3):
        node.files.apply([node.change(PLAIN + b"ours = %d\n" % number)])
        node.main.write_bytes(theirs or b"")
        if theirs is None:
            node.main.unlink()
    node.files.apply([node.change(PLAIN + b"ours = 9\n")])
    assert len(json.loads((node.state / RECORD_NAME).read_bytes())) == 1
    assert node.files.restore(withdraw) == Restored(given_back=(str(node.main),))
    assert (node.main.read_bytes() if node.main.exists() else None) == theirs


def test_a_file_without_our_part_any_longer_is_not_written(node: Node) -> None:
    """Somebody has taken it out already."""
    node.main.write_bytes(PLAIN)
    node.files.apply([node.change(PLAIN + b"ours = 1\n")])
    node.main.write_bytes(PLAIN + b"theirs = 1\n")
    before = node.main.stat().st_mtime_ns
    assert node.files.restore(withdraw).taken_out == (str(node.main),)
    assert node.main.stat().st_mtime_ns == before


def test_a_record_of_an_earlier_release_names_the_file(node: Node) -> None:
    """It knows what was there before and not what was made of it."""
    node.files.apply([node.change(b"ours = 1\n")])
    record = node.state / RECORD_NAME
    known = json.loads(record.read_bytes())
    record.write_text(json.dumps([{key: entry[key] for key in ("path", "before", "after")} for entry in known]))
    node.main.write_bytes(b"ours = 1\ntheirs = 2\n")
    assert node.files.restore(withdraw).kept == (str(node.main),)


def test_a_file_that_cannot_be_told_apart_is_left_alone(node: Node) -> None:
    """Their work is not thrown away; it stays in the record, and the rest is given back."""
    node.files.apply([node.change(b"ours"), node.change(b"x", node.drop_in)])
    node.main.write_bytes(b"ours, and theirs")
    restored = node.files.restore(withdraw)
    assert restored == Restored(given_back=(str(node.drop_in),), kept=(str(node.main),))
    assert node.main.read_bytes() == b"ours, and theirs"
    assert node.files.list_paths() == (str(node.main),)


def test_a_file_that_was_removed_since_comes_back(node: Node) -> None:
    """Removed by hand, it is given back all the same; a drop-in that is gone stays gone."""
    node.files.apply([node.change(b"ours"), node.change(b"x", node.drop_in)])
    node.main.unlink()
    node.drop_in.unlink()
    assert node.files.restore(withdraw).given_back == (str(node.main),)
    assert node.main.read_bytes() == BEFORE


def test_a_change_is_not_written_over_a_newer_file(node: Node) -> None:
    change = node.change(b"ours")
    node.main.write_bytes(b"theirs")
    with pytest.raises(FileChangedMeanwhile, match="try again"):
        node.files.apply([change])
    assert node.main.read_bytes() == b"theirs"
    assert node.files.list_paths() == ()


def test_all_are_written_or_none(node: Node) -> None:
    """When the second file cannot be written, the first is as it was."""
    node.drop_in.parent.write_text("a file in place of the directory")
    change = FileChange(path=str(node.drop_in), before=None, after=b"x")
    with pytest.raises(FileNotWritten):
        node.files.apply([node.change(b"ours"), change])
    assert node.main.read_bytes() == BEFORE
    assert node.files.list_paths() == ()


def test_undo_takes_back_what_nobody_touched_since(node: Node) -> None:
    """A change that did not do what it should goes; a file changed since then stays."""
    changes = [node.change(b"ours"), node.change(b"x", node.drop_in)]
    node.files.apply(changes)
    node.drop_in.write_bytes(b"theirs")
    node.files.undo(changes)
    assert node.main.read_bytes() == BEFORE
    assert node.drop_in.read_bytes() == b"theirs"


def test_a_symbolic_link_stays_one(node: Node) -> None:
    """The file it leads to is written."""
    real = node.main.rename(node.main.with_name("real.toml"))
    node.main.symlink_to("real.toml")
    node.files.apply([node.change(b"ours")])
    assert node.main.is_symlink()
    assert real.read_bytes() == b"ours"
    node.files.restore(withdraw)
    assert real.read_bytes() == BEFORE


def plant(place: Path, target: Path, content: bytes | None) -> bytes | None:
    """Put a link in the place of a file, and something where it leads, or nothing."""
    if content is not None:
        target.write_bytes(content)
    place.unlink(missing_ok=True)
    place.symlink_to(target.name)
    return content


def read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


@pytest.fixture
def own(node: Node) -> Path:
    """Our file in a directory that is there already."""
    node.drop_in.parent.mkdir()
    return node.drop_in.with_name("zz-nodeagent.toml")


@pytest.mark.parametrize("was_there", [True, False], ids=["in the place of ours", "where none was"])
def test_a_link_planted_under_our_files_name_is_refused(node: Node, own: Path, was_there: bool) -> None:
    """Between plan and write; also when it leads to what the plan has seen, byte for byte."""
    if was_there:
        own.write_bytes(b"ours before")
    change, target = node.change(b"ours", own), own.with_name("victim")
    before = plant(own, target, change.before)
    with pytest.raises(FileChangedMeanwhile):
        node.files.apply([node.change(b"ours"), change])
    assert (read(target), own.is_symlink(), node.main.read_bytes()) == (before, True, BEFORE)
    assert node.files.list_paths() == ()


@pytest.mark.parametrize("is_own_root", [True, False])
def test_a_link_planted_at_the_last_moment_is_replaced(
    node: Node, own: Path, monkeypatch: pytest.MonkeyPatch, is_own_root: bool
) -> None:
    """When nobody looks any more; what it leads to is as it was."""
    root = Path("/") if is_own_root else node.main.parent.parent
    path = str(own) if is_own_root else f"/{own.relative_to(root)}"
    files, target = RuntimeFiles(node.state, HostPaths(root)), own.with_name("victim")
    load = RuntimeFiles._load  # between look and write

    def plant_late(self: RuntimeFiles) -> object:
        plant(own, target, b"theirs")
        return load(self)

    with monkeypatch.context() as patch:
        patch.setattr(RuntimeFiles, "_load", plant_late)
        files.apply([FileChange(path=path, before=None, after=b"ours")])
    assert (target.read_bytes(), own.is_symlink(), own.read_bytes()) == (b"theirs", False, b"ours")
    assert files.restore(withdraw) == Restored(given_back=(path,))
    assert (target.read_bytes(), own.exists()) == (b"theirs", False)


@pytest.mark.parametrize("theirs", [b"ours", b"theirs", None], ids=["a copy of ours", "another file", "nothing"])
def test_a_link_in_the_place_of_our_file_is_left_alone_on_the_way_back(
    node: Node, own: Path, theirs: bytes | None
) -> None:
    """It is somebody's work, wherever it leads; nothing of ours is there any more, and that is said."""
    change, target = node.change(b"ours", own), own.with_name("victim")
    node.files.apply([change])
    plant(own, target, theirs)
    node.files.undo([change])
    assert node.files.restore(withdraw) == Restored(kept=(str(own),))
    assert (read(target), own.is_symlink()) == (theirs, True)


def test_the_record_is_written_before_the_file(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent killed in between still knows the way back."""

    def die(_self: HostPaths, _path: str, _content: bytes | None, *, follow_link: bool) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HostPaths, "write", die)
        with pytest.raises(KeyboardInterrupt):
            node.files.apply([node.change(b"ours")])
    assert node.files.list_paths() == (str(node.main),)
    assert node.files.restore(withdraw) == Restored()


def test_a_damaged_record_is_told(node: Node) -> None:
    """Nothing is written and nothing given back over it."""
    node.state.mkdir()
    (node.state / RECORD_NAME).write_text("[{")
    with pytest.raises(BackupUnreadable, match="by hand"):
        node.files.apply([node.change(b"ours")])
    assert node.main.read_bytes() == BEFORE


def test_a_state_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """Without a way back nothing is written."""
    (tmp_path / "etc").mkdir()
    main = tmp_path / "etc/config.toml"
    main.write_bytes(BEFORE)
    (tmp_path / "state").write_text("in the way")
    change = FileChange(path=str(main), before=BEFORE, after=b"ours")
    with pytest.raises(FileNotWritten, match="create its directory"):
        RuntimeFiles(tmp_path / "state").apply([change])
    assert main.read_bytes() == BEFORE


def test_a_file_that_cannot_be_removed_is_told(node: Node) -> None:
    """A directory that somebody put in the place of our drop-in stays, and is named."""
    node.files.apply([node.change(b"x", node.drop_in)])
    change = FileChange(path=str(node.drop_in), before=None, after=b"x")
    node.drop_in.unlink()
    node.drop_in.mkdir()
    with pytest.raises(FileUnreadable, match="is a directory"):
        node.files.undo([change])
