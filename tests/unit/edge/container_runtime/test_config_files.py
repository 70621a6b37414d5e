"""Reading configuration files as the runtimes do."""

from pathlib import Path

import pytest

from nodeagent.edge.container_runtime.config_files import read_config_tree
from nodeagent.model.runtime import RuntimeKind


def read_names(kind: RuntimeKind, main: Path, *extra: str) -> list[str]:
    tree = read_config_tree(kind, str(main), extra=extra)
    return [str(Path(file.path).relative_to(main.parent)) for file in tree.files]


def test_imports_are_followed_in_order(tmp_path: Path) -> None:
    """Globs sorted, relative to the file that has them, each file once even in a circle."""
    main = tmp_path / "config.toml"
    main.write_text('imports = ["conf.d/*.toml", "other.toml", 5]\n')
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d/b.toml").write_text(f'imports = ["{main}", "../deep.toml", "b.toml"]\n')
    (tmp_path / "conf.d/a.toml").write_text("")
    (tmp_path / "deep.toml").write_text("")
    (tmp_path / "other.toml").write_text("not toml")
    names = [Path(name).name for name in read_names(RuntimeKind.CONTAINERD, main)]
    assert names == ["config.toml", "a.toml", "b.toml", "other.toml", "deep.toml"]


def test_an_import_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    """The daemon does not start without it; what a star fits may be nothing."""
    main = tmp_path / "config.toml"
    main.write_text('imports = ["conf.d/*.toml", "gone.toml", "99-own.t*ml"]\n')
    (problem,) = read_config_tree(RuntimeKind.CONTAINERD, str(main)).problems
    assert problem.startswith(f"{main} imports gone.toml, which is not there")


def test_imports_of_microk8s_template_are_those_that_its_start_script_makes(tmp_path: Path) -> None:
    """Directories of the snap are filled in; of another variable nobody but the script knows what it is."""
    main = tmp_path / "args/containerd-template.toml"
    (tmp_path / "args/more").mkdir(parents=True)
    (tmp_path / "args/more/a.toml").write_text("")
    (tmp_path / "args/b.toml").write_text("")
    main.write_text('imports = ["${SNAP_DATA}/args/more/*.toml", "${SNAP_DATA}/args/b.toml"]\n')
    tree = read_config_tree(RuntimeKind.CONTAINERD, str(main))
    assert [Path(file.path).name for file in tree.files] == [main.name, "a.toml", "b.toml"]
    assert tree.problems == ()
    assert b"${SNAP_DATA}" in (tree.files[0].content or b""), "what is edited is the template"
    main.write_text('imports = ["${SNAP}/gone.toml", "${SNAPSHOTTER}/*.toml"]\n')
    gone, unknown = read_config_tree(RuntimeKind.CONTAINERD, str(main)).problems
    assert "imports /snap/microk8s/current/gone.toml, which is not there" in gone
    assert "its start script alone knows what ${SNAPSHOTTER} is" in unknown


def test_a_variable_in_another_file_is_a_name_like_any(tmp_path: Path) -> None:
    """Nobody fills in what containerd itself reads."""
    main = tmp_path / "config.toml"
    (tmp_path / "${SNAP_DATA}").mkdir()
    (tmp_path / "${SNAP_DATA}/a.toml").write_text("")
    main.write_text('imports = ["${SNAP_DATA}/*.toml"]\n')
    assert read_names(RuntimeKind.CONTAINERD, main) == ["config.toml", "${SNAP_DATA}/a.toml"]


def test_crio_reads_its_whole_directory(tmp_path: Path) -> None:
    """Whatever the extension, in order of names, also in directories below."""
    main = tmp_path / "crio.conf"
    (tmp_path / "crio.conf.d/sub").mkdir(parents=True)
    for name in ("20-b", "10-a.conf", "sub/30-c.bak"):
        (tmp_path / "crio.conf.d" / name).write_text("")
    names = read_names(RuntimeKind.CRIO, main)
    assert names == ["crio.conf", "crio.conf.d/10-a.conf", "crio.conf.d/20-b", "crio.conf.d/sub/30-c.bak"]


def test_crio_reads_directories_and_files_in_one_order(tmp_path: Path) -> None:
    """What is read last counts, and that is not what lies deepest."""
    main = tmp_path / "crio.conf"
    (tmp_path / "crio.conf.d/10").mkdir(parents=True)
    names = ("crio.conf.d/10/z", "crio.conf.d/20", "crio.conf.d/zz-nodeagent.conf")
    for name in reversed(names):
        (tmp_path / name).write_text("")
    tree = read_config_tree(RuntimeKind.CRIO, str(main))
    assert [file.path for file in tree.files] == [str(main), *(str(tmp_path / name) for name in names)]


def test_crio_reads_its_directory_beside_a_main_file_of_any_name(tmp_path: Path) -> None:
    """Our own file is there; unread, it would be taken for one that somebody else keeps changing."""
    (tmp_path / "crio.conf.d").mkdir()
    (tmp_path / "crio.conf.d/zz-nodeagent.conf").write_text("")
    tree = read_config_tree(RuntimeKind.CRIO, str(tmp_path / "own.conf"))
    assert [file.path for file in tree.files][1:] == [str(tmp_path / "crio.conf.d/zz-nodeagent.conf")]


def test_podman_reads_what_is_called_conf(tmp_path: Path) -> None:
    """A remark for people beside them is no configuration, and what lies deeper is not read."""
    main = tmp_path / "containers.conf"
    (tmp_path / "containers.conf.d/old.conf").mkdir(parents=True)
    for name in ("10.conf", "README", "10.conf.rpmsave", "old.conf/5.conf"):
        (tmp_path / "containers.conf.d" / name).write_text("not TOML")
    tree = read_config_tree(RuntimeKind.PODMAN, str(main))
    assert [file.path for file in tree.files] == [str(main), f"{main}.d/10.conf"]


def test_an_absent_file_has_no_content_and_no_problem(tmp_path: Path) -> None:
    """Runtimes run without one; a directory in its place is a problem."""
    (file,) = read_config_tree(RuntimeKind.DOCKER, str(tmp_path / "daemon.json")).files
    assert (file.content, file.problem) == (None, "")
    (file,) = read_config_tree(RuntimeKind.DOCKER, str(tmp_path)).files
    assert "is a directory" in file.problem


def test_a_file_beyond_belief_is_a_problem(tmp_path: Path) -> None:
    """Nobody writes four megabytes of settings."""
    (tmp_path / "daemon.json").write_bytes(bytes(4 * 1024 * 1024 + 1))
    (file,) = read_config_tree(RuntimeKind.DOCKER, str(tmp_path / "daemon.json")).files
    assert "larger than" in file.problem


def test_too_many_files_are_a_problem(tmp_path: Path) -> None:
    """A glob that was meant otherwise does not read the whole disk."""
    main = tmp_path / "config.toml"
    main.write_text('imports = ["many/*"]')
    (tmp_path / "many").mkdir()
    for number in range(70):
        (tmp_path / f"many/{number}.toml").write_text("")
    tree = read_config_tree(RuntimeKind.CONTAINERD, str(main))
    assert len(tree.files) == 64
    assert "more than 64 files" in tree.problems[0]


def test_extra_files_are_read_where_they_exist(tmp_path: Path) -> None:
    """A file of ours that no import leads to comes last; one that is read anyway comes once."""
    main = tmp_path / "config.toml"
    extra = tmp_path / "extra.toml"
    assert read_names(RuntimeKind.CONTAINERD, main, str(extra)) == ["config.toml"]
    extra.write_text("")
    assert read_names(RuntimeKind.CONTAINERD, main, str(extra), str(main)) == ["config.toml", "extra.toml"]


@pytest.mark.parametrize("is_imported", [False, True])
@pytest.mark.parametrize("target", ["there.toml", "gone.toml"])
def test_a_link_under_the_name_of_our_file_is_not_followed(tmp_path: Path, target: str, is_imported: bool) -> None:
    """What it leads to is somebody else's: neither read as ours nor, whether it is there or not, written."""
    main, own = tmp_path / "config.toml", tmp_path / "conf.d/zz-nodeagent.toml"
    main.write_text('imports = ["conf.d/*.toml"]\n' if is_imported else "")
    (tmp_path / "there.toml").write_text("a = 1\n")
    own.parent.mkdir()
    own.symlink_to(f"../{target}")
    tree = read_config_tree(RuntimeKind.CONTAINERD, str(main), extra=(str(own),))
    assert [file.path for file in tree.files] == [str(main), str(own)]
    assert tree.files[-1].content is None
    assert tree.files[-1].problem == f"{own} is a symbolic link, and none is followed there: take it away"


def test_a_link_above_our_file_is_followed(tmp_path: Path) -> None:
    """Administrators move whole directories, and so do distributions."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real/own.toml").write_text("a = 1\n")
    (tmp_path / "conf.d").symlink_to("real")
    tree = read_config_tree(RuntimeKind.CONTAINERD, str(tmp_path / "m"), extra=(str(tmp_path / "conf.d/own.toml"),))
    assert tree.files[-1].content == b"a = 1\n"
