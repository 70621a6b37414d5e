"""What the doctor looks at, and the whole command on a node without an agent."""

import io
import os
import socket
from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from nodeagent.cli.answers.client import AgentClient
from nodeagent.cli.doctor.observe_host import (
    find_plugin_sockets,
    find_strangers,
    observe_directory,
    observe_memory,
    observe_mps,
    observe_socket,
    observe_this_host,
    read_clock,
    read_specs,
    uses_cgroup_v1,
)
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import CommandFailed, Streams, run_command_line
from nodeagent.config.load import load_settings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import DriverSettings, GpusSettings
from nodeagent.config.sections.mps import MpsSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.config.sections.sharing import Mps, SharedResource, SharingSettings
from tests.support.programs.command_line import run_here
from tests.unit.cli.doctor.healthy_node import HEALTHY


def test_directories_are_seen_before_they_are_made(tmp_path: Path) -> None:
    """What the agent will create is judged by the directory it will create it in."""
    facts = observe_directory(tmp_path / "not" / "yet")
    assert (facts.path, facts.writable) == (str(tmp_path / "not" / "yet"), True)
    assert 0 < facts.free_bytes <= facts.total_bytes


def test_a_socket_answers_or_says_why_not(short_dir: Path) -> None:
    """A file without a listener is no socket that answers."""
    path = short_dir / "s"
    assert observe_socket(path).problem == "no such file or directory"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(1)
        assert observe_socket(path).problem == ""
    assert observe_socket(path).problem == "connection refused"


def test_the_program_of_daemons_is_looked_for_where_shares_need_it(tmp_path: Path) -> None:
    """Not asked for, not looked for; a simulation has none."""
    root, program = tmp_path / "driver", tmp_path / "driver/usr/bin/nvidia-cuda-mps-control"
    sharing = SharingSettings(mps=Mps(resources=(SharedResource(name="gpu", replicas=2),)))
    settings = Settings(sharing=sharing, driver=DriverSettings(root=root))
    assert observe_mps(Settings()) is None
    assert observe_mps(replace(settings, gpus=GpusSettings(source="simulated:t4"))) is None
    assert f"below {root}" in (observe_mps(settings) or "")
    program.parent.mkdir(parents=True)
    program.touch()
    assert observe_mps(settings) == f"{program} is not a program that can be run"
    program.chmod(0o755)
    assert observe_mps(settings) == ""
    named = replace(settings, mps=MpsSettings(program=Path("/usr/bin/other")))
    assert "usr/bin/other" in (observe_mps(named) or "")


def test_shared_memory_without_a_size_of_its_own_is_named(tmp_path: Path) -> None:
    """Where it is there, is to be daemons' own, and nothing is mounted there."""
    (tmp_path / "shm").mkdir()
    sharing = SharingSettings(mps=Mps(resources=(SharedResource(name="gpu", replicas=2),)))
    settings = Settings(sharing=sharing, device_plugin=DevicePluginSettings(mps_root=tmp_path))
    assert observe_memory(settings) == str(tmp_path / "shm")
    assert observe_memory(replace(settings, sharing=SharingSettings())) == ""
    assert observe_memory(replace(settings, mps=MpsSettings(shared_memory="host"))) == ""
    assert observe_memory(replace(settings, device_plugin=DevicePluginSettings(mps_root=tmp_path / "none"))) == ""


def test_other_programs_are_found_by_what_was_started(tmp_path: Path) -> None:
    """The program's own name counts, wherever it lies; processes that end meanwhile are passed over."""
    for pid, line in {
        "7": b"/usr/bin/dcgm-exporter\0-f\0",
        "3": b"nvidia-device-plugin\0",
        "9": b"vi\0",
        "4": b"",
    }.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(line)
    (tmp_path / "self").mkdir()
    assert [process.pid for process in find_strangers(tmp_path)] == [3, 7]


def test_controllers_of_cgroup_v1_are_told_from_those_of_v2(tmp_path: Path) -> None:
    """A machine that has both is one of v1 for its kubelet; without any hierarchy nothing is said."""
    root = tmp_path / "fs" / "cgroup"
    assert not uses_cgroup_v1(tmp_path)
    (root / "memory").mkdir(parents=True)
    (root / "unified").mkdir()
    assert uses_cgroup_v1(tmp_path)
    (root / "cgroup.controllers").touch()
    assert not uses_cgroup_v1(tmp_path)


def test_a_device_plugin_is_known_by_who_listens(short_dir: Path) -> None:
    """A socket that somebody serves is told with the process; one left behind, or of others, is not."""
    (short_dir / "nvidia-old.sock").touch()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as kubelet:
        for listener, name in ((server, "nvidia-gpu.sock"), (kubelet, "kubelet.sock")):
            listener.bind(str(short_dir / name))
            listener.listen(1)
        (found,) = find_plugin_sockets(short_dir)
    assert (Path(found.path).name, found.pid) == ("nvidia-gpu.sock", os.getpid())


def test_in_a_container_the_hosts_own_files_are_looked_at(short_dir: Path) -> None:
    """With `node.host_root` the host's CDI directories count, one that is mounted twice counts once."""
    host = short_dir / "host"
    cdi = host / "var" / "run" / "cdi"
    (host / "etc" / "cdi").mkdir(parents=True)
    cdi.mkdir(parents=True)
    (host / "etc" / "cdi" / "broken.json").write_text("{")
    (cdi / "good.json").write_text('{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": []}')
    (short_dir / "mounted").symlink_to(cdi)
    (host / "run" / "nvidia" / "toolkit").mkdir(parents=True)
    (host / "run" / "nvidia" / "toolkit" / "toolkit.pid").write_text("7")
    settings = load_settings(
        environ={}, overrides=[f"node.host_root={host}", f"cdi.dir={short_dir / 'mounted'}", f"node.proc_dir={host}"]
    ).settings
    facts = observe_this_host(settings, HEALTHY)
    assert sorted(Path(spec.path).name for spec in facts.specs) == ["broken.json", "good.json"]
    assert [Path(path).name for path in facts.foreign_files] == ["toolkit.pid"]
    assert facts.clock_behind_seconds == 0


def test_containers_of_the_toolkit_are_counted(short_dir: Path) -> None:
    """By containerd's notes; those of our own program under its other name are none, and nobody asks without a shim."""
    names = short_dir / "names"
    made_by = ("/usr/bin/nvidia-container-runtime", f"{names}/nvidia-container-runtime", "/usr/bin/runc", "/bin/other")
    for number, program in enumerate((*made_by, "/usr/local/nvidia/toolkit/nvidia-container-runtime.cdi")):
        note = short_dir / f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{number}/runtime"
        note.parent.mkdir(parents=True)
        note.write_text(program)
    overrides = [f"node.host_root={short_dir}", f"shim.nvidia_name_dir={names}"]
    for wanted, count in (("true", 2), ("false", 0)):
        settings = load_settings(environ={}, overrides=[*overrides, f"runtime.shim={wanted}"]).settings
        assert observe_this_host(settings, HEALTHY).toolkit_containers == count


def test_specifications_are_read_as_a_runtime_would(tmp_path: Path) -> None:
    """A broken file is a finding, other files are none, and a directory named twice counts once."""
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    found = read_specs((tmp_path, tmp_path / ".", tmp_path / "none"))
    assert [Path(spec.path).name for spec in found] == ["a.json", "gone.json"]
    assert all(spec.problem for spec in found)


def test_the_clock_is_asked_and_may_not_answer() -> None:
    """Whatever the kernel says, it is one of three answers."""
    assert read_clock() in {True, False, None}


def test_the_doctor_works_without_an_agent(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On simulated GPUs all but the agent and the cluster is in order; a report is JSON, a bundle is written."""
    monkeypatch.setenv("TMPDIR", str(short_dir))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    places = {
        "node.run_dir": short_dir,
        "node.state_dir": short_dir,
        "kubelet.device_plugins_dir": short_dir,
        "kubelet.pod_resources_socket": short_dir / "p",
        "http.listen": "127.0.0.1:1",
        "kubernetes.enabled": "false",
    }
    words = ["doctor", "--gpus", "simulated:t4", "--json", "--bundle", str(short_dir / "b.tgz")]
    for key, value in places.items():
        words += ["--set", f"{key}={value}"]
    code, out, err = run_here(*words)
    checks = {check["name"]: check["grade"] for check in json.decode(out)["checks"]}
    assert code == 6
    assert (checks["driver"], checks["nvml"], checks["agent"], checks["kubelet socket"]) == ("ok", "ok", "warn", "fail")
    assert (short_dir / "b.tgz").exists()
    assert "look through it" in err


def test_the_doctor_goes_on_with_a_broken_configuration(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid file is the first finding, not the end."""

    def find_none(*_: object) -> AgentClient:
        raise CommandFailed("no agent answers", ExitCode.UNREACHABLE)

    # Without a configuration the agent would be looked for where this machine's own one is.
    for module in ("observe", "bundle"):
        monkeypatch.setattr(f"nodeagent.cli.doctor.{module}.find_agent", find_none)
    file = short_dir / "c.yaml"
    file.write_text("htp: {}\n")
    out = io.StringIO()
    code = run_command_line(["doctor", "--config", str(file)], Streams(out, out))
    assert code == 6
    assert out.getvalue().startswith("✗ fail  configuration")
    where = str(short_dir / "no" / "b.tgz")
    assert run_command_line(["doctor", "--config", str(file), "--bundle", where], Streams(io.StringIO(), out)) == 2
