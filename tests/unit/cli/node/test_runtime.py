"""`nodeagent runtime` as people type it, beside a containerd that answers."""

import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import Streams, run_command_line
from nodeagent.components.runtime.prove import PlanDisproved, Proof
from tests.fakes.cri import FakeCri
from tests.support.programs.command_line import run_here

BEFORE = '# by hand\nversion = 2\n\n[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "pause" # pinned\n'


class Node:
    """A containerd 1.7 in a directory of its own."""

    def __init__(self, root: Path) -> None:
        self.main = root / "config.toml"
        self.main.write_text(BEFORE)
        self.command = "systemctl restart second.service"
        self.words = (
            "--set",
            "runtime.socket=" + str(root / "s"),
            "--set",
            f"runtime.config_file={self.main}",
            "--set",
            f"node.state_dir={root / 'state'}",
        )

    def run(self, verb: str, *words: str) -> tuple[int, str, str]:
        told = ("--set", f"runtime.restart_command=[{', '.join(self.command.split())}]") if self.command else ()
        return run_here("runtime", verb, *self.words, *told, *words)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """The commands run a loop of their own, so the runtime answers in another thread."""
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        program = str(tmp_path / "nodeagent-oci-shim")
        classes = {"runtimes": {"nvidia": {"options": {"BinaryName": program}}}, "defaultRuntimeName": "nvidia"}
        fake = FakeCri(version="1.7.22", config={"enableCDI": False, "containerd": classes})
        async with fake.serving(tmp_path / "s"):
            ready.set()
            while not stop.is_set():  # noqa: ASYNC110  # a thread's event cannot be awaited
                await anyio.sleep(0.01)

    thread = threading.Thread(target=lambda: anyio.run(serve))
    thread.start()
    assert ready.wait(20)
    yield Node(tmp_path)
    stop.set()
    thread.join(20)


def test_detect_says_what_serves_the_kubelet(node: Node) -> None:
    """For people and for scripts; exit code 1 while CDI is off."""
    code, out, _ = node.run("detect")
    assert code == ExitCode.UNWELL
    assert "containerd 1.7.22" in out
    code, out, _ = node.run("detect", "--json")
    assert json.loads(out)["cdi_enabled"] is False


def test_plan_shows_a_diff_and_writes_nothing(node: Node) -> None:
    """One line more, and the command that comes after."""
    code, out, _ = node.run("plan")
    assert code == ExitCode.OK
    assert "+enable_cdi = true" in out
    assert f"afterwards: {node.command}" in out
    assert "not proved by a start on the side: " in out
    assert node.main.read_text() == BEFORE


def test_a_plan_that_is_disproved_is_shown_and_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both for `plan` and for `configure`, which writes nothing then."""

    async def disprove(*_: object) -> Proof:
        raise PlanDisproved("/etc/x", "no runc", was_broken=False)

    monkeypatch.setattr("nodeagent.components.runtime.component.prove_plan", disprove)
    code, out, error = node.run("plan")
    assert (code, "+enable_cdi = true" in out) == (ExitCode.BAD_INPUT, True)
    assert "no runc" in error
    assert node.run("configure")[0] == ExitCode.BAD_INPUT
    assert node.main.read_text() == BEFORE


def test_what_was_proved_is_told(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async def prove(*_: object) -> Proof:
        return Proof(handlers=("nvidia", "runc"))

    monkeypatch.setattr("nodeagent.components.runtime.component.prove_plan", prove)
    words = "proved: containerd 1.7.22 comes up with it on the side, runtimes: nvidia, runc"
    assert words in node.run("plan")[1]
    assert words in node.run("configure")[1]


def test_configure_and_unconfigure_leave_no_trace(node: Node) -> None:
    """What was there before is there again, byte for byte."""
    code, out, _ = node.run("configure")
    assert code == ExitCode.OK
    assert f"written: {node.main}" in out
    assert f"to bring it into force: {node.command}" in out
    assert 'sandbox_image = "pause" # pinned' in node.main.read_text()
    assert node.run("plan")[1].startswith("nothing to change; to bring the files into force")
    assert node.run("configure")[1].startswith("nothing to write")
    assert node.run("unconfigure")[1] == f"given back: {node.main}\n"
    assert node.main.read_text() == BEFORE
    assert node.run("unconfigure")[1] == "nothing of ours is there\n"


def test_without_a_command_for_the_restart_none_is_made(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told before anything is written for it, and written without it, with what is to be done."""
    # The process behind the socket is this one, which may run in a service.
    monkeypatch.setattr("nodeagent.edge.container_runtime.detect.parse_unit", lambda _text: "")
    node.command = ""
    advice = "the unit of the process behind"
    assert f"afterwards: {advice}" in node.run("plan")[1]
    code, out, error = node.run("configure", "--restart")
    assert (code, out, advice in error) == (ExitCode.BAD_INPUT, "", True)
    assert "name the command in `runtime.restart_command`" in error
    assert node.main.read_text() == BEFORE
    code, out, _ = node.run("configure")
    assert (code, f"to bring it into force: {advice}" in out) == (ExitCode.OK, True)
    assert node.run("configure", "--restart")[0] == ExitCode.BAD_INPUT


def test_unconfigure_leaves_the_work_of_others(node: Node) -> None:
    """From a file that was changed since our keys are taken out, and every other byte stays."""
    node.run("configure")
    node.main.write_text(node.main.read_text() + "# later\n")
    code, out, _ = node.run("unconfigure")
    assert (code, out) == (ExitCode.OK, f"taken out: our keys in {node.main}, which somebody else has changed since\n")
    assert node.main.read_text() == BEFORE + "# later\n"


def test_unconfigure_names_what_it_cannot_tell_apart(node: Node) -> None:
    """A file that is no longer readable stays as it is, and the code says so."""
    node.run("configure")
    node.main.write_text("version =\n")
    code, out, _ = node.run("unconfigure")
    assert code == ExitCode.UNWELL
    assert "left alone" in out
    assert node.main.read_text() == "version =\n"


def test_a_broken_file_is_named_and_not_touched(node: Node) -> None:
    """With line and column, on standard error."""
    node.main.write_text("version =\n")
    for verb in ("plan", "configure"):
        code, _, err = node.run(verb)
        assert code == ExitCode.BAD_INPUT
        assert "line 1, column 10" in err
    assert node.main.read_text() == "version =\n"


def test_no_runtime_is_one_line(tmp_path: Path) -> None:
    """Detect shows it, plan fails with it."""
    words = ["--set", f"runtime.socket={tmp_path / 'none'}", "--set", "runtime.kind=containerd"]
    err = io.StringIO()
    assert run_command_line(["runtime", "plan", *words], Streams(io.StringIO(), err)) == ExitCode.UNREACHABLE
    assert "no container runtime answers" in err.getvalue()


def test_the_shim_must_be_in_place_before_a_runtime_is_told_of_it(node: Node, tmp_path: Path) -> None:
    """The agent puts it there; what the plan says of it is the program itself."""
    words = ("--set", "runtime.shim=true", "--set", f"shim.dir={tmp_path}")
    for verb in ("plan", "configure"):
        code, _, err = node.run(verb, *words)
        assert (code, f"not at {tmp_path}/nodeagent-oci-shim: start the agent" in err) == (ExitCode.BAD_INPUT, True)
    assert node.run("detect", *words)[0] == ExitCode.UNWELL
    (tmp_path / "nodeagent-oci-shim").touch()
    code, out, _ = node.run("detect", *words)
    assert (code, "through the shim   every container" in out) == (ExitCode.OK, True)
    code, out, _ = node.run("plan", *words)
    assert code == ExitCode.OK
    assert f'+BinaryName = "{tmp_path}/nodeagent-oci-shim"' in out


def test_podman_is_configured_without_a_restart(tmp_path: Path) -> None:
    """A file of its own, gone again afterwards."""
    root = tmp_path / "host"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/podman").touch()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/nodeagent-oci-shim").touch()
    words = [f"node.host_root={root}", f"node.state_dir={tmp_path}", "runtime.kind=podman", "runtime.shim=true"]
    words += [f"shim.dir={tmp_path}/lib", "shim.default_runtime=true"]
    flags = [flag for word in words for flag in ("--set", word)]
    code, out, _ = run_here("runtime", "plan", *flags)
    assert code == ExitCode.OK
    assert "afterwards: nothing, the files are read at every start" in out
    code, out, _ = run_here("runtime", "configure", *flags)
    own = root / "etc/containers/containers.conf.d/zz-nodeagent.conf"
    assert (code, "to bring it into force" in out) == (ExitCode.OK, False)
    assert f'nvidia = ["{tmp_path}/lib/nodeagent-oci-shim"]' in own.read_text()
    assert 'runtime = "nvidia"' in own.read_text()
    assert run_here("runtime", "unconfigure", *flags)[0] == ExitCode.OK
    assert not own.exists()
