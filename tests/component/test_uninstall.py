"""`nodeagent uninstall` leaves nothing of the agent, and nothing of others undone."""

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
import yaml

from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.uninstall.steps import Step, remove_shim
from nodeagent.components.allocations.journal_format import encode_records
from nodeagent.components.allocations.ledger import Ledger, open_record
from nodeagent.components.cdi.spec import render_spec_name
from nodeagent.config.load import load_settings
from nodeagent.edge.container_runtime.change_files import RuntimeFiles
from nodeagent.edge.host.files.state_lock import StateLock
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.journal import Binding, FractionTable
from nodeagent.model.runtime import FileChange
from nodeagent.rules.cdi_names import FRACTION_KIND, name_claim_file, name_fraction_file, qualify
from tests.fakes.apiserver import NODE
from tests.support.programs.command_line import run_here


class UsedNode:
    """A node on which the agent has been, below one directory."""

    def __init__(self, root: Path) -> None:
        self.root, self.config = root, root / "config.yaml"
        self.state, self.plugins = root / "state", root / "plugins"
        self.runtime = root / "containerd/config.toml"
        settings = {
            "node": {
                "name": NODE,
                "state_dir": str(self.state),
                "run_dir": str(root / "run"),
                "proc_dir": str(root / "proc"),
            },
            "fractions": {"usage_socket": str(root / "use/gpu-manager.sock")},
            "driver": {"validation_markers": True, "validation_dir": str(root / "markers")},
            "cdi": {"dir": str(root / "cdi"), "hook_dir": str(root / "hooks"), "nvidia_name_dir": str(root / "bin")},
            "shim": {"dir": str(root / "shims"), "nvidia_name_dir": str(root / "bin")},
            "kubelet": {"device_plugins_dir": str(self.plugins)},
            "claims": {"plugins_dir": str(root / "dra"), "registry_dir": str(root / "registry")},
            "kubernetes": {"enabled": "false"},
            "labels": {"nfd_dir": str(root / "features.d")},
        }
        self.config.write_text(yaml.safe_dump(settings))
        self.ours = [
            self.write("cdi", render_spec_name("nvidia.com/gpu")),
            self.write("cdi", "nodeagent-device-example.com-card.json"),
            self.write("cdi", name_fraction_file("abc")),
            self.write("cdi", name_fraction_file("def")),
            self.write("cdi", name_claim_file("5d9c")),
            self.write("hooks", "nodeagent-cdi-hook"),
            self.write("shims", "nodeagent-oci-shim"),
            self.write("shims/shim", "table"),
            self.write("shims/shim", "on_missing"),
            self.write("markers", "driver-ready"),
            self.write("run", "admin.sock"),
            self.write("features.d", "nodeagent"),
            self.write("state", "allocations.journal"),
            self.write("state", "allocations.journal.prev"),
            self.write("state", "verdicts.json"),
            self.write("state", "mig.json"),
            self.write("state", "configuration-label"),
            self.write("state", "configuration-label.previous"),
            *(self.write(f"state/parts/{name}", each) for name in ("abc", "def") for each in ("limits", "usage")),
            self.write("state/shares/5d9c", "limits"),
            self.write("state/usage", "parts-def"),
            self.write("state/usage", "shares-5d9c.shared"),
            self.write("state/vgpu", "libnodeagent-vgpu.so"),
            self.write("state/vgpu", ".ld.so.preload.x1"),
            self.write("state/vgpu", "ld.so.preload"),
        ]
        (root / "bin").mkdir()
        for name in ("nvidia-container-runtime", "nvidia-container-runtime.cdi"):
            (root / "bin" / name).symlink_to(root / "shims/nodeagent-oci-shim")
            self.ours.append(root / "bin" / name)
        for name, program in (
            ("nvidia-cdi-hook", "hooks/nodeagent-cdi-hook"),
            ("nvidia-container-cli", "usr/nodeagent"),
        ):
            (root / "bin" / name).symlink_to(root / program)
            self.ours.append(root / "bin" / name)
        self.others = [
            self.write("bin", "nvidia-container-runtime.legacy"),
            self.write("cdi", "vendor.json"),
            self.write("markers", "toolkit-ready"),
            self.write("plugins", "kubelet.sock"),
            self.write("proc/1", "mountinfo"),
        ]
        for place in (
            self.plugins / "nvidia-gpu.sock",
            self.plugins / "tencent.com-vcuda-core.sock",
            self.plugins / "tencent.com-vcuda-memory.sock",
            root / "use/gpu-manager.sock",
            root / "registry/gpu.nvidia.com-reg.sock",
            root / "dra/gpu.nvidia.com/dra.sock",
        ):
            place.parent.mkdir(parents=True, exist_ok=True)
            dead = socket.socket(socket.AF_UNIX)
            dead.bind(str(place))
            dead.close()
            self.ours.append(place)

    def write(self, directory: str, name: str) -> Path:
        path = self.root / directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("something")
        return path

    def change_runtime(self) -> None:
        self.write("containerd", "config.toml")
        change = FileChange(path=str(self.runtime), before=b"something", after=b"something else")
        RuntimeFiles(self.state).apply([change])

    def mount(self, pid: int, *files: Path) -> None:
        """A process that has these files of the host below its own root."""
        lines = (f"1 2 8:1 /lib{file} /run/nodeagent/vgpu/{file.name} ro - ext4 /dev/sda1 rw\n" for file in files)
        self.write(f"proc/{pid}", "mountinfo").write_text("".join(lines))

    def uninstall(self, *words: str) -> tuple[int, str, str]:
        return run_here("uninstall", "--config", str(self.config), *words)

    def list_files(self) -> set[Path]:
        return {path for path in self.root.rglob("*") if not path.is_dir()}


@pytest.fixture
def used(short_dir: Path) -> UsedNode:
    return UsedNode(short_dir)


def test_nothing_of_the_agent_is_left_and_nothing_of_others_is_touched(used: UsedNode) -> None:
    """Files, sockets, markers, journal and directories go; the container runtime has its own words back."""
    used.change_runtime()
    code, out, _ = used.uninstall()
    assert code == ExitCode.OK, out
    assert used.list_files() == {*used.others, used.config, used.runtime}
    assert used.runtime.read_text() == "something"
    assert not used.state.exists()
    assert not (used.root / "run").exists()
    assert not (used.root / "dra/gpu.nvidia.com").exists()
    assert "restart the container runtime" in out


def test_a_link_of_somebody_else_stays_under_nvidias_name(used: UsedNode) -> None:
    name = used.root / "bin/nvidia-container-cli"
    name.unlink()
    name.symlink_to("nvidia-container-cli.real")
    assert used.uninstall()[0] == ExitCode.OK
    assert name.is_symlink()
    assert not (used.root / "bin/nvidia-cdi-hook").is_symlink()


def test_a_second_uninstall_has_nothing_to_do(used: UsedNode) -> None:
    """It can be repeated until every step has worked."""
    used.uninstall()
    code, out, _ = used.uninstall("--json")
    assert code == ExitCode.OK
    assert {step["step"] for step in json.loads(out)["steps"]} == {Step.KEPT}


def test_a_rehearsal_names_everything_and_changes_nothing(used: UsedNode) -> None:
    used.change_runtime()
    before = used.list_files()
    code, out, _ = used.uninstall("--dry-run", "--json")
    named = {step["what"] for step in json.loads(out)["steps"]}
    assert code == ExitCode.OK
    folders = {used.state / "parts", used.state / "shares"}
    within = {path for path in used.ours if path.parent.parent in folders}
    assert {str(path) for path in (*({*used.ours} - within), *{path.parent for path in within}, used.runtime)} <= named
    assert used.list_files() - before <= {used.state / "agent.lock"}
    assert before <= used.list_files()
    assert used.runtime.read_text() == "something else"
    assert used.uninstall("--dry-run")[1].startswith("nothing was changed")


def test_state_is_kept_when_asked(used: UsedNode) -> None:
    """So that another installation knows who holds which GPU."""
    used.uninstall("--keep-state")
    assert (used.state / "allocations.journal").exists()
    assert not (used.plugins / "nvidia-gpu.sock").exists()


def test_a_running_agent_is_left_alone(used: UsedNode) -> None:
    """It would put everything back; the message says how to stop it."""
    with StateLock(used.state / "agent.lock"):
        before = used.list_files()
        code, _, err = used.uninstall()
    assert code == ExitCode.BAD_INPUT
    assert "stop the agent first" in err
    assert used.list_files() == before


def test_another_plugins_living_socket_stays(used: UsedNode) -> None:
    """NVIDIA's own device plugin uses the same names."""
    path = used.plugins / "nvidia-gpu.sock"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen()
        code, out, _ = used.uninstall()
    assert (code, path.exists()) == (ExitCode.OK, True)
    assert "another device plugin answers there" in out


def test_markers_of_another_validator_stay(used: UsedNode) -> None:
    """An agent that did not keep them must not take them away."""
    used.uninstall("--set", "driver.validation_markers=false")
    assert (used.root / "markers/driver-ready").exists()


def test_a_file_that_others_changed_stays_with_the_way_back_to_it(used: UsedNode) -> None:
    """The record of how it was before the agent is kept beside it."""
    used.change_runtime()
    used.runtime.write_text("a third hand's")
    code, out, _ = used.uninstall()
    assert code == ExitCode.OK
    assert used.runtime.read_text() == "a third hand's"
    assert (used.state / "runtime-changes.json").exists()
    assert "take our part out by hand" in out


def test_a_step_that_fails_does_not_stop_the_others(used: UsedNode) -> None:
    """It is named, and the exit code asks for another try."""
    blocked = used.root / "cdi" / render_spec_name("nvidia.com/gpu")
    blocked.unlink()
    blocked.mkdir()
    used.state.joinpath("runtime-changes.json").write_text("{")
    code, out, _ = used.uninstall("--json")
    steps = json.loads(out)["steps"]
    assert code == ExitCode.UNWELL
    failed = [step["what"] for step in steps if step["step"] == Step.FAILED]
    assert failed == ["container runtime configuration", str(blocked)]
    assert not (used.state / "allocations.journal").exists()


def test_a_shim_through_which_containers_run_stays(used: UsedNode) -> None:
    """They are ended through it: by containerd, which keeps its path, and by the monitors of CRI-O and Podman."""
    task = used.root / "host/run/containerd/io.containerd.runtime.v2.task/k8s.io/c1"
    task.mkdir(parents=True)
    (task / "runtime").write_text(f"{used.root}/bin/nvidia-container-runtime")
    (task.parent / "c2/runtime").mkdir(parents=True)
    for number, words in enumerate([["/usr/bin/conmon", "-r", "P"], ["conmon", "-c", "P"], ["sh", "-r", "P"], []]):
        line = "\0".join(words).replace("P", f"{used.root}/shims/nodeagent-oci-shim")
        used.write(f"host/proc/{number}", "cmdline").write_text(line)
    used.write("host/proc", "uptime")
    # A state directory above them: what a pod has under the host's own name.
    words = [f"node.host_root={used.root}/host", f"node.state_dir={used.root}", "node.proc_dir=/proc"]
    settings = load_settings(used.config, environ={}, overrides=words).settings
    outcomes = list(remove_shim(settings, dry=False))
    names = [f"bin/nvidia-container-runtime{end}" for end in ("", ".cdi")]
    kept = ["shims/nodeagent-oci-shim", *names, "shims/shim"]
    assert [(each.step, each.what) for each in outcomes] == [(Step.KEPT, str(used.root / name)) for name in kept]
    assert "containers were started through it, 2 are left" in outcomes[0].detail
    assert all(os.path.lexists(used.root / name) for name in kept)


def test_names_of_the_shim_that_the_settings_forgot_go_too(used: UsedNode) -> None:
    """Where programs of that name are looked for; what leads elsewhere is somebody else's."""
    host = used.root / "host"
    program = Path(f"{used.root}/shims/nodeagent-oci-shim")
    for directory, target in (("usr/local/nvidia/toolkit", program), ("usr/bin", Path("/opt/theirs"))):
        (host / directory).mkdir(parents=True)
        (host / directory / "nvidia-container-runtime").symlink_to(target)
    words = [f"node.host_root={host}", f"node.state_dir={used.root}", "shim.nvidia_name_dir="]
    settings = load_settings(used.config, environ={}, overrides=words).settings
    outcomes = list(remove_shim(settings, dry=False))
    assert {each.step for each in outcomes} == {Step.REMOVED}
    assert not os.path.lexists(host / "usr/local/nvidia/toolkit/nvidia-container-runtime")
    assert os.path.lexists(host / "usr/bin/nvidia-container-runtime")


def test_a_running_container_with_a_part_keeps_what_it_needs(used: UsedNode) -> None:
    """Its limits, its specification and the library; it is named, what others had goes, and all when it has ended."""
    files = (
        used.state / "parts/abc/limits",
        used.state / "parts/abc/usage",
        used.root / "cdi" / name_fraction_file("abc"),
    )
    needed = {*files, *(used.state / "vgpu").iterdir(), used.root / "hooks/nodeagent-cdi-hook"}
    used.mount(7, *files[:2])
    code, out, _ = used.uninstall("--json")
    steps = {step["what"]: step for step in json.loads(out)["steps"]}
    assert code == ExitCode.OK, out
    assert {path for path in used.ours if path.exists()} == needed
    for named in (str(files[0].parent), str(files[2])):
        assert (steps[named]["step"], steps[named]["detail"]) == (
            Step.KEPT,
            "a container runs with it: uninstall again when it has ended",
        )
    assert "1 of them" in steps[str(used.state / "vgpu")]["detail"]
    used.mount(7)
    used.uninstall()
    assert used.list_files() == {*used.others, used.config, used.root / "proc/7/mountinfo"}
    assert not used.state.exists()


def test_a_claim_whose_container_runs_keeps_its_share(used: UsedNode) -> None:
    """Its containers find their limits as those with parts do; one look serves all processes with the same mounts."""
    used.mount(7, used.state / "shares/5d9c/limits")
    used.mount(8, used.state / "parts/abc/limits")
    for pid in (7, 8):
        (used.root / f"proc/{pid}/ns").mkdir()
        (used.root / f"proc/{pid}/ns/mnt").symlink_to("mnt:[1]")
    used.uninstall()
    kept = {
        "state/shares/5d9c/limits",
        "state/usage/shares-5d9c.shared",
        f"cdi/{name_claim_file('5d9c')}",
        "hooks/nodeagent-cdi-hook",
    }
    library = {"state/vgpu/libnodeagent-vgpu.so", "state/vgpu/ld.so.preload", "state/vgpu/.ld.so.preload.x1"}
    assert {str(path.relative_to(used.root)) for path in used.ours if path.exists()} == kept | library


def test_files_of_parts_stay_where_nobody_can_see_who_runs(used: UsedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process at all, or a pod that sees its own alone: what is not seen is not taken for ended."""
    shutil.rmtree(used.root / "proc")
    _, out, _ = used.uninstall()
    assert "no process is to be seen there" in out
    assert (used.state / "parts/abc/limits").exists()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "api.example")
    _, out, _ = used.uninstall("--set", "node.proc_dir=/proc")
    assert "not seen from this pod" in out
    assert (used.root / "cdi" / name_fraction_file("abc")).exists()


def test_the_pod_of_a_running_container_is_named(used: UsedNode) -> None:
    """As long as there is a journal that knows it."""
    pod = PodIdentity(namespace="ml", name="train", uid="u1")
    cdi_name = qualify(FRACTION_KIND, "abc")
    binding = Binding(
        number=1, reservations=(), pod=pod, container="main", parts=(), since_seconds=1.0, cdi_name=cdi_name
    )
    opened = open_record(Ledger(fractions=FractionTable(bindings={1: binding})), "machine", "boot")
    (used.state / "allocations.journal").write_bytes(encode_records([opened], 0)[0])
    used.mount(7, used.state / "parts/abc/limits")
    assert "ml/train (main) runs with it" in used.uninstall()[1]


def test_a_directory_of_a_pod_is_not_called_empty_while_it_is_not(
    used: UsedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state directory is a mount there, and somebody else's file may be in it."""
    used.write("state", "theirs")
    monkeypatch.setattr(Path, "is_mount", lambda path: path == used.state)
    _, out, _ = used.uninstall()
    assert "empty directory" not in out
    assert "something else is in it" in out


def test_our_keys_leave_a_runtimes_file_that_others_have_edited(used: UsedNode) -> None:
    """Their words stay, and the line says so."""
    used.write("containerd", "config.toml")
    used.runtime.write_text("a = 1\n")
    RuntimeFiles(used.state).apply([FileChange(path=str(used.runtime), before=b"a = 1\n", after=b"a = 1\nours = 1\n")])
    used.runtime.write_text("# theirs\na = 1\nours = 1\n")
    code, out, _ = used.uninstall()
    assert code == ExitCode.OK, out
    assert used.runtime.read_text() == "# theirs\na = 1\n"
    assert "without our keys" in out


def test_a_runtimes_file_that_cannot_be_told_apart_stays_with_its_record(used: UsedNode) -> None:
    """A person compares the two, and finds how it was."""
    used.change_runtime()
    used.runtime.write_text("no longer something else")
    out = used.uninstall()[1]
    assert used.runtime.read_text() == "no longer something else"
    assert "take our part out by hand" in out
    assert (used.state / "runtime-changes.json").exists()
