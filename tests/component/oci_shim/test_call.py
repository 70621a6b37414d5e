"""How the shim is called, what it leaves alone, and what becomes of it when something is missing."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nodeagent.edge.host.shim.table_file import write_on_missing
from tests.component.oci_shim.support import TABLE, Shim, make_node, make_spec
from tests.support.programs.native import NATIVE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.may_block("nothing here runs on an event loop"),
]
SPEC = make_spec("NVIDIA_VISIBLE_DEVICES=0")


@pytest.mark.parametrize(
    ("arguments", "is_changed"),
    [
        (["create", "--bundle", "B", "c"], True),
        (["create", "--bundle=B", "c"], True),
        (["create", "-bundle=B", "c"], True),
        (["create", "-b", "B", "c"], True),
        (["create", "c", "-b", "B"], True),
        (["-b", "B", "create", "c"], True),
        (["create", "-b", "/nowhere", "-b", "B", "c"], True),
        (
            ["--root", "create", "--log", "L", "--systemd-cgroup", "create", "--pid-file", "-b", "--bundle", "B", "c"],
            True,
        ),
        (["--debug", "--root=/r", "create", "--no-pivot", "--bundle", "B", "create"], True),
        (["run", "--bundle", "B", "create"], False),
        (["delete", "create"], False),
        (["--bundle", "create"], False),
        (["exec", "c", "create"], False),
        (["--root", "create", "state", "c"], False),
        (["--version"], False),
        ([], False),
    ],
)
@pytest.mark.long
def test_create_alone_is_acted_upon(arguments: list[str], is_changed: bool, shim: Shim) -> None:
    """Everything reaches the low-level runtime as it was, under its own name, and its status comes back."""
    shim.config.write_text(json.dumps(SPEC))
    words = [each.replace("B", str(shim.bundle)).replace("L", str(shim.place / "log")) for each in arguments]
    done = shim.run(*words)
    assert (done.status, done.said) == (7, "")
    assert done.called == (str(shim.runc), *words)
    assert (done.gpus == ["nvidia0"]) is is_changed


def test_bundle_is_the_current_directory_unless_told(shim: Shim) -> None:
    """A flag without a value is a mistake that is said."""
    shim.config.write_text(json.dumps(SPEC))
    assert shim.run("create", "c", cwd=shim.bundle).gpus == ["nvidia0"]
    done = shim.run("create", "c", "--bundle")
    assert (done.status, done.said) == (1, "nodeagent-oci-shim: bundle option requires an argument\n")
    odd = shim.place / "=bar"
    odd.mkdir()
    shutil.copy(shim.config, odd)
    assert shim.run("create", f"-b={odd}", "c").status == 7


@pytest.mark.parametrize(
    ("format_", "shape"),
    [("json", r'\{"level":"error","msg":"(.*)","time":"(.*)"\}\n'), ("text", r'time="(.*)" level=error msg="(.*)"\n')],
)
def test_errors_are_where_the_engine_looks(format_: str, shape: str, shim: Shim) -> None:
    """In the log of the low-level runtime, in its form, beside standard error and the file for messages."""
    shim.write(TABLE, debug=str(shim.place / "debug"))
    shim.config.write_text(json.dumps(make_spec('NVIDIA_VISIBLE_DEVICES=a"b')))
    log = shim.place / "made" / "log"
    done = shim.run("--log", log, "--log-format", format_, "create", "-b", shim.bundle, "c")
    line = re.fullmatch(shape, log.read_text())
    assert line
    assert 'a\\"b' in "".join(line.groups())
    assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "".join(line.groups()))
    assert 'a"b' in done.said
    assert "level=error" in (shim.place / "debug").read_text()


@pytest.mark.parametrize("kind", ["link", "pipe", "link to nothing"])
@pytest.mark.parametrize("which", ["log", "debug"])
def test_no_log_is_written_through_a_link_or_to_a_pipe(kind: str, which: str, shim: Shim) -> None:
    """Whoever can put one there must not have root append to another file, or wait; standard error has the line."""
    victim, log = shim.place / "victim", shim.place / "log"
    if kind == "pipe":
        os.mkfifo(log)
        reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    else:
        log.symlink_to(victim)
        reader = -1
        if kind == "link":
            victim.write_text("kept")
    shim.write(TABLE, debug=str(log) if which == "debug" else "")
    shim.config.write_text(json.dumps(make_spec("NVIDIA_VISIBLE_DEVICES=nope")))
    words = ("--log", log) if which == "log" else ()
    done = shim.run(*words, "create", "-b", shim.bundle, "c")
    assert (done.status, "'nope'" in done.said) == (1, True)
    assert kind == "pipe" or [path.read_text() for path in (victim,) if path.exists()] == ["kept"] * (kind == "link")
    if reader >= 0:
        assert os.read(reader, 100) == b""
        os.close(reader)


def test_a_bundle_that_cannot_be_written_stops_nobody_who_asks_for_nothing(shim: Shim) -> None:
    """A hook of another program then stays, which does nothing for such a container."""
    spec = make_spec(hooks={"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]})
    shim.config.write_text(json.dumps(spec))
    command = f'ulimit -f 0; trap "" XFSZ; exec "{shim.program}" create -b "{shim.bundle}" c'
    environment = {**shim.environment, "RECORD": "/dev/null"}
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(shim.config.read_text())) == (7, spec)


def test_low_level_runtime_is_the_first_that_is_a_program(shim: Shim) -> None:
    """Never the shim itself, though it may have the same name."""
    (shim.tools / "other").mkdir()
    (shim.tools / "plain").write_text("no program")
    own = shim.tools / "own"
    shutil.copy(shim.program, own)
    shim.write(TABLE, runtimes=("other", "plain", "/nowhere/runc", "own", "runc"))
    assert shim.run("state", "c", name=own).called == (str(shim.runc), "state", "c")
    shim.write(TABLE, runtimes=("nothing-of-that-name", "/nowhere/runc"))
    done = shim.run("state", "c")
    assert done.status == 1
    assert "no runtime binary found from candidate list: [nothing-of-that-name /nowhere/runc]" in done.said


@pytest.mark.parametrize("how", ["cut", "changed", "stale"])
def test_what_it_becomes_is_known_though_the_table_is_damaged(how: str, shim: Shim) -> None:
    """That comes first in it: a container is ended by what has made it, and another program would not know it."""
    other = shim.tools / "other"
    other.write_bytes(shim.runc.read_bytes())
    other.chmod(0o755)
    shim.write(TABLE, runtimes=(str(other),))
    spoil(shim, how, runtimes=(str(other),))
    assert shim.run("delete", "c").called == (str(other), "delete", "c")
    assert shim.create(make_spec()).called[0] == str(other)
    assert shim.create(SPEC).status == 1


def test_foreign_names_in_annotations_need_no_table(shim: Shim) -> None:
    """The engine has resolved them; damaged or not, it makes no difference to them."""
    spec = make_spec(annotations={"cdi.k8s.io/x": "example.com/nic=1"})
    assert shim.create(spec).status == 7
    spoil(shim, "cut")
    done = shim.create(spec)
    assert (done.status, done.spec) == (7, spec)


def spoil(shim: Shim, how: str, **policy: Any) -> str:
    """Make the table unusable, and say what is told of it."""
    path = shim.table / "table"
    content = path.read_bytes()
    match how:
        case "gone":
            path.unlink()
            said = "no such file"
        case "cut":
            path.write_bytes(content[:-20])
            said = "not whole"
        case "newer":
            path.write_bytes(content.replace(b"table 1 ", b"table 2 ", 1))
            said = "version 2"
        case "changed":
            path.write_bytes(content[:-3] + b"x\n\n")
            said = "checksum"
        case "empty":
            path.write_bytes(b"")
            said = "first line"
        case "open":
            path.chmod(0o666)
            said = "permission"
        case "link":
            path.rename(path.with_name("elsewhere"))
            path.symlink_to("elsewhere")
            said = "symbolic link"
        case _:
            shim.write(type(TABLE)(fresh=((str(shim.place / "version"), "1"),)), **policy)
            (shim.place / "version").write_text("2\n")
            said = "stale"
    return said


@pytest.mark.parametrize("how", ["gone", "cut", "newer", "changed", "empty", "open", "link", "stale"])
def test_without_a_table_plain_containers_start(how: str, shim: Shim) -> None:
    """One that asks for a GPU is refused with the reason, or starts without, as is configured."""
    said = spoil(shim, how)
    assert shim.create(make_spec()).status == 7
    done = shim.create(SPEC)
    assert (done.status, done.called) == (1, ())
    assert said in done.said
    assert done.said.count("\n") == 1
    write_on_missing(shim.table, "pass")
    done = shim.create(SPEC)
    assert (done.status, done.spec) == (7, SPEC)
    write_on_missing(shim.table, "refuse")
    assert shim.create(SPEC).status == 1


def test_a_gpu_whose_node_is_gone_is_told(shim: Shim) -> None:
    """Before the container is changed."""
    device = TABLE.devices[0]
    gone = type(device)(kind="gpu", names=("0",), edits=((make_node("nvidia0", host="/dev/nothing-here"),),))
    shim.write(type(TABLE)(devices=(gone, *TABLE.devices[1:])))
    done = shim.create(SPEC)
    assert (done.status, done.spec) == (1, SPEC)
    assert "device node /dev/nothing-here: no such file or directory" in done.said


def test_foreign_hooks_go_and_nothing_else(shim: Shim) -> None:
    """By base name, in prestart alone, also where no device is asked for; what ours replaces goes too."""
    theirs = {"path": "/usr/bin/nvidia-container-runtime-hook"}
    hooks = {"prestart": [theirs, {"path": "/x"}, theirs], "poststop": [theirs]}
    assert shim.create(make_spec(hooks=hooks)).spec["hooks"] == {"prestart": [{"path": "/x"}], "poststop": [theirs]}
    spec = make_spec("NVIDIA_VISIBLE_DEVICES=0", mounts=[{"destination": "/usr/bin/nvidia-smi", "source": "/old"}])
    spec["linux"]["devices"] = [{"path": "/dev/nvidia0", "major": 9}, {"path": "/dev/x"}]
    spec["process"]["user"] = {"uid": 1000, "gid": 100}
    done = shim.create(spec)
    assert [each["source"] for each in done.spec["mounts"]] == ["/usr/lib/libcuda.so.5", "/usr/bin/nvidia-smi"]
    assert done.nodes == ["/dev/x", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    node = {"path": "/dev/nvidia0", "type": "c", "major": 1, "minor": 3, "fileMode": 0o666, "uid": 1000, "gid": 100}
    assert done.spec["linux"]["devices"][1] == node
    assert done.spec["hooks"] == {"createContainer": [{"path": "/hook", "args": ["hook", 'quo"ted']}]}


def test_a_failing_write_leaves_the_old_file(shim: Shim) -> None:
    """A limit on the size of files stands for a full disk; nothing else is left behind."""
    shim.config.write_text(json.dumps(SPEC))
    command = f'ulimit -f 0; trap "" XFSZ; exec "{shim.program}" create -b "{shim.bundle}" c'
    done = subprocess.run(["sh", "-c", command], env=shim.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "it is too large" in done.stderr
    assert json.loads(shim.config.read_text()) == SPEC
    assert list(shim.bundle.iterdir()) == [shim.config]


def run_traced(shim: Shim, *options: str) -> subprocess.CompletedProcess[bytes]:
    words = [str(shutil.which("strace")), "-qq", *options, str(shim.program), "create", "-b", str(shim.bundle), "c"]
    return subprocess.run(words, env=shim.environment, capture_output=True, check=False)


@pytest.mark.skipif(shutil.which("strace") is None, reason="wants strace to stop at each call")
def test_killed_at_any_call_the_file_is_old_or_new(shim: Shim) -> None:
    """Strace kills it at each call to the kernel in turn; what it left behind is in nobody's way afterwards."""
    old, new = json.dumps(SPEC).encode(), shim.create(SPEC).text
    shim.config.write_bytes(old)
    log = shim.place / "calls"
    assert run_traced(shim, "-o", str(log)).returncode == 7
    _, own, _ = re.split(r"^execve", log.read_text(), flags=re.MULTILINE)
    calls = Counter(re.findall(r"^(\w+)\(", f"{own}execve(", re.MULTILINE))
    assert {"execve", "write", "close", "fchmod"} < calls.keys()
    for call, count in calls.items():
        for number in range(1, count + 1):
            shim.config.write_bytes(old)
            done = run_traced(shim, "-o", "/dev/null", "-e", f"inject={call}:signal=KILL:when={number}")
            assert (done.returncode, shim.config.read_bytes() in (old, new)) == (-9, True), (call, number)
    assert shim.create(SPEC).text == new


def test_without_memory_one_line_says_so(shim: Shim) -> None:
    """As much as the program itself takes, and no more."""
    shim.config.write_text(json.dumps(SPEC))
    command = f'ulimit -v 320; exec "{shim.program}" create -b "{shim.bundle}" c'
    done = subprocess.run(["sh", "-c", command], env=shim.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "nodeagent-oci-shim: no memory\n")
    assert json.loads(shim.config.read_text()) == SPEC


@pytest.mark.long
def test_every_allocation_may_fail(checked_program: Path, tmp_path: Path) -> None:
    """The file is the old or the new one, and one line says why; sanitizers watch."""
    shim = Shim(checked_program, tmp_path)
    new = shim.create(SPEC, ASAN_OPTIONS="detect_leaks=0").text
    old = json.dumps(SPEC).encode()
    for number in range(1, 5000, 7):
        done = shim.create(SPEC, SHIM_REFUSE_ALLOCATION=str(number), ASAN_OPTIONS="detect_leaks=0")
        if done.status == 7:
            assert done.gpus == ["nvidia0"]
            return
        assert (done.status, done.said) == (1, "nodeagent-oci-shim: no memory\n"), number
        assert done.text in (old, new), number
    pytest.fail("it never came to its end")


@pytest.mark.long
def test_it_runs_on_the_other_processor(foreign_program: Path, tmp_path: Path) -> None:
    shim = Shim(foreign_program, tmp_path, before=(str(shutil.which("qemu-aarch64")),))
    done = shim.create(SPEC)
    assert (done.status, done.said, done.gpus) == (7, "", ["nvidia0"])


def test_it_is_small(program: Path) -> None:
    """It is loaded before every container; no file of it is too long to read."""
    assert program.stat().st_size <= 300 * 1024
    assert max(len(each.read_text().splitlines()) for each in (NATIVE / "oci_shim").iterdir()) <= 400


def test_whoever_installs_it_sees_that_it_runs(shim: Shim) -> None:
    """Whatever is behind it, and though nothing is; it is a word for that alone."""
    shim.runc.unlink()
    assert (shim.run("self-check").status, shim.run("self-check", PATH="/nowhere").said) == (0, "")
    assert shim.run("self-check", "c", PATH="/nowhere").status == 1 or shutil.which("runc")


def test_signals_reach_what_it_becomes(shim: Shim) -> None:
    """There is no process between."""
    shim.runc.write_text("#!/bin/sh\nkill -TERM $$\n")
    assert shim.run("state", "c").status == -signal.SIGTERM
