"""A container under real runc that ends and starts again, as the kubelet has it: each life finds its memory free."""

import fcntl
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeagent.components.cdi.plan_specs import render_mount
from nodeagent.edge.host.vgpu.layout import PROCESS, PROCESSES, USAGE_HEADER
from nodeagent.edge.host.vgpu.usage_file import bound_usage
from nodeagent.model.fractions import LimitsFolder
from nodeagent.rules.fractions.runtime import plan_fraction_mounts
from tests.component.vgpu.build import build_ledger_program
from tests.component.vgpu.place import Place

pytestmark = [
    pytest.mark.may_block("nothing here runs on an event loop"),
    pytest.mark.skipif(os.geteuid() != 0, reason="runc makes containers as root"),
    pytest.mark.skipif(shutil.which("runc") is None, reason="wants runc: apt-get install runc"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
]
INSIDE = "/run/nodeagent/vgpu"
KILLED = 128 + 9
MIB = 1 << 20
F_OFD_SETLK = 37
LOCKED_BY = PROCESS.offsets["locked_by"]


def has_memory_groups() -> bool:
    """Whether a container can be given a bound of memory here."""
    group = Path("/sys/fs/cgroup")
    own = group / "memory"
    if own.is_dir():
        return os.access(own, os.W_OK) and (own / "memory.limit_in_bytes").exists()
    controllers = group / "cgroup.controllers"
    return controllers.exists() and "memory" in controllers.read_text().split() and os.access(group, os.W_OK)


def forget_locks(place: Place) -> None:
    """What a process of the former library has in its slot: that field was spare, and zero."""
    with place.usage_path.open("r+b") as file:
        for number in range(PROCESSES):
            file.seek(USAGE_HEADER.size + number * PROCESS.size + LOCKED_BY)
            file.write(bytes(8))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path / "files")
    made.path.mkdir()
    made.create(1000)
    return made


class Container:
    """One container of the pod: the same bundle in each of its lives, the files of its part mounted in it."""

    def __init__(
        self, directory: Path, place: Place, memory_bytes: int | None = None, *, shares: bool = False, user: int = 0
    ) -> None:
        """`shares` says that it has a claim together with others; its processes run as this user."""
        self._directory = directory
        directory.mkdir()
        written = {"shared": str(place.path / "shared")} if shares else {"usage": str(place.path / "usage")}
        # As the agent writes them into the specification of a claim or a part, and as runtimes take them from there.
        planned = plan_fraction_mounts(LimitsFolder(limits=str(place.path / "limits"), **written), None)
        mounts: list[dict[str, object]] = [{"destination": "/proc", "type": "proc", "source": "proc"}]
        for each in map(render_mount, planned):
            mount: dict[str, object] = {
                "destination": each.container_path,
                "source": each.host_path,
                "options": each.options,
            }
            mounts.append(mount | {"type": each.type or "bind"})
        names = ("pid", "mount", "ipc", "uts", "network")
        config: dict[str, Any] = {
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": user, "gid": user}, "args": ["/talk"], "cwd": "/", "env": []},
            "root": {"path": "rootfs"},
            "mounts": mounts,
            "linux": {"namespaces": [{"type": name} for name in names]},
        }
        if memory_bytes is not None:
            config["linux"] |= {"resources": {"memory": {"limit": memory_bytes}}}
        (directory / "config.json").write_text(json.dumps(config))

    @contextmanager
    def living(self) -> Iterator["Life"]:
        """A life of the container; what is left of it at the end of the block is killed."""
        root, name = self._directory / "rootfs", f"na-{self._directory.name}-{os.getpid()}"
        # A new one, as the kubelet's runtimes make it for each start.
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        shutil.copy(build_ledger_program("ledger_talk", "-static"), root / "talk")
        runc = ["runc", "--root", str(self._directory / "state")]
        with subprocess.Popen(
            [*runc, "run", "--bundle", str(self._directory), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        ) as process:  # fmt: skip
            try:
                yield Life(process, [*runc, "kill", name, "KILL"])
            finally:
                if process.poll() is None:
                    subprocess.run([*runc, "delete", "--force", name], check=True, capture_output=True, timeout=30)


class Life:
    """The program of the container, from one start to its end."""

    def __init__(self, process: subprocess.Popen[str], kill: Sequence[str]) -> None:
        self._process, self._kill = process, kill

    def ask(self, question: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{question}\n")
        return self._process.stdout.readline().strip()

    def eat(self, count: int) -> None:
        """Ask for more memory than the container has: the kernel ends its program, and nobody else does."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"eat {count}\n")
        out, _ = self._process.communicate(timeout=60)
        assert (out, self._process.returncode) == ("", KILLED)

    def end(self) -> None:
        self._process.communicate("end\n", timeout=30)

    def kill(self) -> None:
        """By the kernel, as where memory has run out."""
        subprocess.run(self._kill, check=True, capture_output=True, timeout=30)
        self._process.wait(30)


@pytest.fixture
def claim(tmp_path: Path) -> Place:
    made = Place(tmp_path / "claim")
    made.path.mkdir()
    made.create_shared(1000)
    return made


@pytest.mark.long
@pytest.mark.parametrize("shares", [False, True], ids=["a pod", "a claim"])
def test_ten_lives_of_two_containers(tmp_path: Path, place: Place, claim: Place, shares: bool) -> None:
    """Ended by itself and killed in turns: most of the limit is free each time, and no more than that is given.

    Nothing of it takes an agent: none is there. Nor does it matter whom the processes of a claim's container run as.
    """
    files = claim if shares else place
    first = Container(tmp_path / "first", files, shares=shares, user=1000 if shares else 0)
    second = Container(tmp_path / "second", files, shares=shares)
    with second.living() as beside:
        assert beside.ask("reserve 0 200") == "granted"
        for number in range(10):
            with first.living() as life:
                assert life.ask("reserve 0 801") == "denied"
                assert life.ask("reserve 0 800") == "granted"
                assert life.ask("used 0") == beside.ask("used 0") == "1000"
                assert beside.ask("reserve 0 1") == "denied"
                life.kill() if number % 2 else life.end()
        assert beside.ask("reserve 0 800") == "granted"
        beside.end()


@pytest.mark.skipif(not has_memory_groups(), reason="containers have no bound of memory here: no control group for it")
def test_a_container_out_of_memory_leaves_none_of_the_gpus(tmp_path: Path, place: Place) -> None:
    """Ended by the kernel for the memory of the host that it took: the next life finds all of its part."""
    container = Container(tmp_path / "hungry", place, memory_bytes=64 * MIB)
    for _ in range(3):
        with container.living() as life:
            assert life.ask("reserve 0 1000") == "granted"
            life.eat(1024 * MIB)
    with container.living() as life:
        assert life.ask("used 0") == "0"
        assert life.ask("reserve 0 1000") == "granted"
        life.end()


def test_the_former_library_over_an_upgrade(tmp_path: Path, place: Place) -> None:
    """A container that runs with it keeps what it has; once it has ended, nothing of that is counted for ever."""
    former, present = (Container(tmp_path / name, place) for name in ("former", "present"))
    # One after the other: two that start within 10 ms, with the same pid, are told apart by nobody.
    with former.living() as old:
        assert old.ask("reserve 0 800") == "granted"
        with present.living() as new:
            for _ in range(2):
                forget_locks(place)
                assert new.ask("reserve 0 201") == "denied"
                assert new.ask("used 0") == "800"
                bound_usage(place.usage_path)
            assert new.ask("reserve 0 200") == "granted"
            forget_locks(place)
            old.kill()
            assert new.ask("reserve 0 1") == "denied", "from another namespace the library cannot know"
            bound_usage(place.usage_path)
            assert new.ask("used 0") == "200"
            assert new.ask("reserve 0 800") == "granted"
            new.end()


def test_who_holds_all_locks_hurts_its_own_container_alone(tmp_path: Path, place: Place) -> None:
    """What ended there stays charged while somebody pretends that it lives; the file of another has other locks."""
    other = Place(tmp_path / "other files")
    other.path.mkdir()
    other.create(1000)
    mean, neighbour = Container(tmp_path / "mean", place), Container(tmp_path / "neighbour", other)
    with neighbour.living() as beside:
        assert beside.ask("reserve 0 400") == "granted"
        with mean.living() as life:
            assert life.ask("reserve 0 800") == "granted"
            life.kill()
        with place.usage_path.open("r+b") as file:
            fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, PROCESSES, 0))
            with mean.living() as life:
                assert life.ask("reserve 0 201") == "denied"
                assert life.ask("reserve 0 200") == "granted"
                life.end()
            assert beside.ask("reserve 0 600") == "granted"
            beside.kill()
        with neighbour.living() as again, mean.living() as life:
            assert again.ask("reserve 0 1000") == "granted"
            bound_usage(place.usage_path)
            assert life.ask("reserve 0 1000") == "granted"
            life.end()
            again.end()


@pytest.mark.parametrize(
    "harm", ["cut own/usage", "garble own/usage", "remove own/usage", "cut shared", "garble shared", "grab"]
)
def test_a_mean_container_of_a_claim_ends_none_of_the_others(tmp_path: Path, claim: Place, harm: str) -> None:
    """What it does to all that it can write is at its own cost: the other lives, and the limit holds over both."""
    mean, other = (Container(tmp_path / name, claim, shares=True) for name in ("mean", "other"))
    with other.living() as beside:
        assert beside.ask("reserve 0 300") == "granted"
        with mean.living() as life:
            assert life.ask("reserve 0 400") == "granted"
            assert life.ask("remove shared") != "done"
            assert life.ask(harm) == "done"
            assert beside.ask("reserve 0 301") == "denied"
            if harm != "grab":
                assert beside.ask("reserve 0 300") == "granted"
                assert beside.ask("used 0") == "1000"
            life.kill()
        with mean.living() as life:
            assert life.ask("reserve 0 100") == "granted"
            life.end()
        assert beside.ask("used 0") in ("300", "600")
        beside.end()
