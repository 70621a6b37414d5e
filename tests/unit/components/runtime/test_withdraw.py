"""Taking our keys out of a file that somebody else has edited since."""

import json
import tomllib

import pytest

from nodeagent.components.runtime.toml_edit import ConfigUneditable, ConfigUnparsable
from nodeagent.components.runtime.withdraw import compare, withdraw
from nodeagent.model.runtime import EditedFile

MAIN = "/etc/containerd/config.toml"
BEFORE = """# by hand
version = 2
[plugins."cri"] # ours to keep
  enable_cdi = false # off
  sandbox_image = "pause"
"""
COMMENT = "# nothing is set\n"
OURS = """# by hand
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."cri"] # ours to keep
  enable_cdi = true # off
  sandbox_image = "pause"

  [plugins."cri".containerd.runtimes.nvidia]
  runtime_type = "runc"

  [plugins."cri".containerd.runtimes.nvidia.options]
  BinaryName = "/usr/bin/wrapper"
"""


def take_out(now: str, *, before: str | None = BEFORE, ours: str = OURS, path: str = MAIN) -> str | None:
    told = None if before is None else before.encode()
    content = withdraw(EditedFile(path=path, before=told, ours=ours.encode(), now=now.encode()))
    return None if content is None else content.decode()


@pytest.mark.parametrize(
    ("edit", "back"),
    [
        (lambda text: text, lambda text: text),
        (lambda text: f"# top\n{text}", lambda text: f"# top\n{text}"),
        (lambda text: text.replace('"pause"', '"other"'), lambda text: text.replace('"pause"', '"other"')),
        (
            lambda text: text.replace("[plugins.", "debug = 1\n[plugins.", 1),
            lambda text: text.replace("[plugins.", "debug = 1\n[plugins.", 1),
        ),
        (lambda text: f"{text}[grpc]\nx = 1\n", lambda text: f"{text}[grpc]\nx = 1\n"),
        (lambda text: text.replace("# by hand\n", ""), lambda text: text.replace("# by hand\n", "")),
    ],
    ids=["nothing", "comment above", "a value", "a key above", "a table below", "comment removed"],
)
def test_lines_of_others_stay_as_they_are(edit: "object", back: "object") -> None:
    """What comes out is what they would have made of the file without us, comments and order and all."""
    assert callable(edit)
    assert callable(back)
    taken = take_out(edit(OURS))
    assert taken is not None
    assert [line for line in taken.splitlines() if line] == back(BEFORE).splitlines()


def test_a_value_that_others_changed_is_theirs() -> None:
    """Our other keys go, this one stays as they set it."""
    taken = take_out(OURS.replace('"/usr/bin/wrapper"', '"/opt/theirs"'))
    assert taken is not None
    document = tomllib.loads(taken)
    assert document["plugins"]["cri"] == {
        "enable_cdi": False,
        "sandbox_image": "pause",
        "containerd": {"runtimes": {"nvidia": {"options": {"BinaryName": "/opt/theirs"}}}},
    }
    assert "imports" not in document


def test_an_import_of_others_beside_ours_stays() -> None:
    """Only our entry leaves the list."""
    now = OURS.replace('"/etc/containerd/conf.d/*.toml"', '"/etc/containerd/conf.d/*.toml", "/theirs.toml"')
    taken = take_out(now)
    assert taken is not None
    assert tomllib.loads(taken)["imports"] == ["/theirs.toml"]
    assert "# ours to keep" in taken


def test_a_file_written_anew_from_end_to_end_loses_our_keys() -> None:
    """Another tool sorts, indents and drops comments; our keys are found by their names."""
    now = """version = 2
imports = ['/etc/containerd/conf.d/*.toml']

[plugins]
[plugins.cri]
sandbox_image = 'pause'
enable_cdi = true
[plugins.cri.containerd]
[plugins.cri.containerd.runtimes]
[plugins.cri.containerd.runtimes.nvidia]
runtime_type = 'runc'
[plugins.cri.containerd.runtimes.nvidia.options]
BinaryName = '/usr/bin/wrapper'
[plugins.cri.containerd.runtimes.runc]
runtime_type = 'runc'
"""
    taken = take_out(now)
    assert taken is not None
    assert tomllib.loads(taken) == {
        "version": 2,
        "plugins": {
            "cri": {
                "sandbox_image": "pause",
                "enable_cdi": False,
                "containerd": {"runtimes": {"runc": {"runtime_type": "runc"}}},
            }
        },
    }


@pytest.mark.parametrize(
    ("now", "left"),
    [
        ("version = 3\n[a]\nx = 1\n# note\n", None),
        ("version = 3\n", None),
        ("# all gone\n", None),
        ("version = 3\n[a]\nx = 1\ny = 2\n", "version = 3\n[a]\ny = 2\n"),
        ("version = 3\n[a]\nx = 2\n", "version = 3\n[a]\nx = 2\n"),
    ],
    ids=["a comment", "key removed", "everything removed", "a key of theirs", "our key changed"],
)
def test_a_file_of_our_own_goes_unless_others_use_it(now: str, left: str | None) -> None:
    """What stays keeps the version it was written for."""
    assert take_out(now, before=None, ours="version = 3\n[a]\nx = 1\n") == left


def test_a_file_that_said_nothing_keeps_the_version_of_what_stays() -> None:
    """Without it containerd would read the tables of others as those of version 1, and pass over them."""
    ours = f'version = 2\nimports = ["/x"]\n{COMMENT}'
    theirs = '[plugins."cri"]\nsandbox_image = "pause"\n'
    assert take_out(ours + theirs, before=COMMENT, ours=ours) == f"version = 2\n{COMMENT}{theirs}"
    assert take_out(f"{ours}# note\n", before=COMMENT, ours=ours) == f"{COMMENT}# note\n"


@pytest.mark.parametrize("path", ["/etc/docker/daemon.json", "/etc/docker/daemon.conf"])
def test_a_json_file_may_have_any_name(path: str) -> None:
    """Docker is told by a flag where its file is."""
    ours = '{"runtimes": {"nvidia": {"path": "/w"}}}'
    taken = take_out('{"debug": true, "runtimes": {"nvidia": {"path": "/w"}}}', before="{}", ours=ours, path=path)
    assert json.loads(taken or "") == {"debug": True}


def test_a_json_file_keeps_its_order() -> None:
    """Docker's file has one object; keys of others are where they were."""
    before = {"storage-driver": "vfs", "features": {"buildkit": True}}
    ours = {**before, "features": {"buildkit": True, "cdi": True}, "runtimes": {"nvidia": {"path": "/w", "args": []}}}
    now = {"debug": True, **ours, "runtimes": {**ours["runtimes"], "crun": {"path": "/crun"}}}  # type: ignore[dict-item]  # a test's own table
    taken = take_out(json.dumps(now), before=json.dumps(before), ours=json.dumps(ours), path="/etc/docker/daemon.json")
    assert taken is not None
    wanted = {"debug": True, **before, "runtimes": {"crun": {"path": "/crun"}}}
    assert list(json.loads(taken).items()) == list(wanted.items())


@pytest.mark.parametrize("broken", ["= 1", "[" * 5000], ids=["no TOML", "too deep"])
def test_a_file_that_cannot_be_read_is_refused(broken: str) -> None:
    with pytest.raises(ConfigUnparsable):
        take_out(broken)


def test_what_neither_way_can_take_out_is_refused() -> None:
    """A key that others spell in their way, in a file that cannot be edited by keys, is named."""
    deep = f"deep = {'[' * 200}{']' * 200}\n"
    with pytest.raises(ConfigUneditable, match=r"cannot set a in \S+: the file was edited since"):
        take_out(f'"a" = 1\n{deep}', before="", ours="a = 1\n")


@pytest.mark.parametrize(
    ("before", "ours", "now", "left"),
    [
        ("", "a = 1\n", 'b = """\na = 1\n"""\na = 1\n', {"b": "a = 1\n"}),
        ("a = 1\n", "a = 1\n[t]\nx = 1\n", "a = 1\n[t]\nx = 1\na = 2\n", {"a": 1, "t": {"a": 2}}),
    ],
    ids=["another meaning", "no TOML"],
)
def test_lines_that_would_come_to_something_else_are_not_taken(
    before: str, ours: str, now: str, left: dict[str, object]
) -> None:
    """A line in a text, a header that others' keys stand below: the keys decide then."""
    taken = take_out(now, before=before, ours=ours)
    assert taken is not None
    assert tomllib.loads(taken) == left


def test_the_comparison_is_by_value() -> None:
    """Whatever was equal before us is not ours."""
    assert compare({"a": 1}, {"a": 1, "b": 2}, {"a": 3, "b": 2, "c": 4}) == {"a": 3, "c": 4}
    assert compare({}, {"a": {"b": 1}}, {"a": 5}) == {"a": 5}
    assert compare({"a": [1]}, {"a": [1, 2]}, {"a": [2, 3]}) == {"a": [3]}
    assert compare({}, {"a": [1]}, {"a": []}) == {}
    assert compare({"a": 5}, {"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}) == {"a": {"c": 2}}
