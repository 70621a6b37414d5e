"""`nodeagent config import` as people type it."""

import io
import json
import sys
from pathlib import Path

import pytest

from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.config.load import load_settings
from tests.support.programs.command_line import run_here

VALUES = "migStrategy: single\nimage: {tag: v1}\n"


def run(*words: str) -> tuple[int, str, str]:
    return run_here("config", "import", *words)


def test_import_prints_a_file_and_names_what_is_not_in_it(tmp_path: Path) -> None:
    """The exit code tells a script that a person should look."""
    source = tmp_path / "values.yaml"
    source.write_text(VALUES)
    code, out, err = run(str(source))
    assert (code, "mig_strategy: single" in out) == (ExitCode.UNWELL, True)
    assert "not imported" in err
    assert "image.tag" in err


def test_import_writes_what_the_agent_reads(tmp_path: Path) -> None:
    """A whole file, with which the agent would start."""
    source, target = tmp_path / "values.yaml", tmp_path / "config.yaml"
    source.write_text("migStrategy: single\n")
    code, out, _ = run("-o", str(target), str(source))
    assert (code, out) == (ExitCode.OK, f"written: {target}\n")
    assert load_settings(target, environ={}).settings.device_plugin.mig_strategy == "single"


def test_import_speaks_json(tmp_path: Path) -> None:
    source = tmp_path / "values.yaml"
    source.write_text(VALUES)
    _, out, _ = run("--json", str(source))
    found = json.loads(out)
    assert found["settings"] == {"device_plugin": {"mig_strategy": "single"}}
    assert len(found["not_imported"]) == 1


def test_import_says_what_would_change_on_this_node(tmp_path: Path) -> None:
    """Against the configuration that the node has; nothing is written."""
    source, present = tmp_path / "values.yaml", tmp_path / "config.yaml"
    source.write_text("migStrategy: single\nnvidiaDriverRoot: /opt/driver\n")
    present.write_text("device_plugin: {mig_strategy: mixed}\n")
    words = ("--check", "--config", str(present), str(source))
    code, out, _ = run(*words)
    at_once = "would change on this node at once, on a reload:\n  device_plugin.mig_strategy: mixed → single\n"
    later = "would change on this node from the next start on:\n  driver.root: / → /opt/driver\n"
    assert (code, out) == (ExitCode.OK, at_once + later)
    changes = json.loads(run("--json", *words)[1])["changes"]
    assert changes[0] == {
        "setting": "device_plugin.mig_strategy", "before": "mixed", "after": "single", "needs_restart": False
    }  # fmt: skip
    assert [each["needs_restart"] for each in changes] == [False, True]
    present.write_text("{device_plugin: {mig_strategy: single}, driver: {root: /opt/driver}}\n")
    assert run(*words)[1] == "nothing would change on this node\n"


def test_import_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a pipe from kubectl."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(VALUES))
    assert "mig_strategy: single" in run("-")[1]


def test_a_file_that_an_option_names_is_read_where_it_is(tmp_path: Path) -> None:
    """Of this machine; one that is missing, or in a pod, is named with what follows."""
    line, pod, extra = (tmp_path / name for name in ("line", "pod.yaml", "extra.json"))
    line.write_text(f"gpu-manager --share-mode=true --extra-config={extra}\n")
    container = f"{{name: gpu-manager, image: x, args: [--extra-config={extra}]}}"
    pod.write_text(f"apiVersion: v1\nkind: Pod\nspec: {{containers: [{container}]}}\n")
    code, out, err = run(str(line))
    assert (code, "extra_devices" in out) == (ExitCode.UNWELL, False)
    assert f"{extra}: args.extra-config: containers get none of its devices, unless the file or" in err
    assert "no such file" in err
    extra.write_text('{"default": {"devices": ["/dev/fuse"]}}')
    assert "the file is in the pod" in run(str(pod))[2]
    for words in ([str(line)], [str(pod), str(extra)]):
        code, out, err = run(*words)
        assert (code, "host: /dev/fuse" in out, err) == (ExitCode.OK, True, "")


def test_what_cannot_be_imported_is_one_line(tmp_path: Path) -> None:
    """A missing file, another's file, a value that the agent refuses, a place that cannot be written."""
    odd, refused, binary = tmp_path / "odd", tmp_path / "refused", tmp_path / "binary"
    odd.write_text("hello: 1\n")
    refused.write_text("migStrategy: sometimes\n")
    binary.write_bytes(b"\xff\xfe")
    good = tmp_path / "good"
    good.write_text("migStrategy: single\n")
    for words in ([str(tmp_path / "none")], [str(odd)], [str(refused)], [str(binary)], ["-o", "/proc/none", str(good)]):
        code, out, err = run(*words)
        assert (code, out) == (ExitCode.BAD_INPUT, ""), words
        assert err.startswith("nodeagent: "), words
        assert err.count("\n") == 1, words


def test_import_prints_what_the_chart_is_told(tmp_path: Path) -> None:
    """Beside the agent's own settings; who prints the agent's file alone is told that there is more."""
    source, target = tmp_path / "policy.yaml", tmp_path / "values.yaml"
    source.write_text("kind: ClusterPolicy\nspec: {driver: {enabled: false, version: '570'}, mig: {strategy: mixed}}\n")
    code, out, err = run(str(source))
    assert (code, out.endswith("device_plugin:\n  mig_strategy: mixed\n")) == (ExitCode.UNWELL, True)
    assert "driver: told to the chart and not to the agent; --values prints" in err
    code, _, err = run("--values", "-o", str(target), str(source))
    assert (code, err) == (ExitCode.OK, "")
    config = "config:\n  device_plugin:\n    mig_strategy: mixed\n"
    assert target.read_text() == f"driver:\n  enabled: false\n  version: '570'\n{config}"
    assert json.loads(run("--json", str(source))[1])["chart_values"] == {"driver": {"enabled": False, "version": "570"}}


def test_a_later_files_chart_values_replace_those_of_an_earlier_one(tmp_path: Path) -> None:
    """With a line about it, as with settings; groups of nodes come together."""
    names = [tmp_path / name for name in ("a", "b")]
    for name, version in zip(names, ("570", "580"), strict=True):
        name.write_text(f"kind: ClusterPolicy\nspec: {{driver: {{version: '{version}'}}}}\n")
    _, out, err = run("--values", *map(str, names))
    assert "version: '580'" in out
    assert f"{names[1]}: driver.version: '580' replaces '570' of {names[0]}" in err
