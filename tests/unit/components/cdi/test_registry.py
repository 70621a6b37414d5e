"""What runtimes make of the files of a node."""

import pytest
from msgspec import json

from nodeagent.components.cdi.registry import (
    SpecReading,
    describe_conflicts,
    find_conflicts,
    find_foreign_definers,
    is_spec_name,
    parse_spec,
)
from nodeagent.model.cdi import SpecContent

DOCUMENT = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "0", "containerEdits": {"env": ["A=b"]}}],
}


def make_content(path: str = "/etc/cdi/x.json", content: bytes | None = None) -> SpecContent:
    return SpecContent(path=path, content=json.encode(DOCUMENT) if content is None else content)


def make_reading(path: str, *devices: str, kind: str = "nvidia.com/gpu") -> SpecReading:
    return SpecReading(path=path, kind=kind, devices=devices)


def test_a_valid_file_gives_its_names() -> None:
    """JSON and YAML alike are read by the extension of their name."""
    yaml = b"---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: '0'\n  containerEdits: {env: [A=b]}\n"
    for content in (make_content(), make_content("/etc/cdi/x.yaml", yaml)):
        reading = parse_spec(content)
        assert (reading.problem, reading.version, reading.names) == ("", "0.5.0", ("nvidia.com/gpu=0",))


def test_a_program_that_is_run_for_each_container_is_told() -> None:
    """Whoever looks at a node without an agent sees which layout is in force."""
    assert parse_spec(make_content()).hook == ""
    edits = {"hooks": [{"hookName": "createContainer", "path": "/lib/hook", "args": ["hook"]}]}
    assert parse_spec(make_content(content=json.encode(DOCUMENT | {"containerEdits": edits}))).hook == "/lib/hook"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.json", b"{", "line 1 column 2"),
        ("x.json", b"\xff\xfe", ""),
        ("x.json", b"[" * 100_000, "nested too deeply"),
        ("x.json", b'{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu"}', "devices: is missing"),
        ("x.yaml", b"a: [", "line 2, column 1"),
        ("x.yaml", b"a: \x01", "no YAML"),
        ("x.yaml", b"? [a]\n: b\n? {c: d}\n: e\n", "no YAML"),
        ("x.yaml", b"[" * 100_000, "nested too deeply"),
        ("x.yaml", b"- " * 100_000, "nested too deeply"),
        ("x.yaml", b"", "no object"),
    ],
)
def test_a_bad_file_is_a_problem_and_nothing_more(name: str, content: bytes, problem: str) -> None:
    """Whatever lies in the directory, it costs only itself, and the reason has its place."""
    reading = parse_spec(make_content(f"/etc/cdi/{name}", content))
    assert reading.problem
    assert problem in reading.problem
    assert reading.names == ()


def test_an_unreadable_file_keeps_its_reason() -> None:
    """What the host says about the file is passed on."""
    assert parse_spec(SpecContent(path="/x.json", problem="permission denied")).problem == "permission denied"


def test_only_two_extensions_count() -> None:
    """Runtimes read no other file; `.yml` is the usual mistake."""
    assert [is_spec_name(name) for name in ("a.json", "a.yaml", "a.yml", "a.json.tmp")] == [True, True, False, False]


def test_two_files_of_a_directory_cancel_each_other() -> None:
    """Only names that both define are lost; the same name in another directory is not a conflict."""
    readings = [
        make_reading("/etc/cdi/a.json", "0", "1"),
        make_reading("/etc/cdi/b.json", "1", "2"),
        make_reading("/var/run/cdi/c.json", "0"),
    ]
    conflicts = find_conflicts(readings)
    assert conflicts == {"nvidia.com/gpu=1": ("/etc/cdi/a.json", "/etc/cdi/b.json")}


def test_a_conflict_is_one_sentence_for_all_its_names() -> None:
    """Eight GPUs twice are one thing to mend."""
    readings = [make_reading(f"/etc/cdi/{name}.json", "0", "1", "all") for name in "ab"]
    described = describe_conflicts(find_conflicts(readings))
    assert list(described) == ["/etc/cdi/a.json, /etc/cdi/b.json"]
    assert "nvidia.com/gpu=0 and 2 more names" in described["/etc/cdi/a.json, /etc/cdi/b.json"]
    alone = describe_conflicts({"k/c=0": ("/a", "/b")})
    assert "more names" not in alone["/a, /b"]


def test_a_bad_file_of_a_kind_counts_as_its_definer() -> None:
    """Its owner will mend it, so the kind is left to it."""
    broken = parse_spec(make_content(content=json.encode(DOCUMENT | {"devices": []})))
    assert find_foreign_definers([broken], "nvidia.com/gpu", ()) == ("/etc/cdi/x.json",)
    assert find_foreign_definers([broken], "nvidia.com/gpu", ("/etc/cdi/x.json",)) == ()
    listed = parse_spec(make_content(content=b'{"cdiVersion": "0.5.0", "kind": [1], "devices": []}'))
    assert listed.kind == ""
