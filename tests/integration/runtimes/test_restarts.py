"""A running containerd 2 under a real systemd: a change that does not work is taken back, one that works stays.

Nothing here is a stand-in but the reason why a start fails.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster.layout import CHECKOUT
from tests.integration.runtimes.machine import AGENT, CONTAINERD, CONTAINERD_CONFIG, SOCKET, Machine, running_machine
from tests.support.programs.systemd import PYTHON, find_obstacle

CONFIG = """# ours, do not reformat
version = 3
[plugins.'io.containerd.cri.v1.runtime'] # the runtime's half
  enable_cdi = false
  restrict_oom_score_adj = true
"""
DROP_IN = "/etc/containerd/conf.d/zz-nodeagent.toml"
REFUSES = "ExecStartPre=/bin/sh -c '! grep -qr \"enable_cdi = true\" /etc/containerd'"
READS_ELSEWHERE = "BindReadOnlyPaths=/etc/elsewhere:/etc/containerd"
PATIENCE_SECONDS = 30.0


@pytest.fixture
def machine() -> Iterator[Machine]:
    assert find_obstacle() == ""
    with tempfile.TemporaryDirectory(prefix="na") as directory, running_machine(Path(directory)) as machine:
        yield machine


def read_pid(machine: Machine, unit: str = CONTAINERD) -> str:
    return machine.systemd.run("systemctl", "show", "--property=MainPID", "--value", unit).strip()


def crictl(machine: Machine, *words: str, socket: str = SOCKET) -> str:
    """What the running daemon says; nothing while it is being restarted."""
    command = (str(machine.programs / "crictl"), "--runtime-endpoint", f"unix://{socket}", *words)
    return machine.systemd.call(*command).stdout


def is_proved(line: str) -> bool:
    """Whether the daemon's own program came up with the change before it was written."""
    return line.startswith("proved: containerd ") and line.endswith(" comes up with it on the side, runtimes: runc")


def is_cdi_in_force(machine: Machine, socket: str = SOCKET) -> bool:
    return '"enableCDI": true' in crictl(machine, "info", socket=socket)


def read_config(machine: Machine) -> str:
    return machine.systemd.path(CONTAINERD_CONFIG).read_text()


def test_a_change_that_works_is_in_force(machine: Machine) -> None:
    """Only our own key in a file of its own, one line in the main file, and back to the byte."""
    machine.install_containerd(machine.programs, CONFIG)
    before = read_pid(machine)
    assert not is_cdi_in_force(machine)
    done = machine.nodeagent("runtime", "configure", "--restart")
    assert done.returncode == 0, done.stderr
    assert is_proved(done.stdout.splitlines()[2])
    assert is_cdi_in_force(machine)
    assert read_pid(machine) != before
    lines = set(read_config(machine).splitlines()) - set(CONFIG.splitlines())
    assert lines == {'imports = ["/etc/containerd/conf.d/zz-nodeagent.t*ml"]'}
    assert "the runtime's half" in read_config(machine)
    again = machine.nodeagent("runtime", "configure", "--restart")
    assert (again.returncode, again.stdout) == (0, "nothing to write\n")
    assert machine.nodeagent("runtime", "unconfigure").returncode == 0
    assert read_config(machine) == CONFIG
    assert not machine.systemd.path(DROP_IN).exists()


@pytest.mark.parametrize(
    ("more", "reason"),
    [(REFUSES, "`systemctl restart containerd.service` failed"), (READS_ELSEWHERE, "the setting is not in force")],
    ids=["does not start", "reads another file"],
)
def test_a_change_that_does_not_work_is_rolled_back(machine: Machine, more: str, reason: str) -> None:
    """The files are as before to the byte, and containerd runs with them."""
    machine.systemd.write("/etc/elsewhere/config.toml", CONFIG)
    machine.install_containerd(machine.programs, CONFIG, more=more)
    before = read_pid(machine)
    flags = ("--restart", "--set", "runtime.restart_timeout_seconds=3")
    done = machine.nodeagent("runtime", "configure", *flags)
    assert done.returncode == 2
    assert reason in done.stderr
    assert read_config(machine) == CONFIG
    assert not machine.systemd.path(DROP_IN).exists()
    assert machine.systemd.run("systemctl", "is-active", CONTAINERD) == "active\n"
    assert read_pid(machine) != before
    assert "RuntimeName:  containerd" in crictl(machine, "version")
    assert not is_cdi_in_force(machine)


def test_the_agent_keeps_the_setting_in_force_against_another_writer(machine: Machine) -> None:
    """In the shipped unit, with all that it takes away: configured, restarted, and put back while nobody looks."""
    machine.install_containerd(machine.programs, CONFIG)
    machine.start_agent("gpus.source=simulated:t4", "runtime.manage=true", "runtime.restart=now")
    wait_in_force(machine)
    # Until the agent has seen it too, a change by another writer is a restart that failed.
    wait_journal(machine, '"event": "runtime_restarted"')
    drop_in = machine.systemd.path(DROP_IN)
    written = drop_in.read_text()
    drop_in.write_text(written.replace("true", "false"))
    wait_in_force(machine)
    assert drop_in.read_text() == written
    # Even there a containerd could be started on the side.
    assert '"unproved": null, "event": "runtime_configured"' in machine.systemd.read_journal(AGENT)
    machine.systemd.run("systemctl", "stop", AGENT)
    assert is_cdi_in_force(machine)


def wait_in_force(machine: Machine) -> None:
    """Wait until the file says so and the daemon does so."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    place = machine.systemd.path(DROP_IN)
    while not (place.exists() and "enable_cdi = true" in place.read_text() and is_cdi_in_force(machine)):
        assert time.monotonic() < deadline, machine.systemd.read_journal(AGENT)
        time.sleep(0.2)


def wait_answer(machine: Machine, socket: str = SOCKET) -> None:
    """Wait until the daemon serves."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "RuntimeName:  containerd" not in crictl(machine, "version", socket=socket):
        assert time.monotonic() < deadline, machine.systemd.read_journal(CONTAINERD)
        time.sleep(0.2)


def wait_journal(machine: Machine, said: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while said not in (journal := machine.systemd.read_journal(AGENT)):
        assert time.monotonic() < deadline, journal
        time.sleep(0.2)


CONTAINER = """
set -e
root=/run/container
mkdir -p $root
mount -t tmpfs tmpfs $root
cd $root
mkdir -p host usr etc proc tmp dev
for name in bin sbin lib lib64; do ln -s usr/$name $name; done
for directory in /usr {shared}; do
  mkdir -p ./$directory
  mount --bind $directory ./$directory
done
mount --rbind / host
mount --rbind /dev dev
mount -t proc proc proc
exec chroot $root {python} -m nodeagent runtime "$@"
"""


def run_in_container(machine: Machine, *words: str, rights: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the agent's command in a container of the machine's, with its root at /host as a DaemonSet has it."""
    script = CONTAINER.format(shared=f"{CHECKOUT} {PYTHON}", python=CHECKOUT / ".venv/bin/python")
    flags = ("--set", "node.host_root=/host", "--set", "node.state_dir=/host/var/lib/nodeagent")
    unshare = ("unshare", "--mount", "--pid", "--fork", "--propagation", "private")
    return machine.systemd.call(*unshare, *rights, "sh", "-c", script, "sh", *words, *flags)


def test_an_agent_in_a_container_acts_on_its_host(machine: Machine) -> None:
    """It detects, judges, writes and restarts on the host, by the host's own names, and gives everything back."""
    machine.install_containerd(machine.programs, CONFIG)
    before = read_pid(machine)
    detected = run_in_container(machine, "detect", "--json")
    assert json.loads(detected.stdout)["config_file"] == CONTAINERD_CONFIG, detected.stderr
    done = run_in_container(machine, "configure", "--restart")
    assert done.returncode == 0, done.stderr
    *written, proof = done.stdout.splitlines()
    assert written == [f"written: {DROP_IN}", f"written: {CONTAINERD_CONFIG}"]
    assert is_proved(proof), proof
    assert is_cdi_in_force(machine)
    assert read_pid(machine) != before
    assert not list(machine.systemd.path("/run").glob(".nodeagent-check-*"))
    assert run_in_container(machine, "unconfigure").returncode == 0
    assert read_config(machine) == CONFIG


SECOND = "/srv/second/config.toml"
SECOND_SOCKET = "/srv/second/containerd.sock"
SECOND_UNIT = "second.service"
SECOND_CONFIG = f"""# another's
version = 3
root = "/srv/second/root"
state = "/srv/second/state"
[grpc]
  address = "{SECOND_SOCKET}"
[ttrpc]
  address = "{SECOND_SOCKET}.ttrpc"
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = false
"""


@pytest.mark.parametrize("rights", [(), ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")])
def test_of_two_daemons_an_agent_in_a_container_acts_on_the_one_behind_its_socket(
    machine: Machine, rights: tuple[str, ...]
) -> None:
    """Which process that is the kernel hides from it; also where it may not look at the sockets of others."""
    machine.install_containerd(machine.programs, CONFIG)
    machine.systemd.write(SECOND, SECOND_CONFIG)
    command = f"{machine.programs}/containerd --config {SECOND}"
    machine.write_unit(SECOND_UNIT, command, str(machine.programs))
    machine.systemd.run("systemctl", "start", SECOND_UNIT)
    first, second = read_pid(machine), read_pid(machine, SECOND_UNIT)
    flags = ("--set", f"runtime.socket={SECOND_SOCKET}")
    detected = run_in_container(machine, "detect", "--json", *flags, rights=rights)
    assert json.loads(detected.stdout)["config_file"] == SECOND, detected.stderr
    done = run_in_container(machine, "configure", "--restart", *flags, rights=rights)
    assert done.returncode == 0, done.stderr
    assert (read_pid(machine), is_cdi_in_force(machine)) == (first, False)
    assert read_pid(machine, SECOND_UNIT) != second
    assert is_cdi_in_force(machine, SECOND_SOCKET)
    assert "written: /srv/second/conf.d/zz-nodeagent.toml" in done.stdout.splitlines()
    assert (read_config(machine), machine.systemd.path(DROP_IN).exists()) == (CONFIG, False)
    assert run_in_container(machine, "unconfigure", *flags).returncode == 0
    assert machine.systemd.path(SECOND).read_text() == SECOND_CONFIG
    assert not machine.systemd.path("/srv/second/conf.d").exists()


def test_a_daemon_that_is_no_units_is_restarted_by_the_command_in_the_settings_alone(machine: Machine) -> None:
    """In the control group of a session the daemon of the distribution's unit is not taken for it."""
    machine.install_containerd(machine.programs, CONFIG)
    machine.systemd.write(SECOND, SECOND_CONFIG)
    script = f"nohup {machine.programs}/containerd --config {SECOND} >/srv/second/log 2>&1 & echo $! >/srv/second/pid"
    restart = machine.systemd.path("/srv/second/restart")
    restart.write_text(
        "#!/bin/sh\nkill $(cat /srv/second/pid)\n"
        f"export PATH={machine.programs}:$PATH\nsystemd-run --scope --unit=session-two sh -c '{script}'\n"
    )
    restart.chmod(0o755)
    machine.systemd.run(
        "sh", "-c", f"PATH={machine.programs}:$PATH; systemd-run --scope --unit=session-one sh -c '{script}'"
    )
    first = read_pid(machine)
    wait_answer(machine, SECOND_SOCKET)
    flags = ("--set", f"runtime.socket={SECOND_SOCKET}")
    refused = machine.nodeagent("runtime", "configure", "--restart", *flags)
    assert refused.returncode == 2
    assert f"the unit of the process behind {SECOND_SOCKET} cannot be told" in refused.stderr
    assert machine.systemd.path(SECOND).read_text() == SECOND_CONFIG
    named = ("--set", "runtime.restart_command=[/srv/second/restart]")
    done = machine.nodeagent("runtime", "configure", "--restart", *flags, *named)
    assert done.returncode == 0, done.stderr
    assert is_cdi_in_force(machine, SECOND_SOCKET)
    assert (read_pid(machine), is_cdi_in_force(machine)) == (first, False)


def test_a_broken_change_by_an_agent_in_a_container_is_rolled_back(machine: Machine) -> None:
    """As without a container; the message names what a person would run on the host."""
    machine.install_containerd(machine.programs, CONFIG, more=REFUSES)
    done = run_in_container(machine, "configure", "--restart")
    assert done.returncode == 2
    assert "`systemctl restart containerd.service` failed" in done.stderr
    assert read_config(machine) == CONFIG
    assert machine.systemd.run("systemctl", "is-active", CONTAINERD) == "active\n"


def test_a_directory_that_may_not_be_written_is_told(machine: Machine) -> None:
    """Its error names the file and the reason; nothing is written or restarted, and nothing is on record."""
    machine.install_containerd(machine.programs, CONFIG)
    before = read_pid(machine)
    for options in ("bind", "remount,bind,ro"):
        machine.systemd.run("mount", "-o", options, "/etc/containerd", "/etc/containerd")
    done = machine.nodeagent("runtime", "configure", "--restart")
    assert done.returncode == 2
    assert f"cannot write {DROP_IN}: create its directory: read-only file system" in done.stderr
    assert read_config(machine) == CONFIG
    assert read_pid(machine) == before
    assert machine.nodeagent("runtime", "unconfigure").stdout == "nothing of ours is there\n"


def test_files_that_import_each_other_are_read_as_containerd_reads_them(machine: Machine) -> None:
    """A circle ends, for both; the setting is put where it counts."""
    circle = f'version = 3\nimports = ["{CONTAINERD_CONFIG}"]\n'
    machine.systemd.write("/etc/containerd/conf.d/50-circle.toml", circle)
    machine.install_containerd(machine.programs, f'imports = ["/etc/containerd/conf.d/*.toml"]\n{CONFIG}')
    done = machine.nodeagent("runtime", "configure", "--restart")
    assert done.returncode == 0, done.stderr
    written, proof = done.stdout.splitlines()
    assert written == f"written: {DROP_IN}"
    assert is_proved(proof), proof
    assert is_cdi_in_force(machine)


SLOW = "ExecStartPre=/bin/sleep 6"
HANGS = "ExecStartPre=/bin/sh -c 'grep -qr \"enable_cdi = true\" /etc/containerd && sleep 1000 || true'"
TIMED = ("--restart", "--set", "runtime.restart_timeout_seconds=4")
BUSY_LIMIT_SECONDS = 10
BUSY_SECONDS = 15
BUSY = f"""
read now rest </proc/uptime
end=$((${{now%.*}} + {BUSY_SECONDS}))
while test ${{now%.*}} -lt $end; do read now rest </proc/uptime; done
"""
"""Nothing but the shell's own work: what other programs did for it would not count as its."""


def test_a_start_that_always_takes_longer_is_waited_for(machine: Machine) -> None:
    """By what systemd says of the last one; a process that only waits does nothing that could be seen."""
    machine.install_containerd(machine.programs, CONFIG, more=SLOW)
    done = machine.nodeagent("runtime", "configure", *TIMED)
    assert done.returncode == 0, done.stderr
    assert is_cdi_in_force(machine)


def test_a_daemon_that_gets_on_with_its_start_is_waited_for(machine: Machine) -> None:
    """It was quick before, and now works for longer than the limit before it serves anybody; it is started once."""
    starts = machine.systemd.path("/starts")
    program = machine.shared / "containerd"
    program.write_text(
        "#!/bin/sh\necho >>/starts\n"
        f"if grep -qr 'enable_cdi = true' /etc/containerd; then {BUSY} fi\nexec {machine.programs}/containerd\n"
    )
    program.chmod(0o755)
    # So that the service manager is done at once, and only the daemon itself is waited for.
    machine.install_containerd(machine.shared, CONFIG, more="Type=simple")
    wait_answer(machine)
    before = len(starts.read_text())
    # Enough for a busy machine to stop the old daemon and begin with the new one, and less than that works.
    limit = f"runtime.restart_timeout_seconds={BUSY_LIMIT_SECONDS}"
    done = machine.nodeagent("runtime", "configure", "--restart", "--set", limit)
    assert done.returncode == 0, done.stderr
    assert is_cdi_in_force(machine)
    assert len(starts.read_text()) == before + 1


def test_a_service_manager_that_hangs_is_waited_for_no_longer(machine: Machine) -> None:
    """What it was told to do is taken back, and the daemon runs with what it had."""
    machine.install_containerd(machine.programs, CONFIG, more=HANGS)
    began = time.monotonic()
    done = machine.nodeagent("runtime", "configure", *TIMED)
    assert done.returncode == 2
    assert "s after the restart `systemctl restart containerd.service` is still at it" in done.stderr
    assert time.monotonic() - began < PATIENCE_SECONDS
    assert read_config(machine) == CONFIG
    assert machine.systemd.run("systemctl", "is-active", CONTAINERD) == "active\n"
