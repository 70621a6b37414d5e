"""A container under real runc that ends and starts again, as the kubelet has it: each life finds its memory free."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.component.vgpu.build import build_ledger_program
from tests.component.vgpu.place import Place

pytestmark = [
    pytest.mark.may_block("nothing here runs on an event loop"),
    pytest.mark.skipif(os.geteuid() != 0, reason="runc makes containers as root"),
    pytest.mark.skipif(shutil.which("runc") is None, reason="wants runc: apt-get install runc"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="the library is C"),
]
INSIDE = "/run/nodeagent/vgpu"


class Container:
    """One container of the pod: the same bundle in each of its lives, the files of its part mounted in it."""

    def __init__(self, directory: Path, place: Place) -> None:
        self._directory = directory
        (directory / "rootfs").mkdir(parents=True)
        shutil.copy(build_ledger_program("ledger_talk", "-static"), directory / "rootfs/talk")
        mounts: list[dict[str, object]] = [{"destination": "/proc", "type": "proc", "source": "proc"}]
        for name, mode in (("limits", "ro"), ("usage", "rw")):
            source = str(place.path / name)
            options = ["bind", mode]
            mounts.append({"destination": f"{INSIDE}/{name}", "type": "bind", "source": source, "options": options})
        names = ("pid", "mount", "ipc", "uts", "network")
        config = {
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["/talk"], "cwd": "/", "env": []},
            "root": {"path": "rootfs"},
            "mounts": mounts,
            "linux": {"namespaces": [{"type": name} for name in names]},
        }
        (directory / "config.json").write_text(json.dumps(config))

    @contextmanager
    def living(self) -> Iterator["Life"]:
        """A life of the container; what is left of it at the end of the block is killed."""
        name = f"na-{self._directory.name}-{os.getpid()}"
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

    def end(self) -> None:
        """By itself."""
        self._process.communicate("end\n", timeout=30)

    def kill(self) -> None:
        """By the kernel, as where memory has run out."""
        subprocess.run(self._kill, check=True, capture_output=True, timeout=30)
        self._process.wait(30)


def test_ten_lives_of_two_containers_of_a_pod(tmp_path: Path) -> None:
    """Ended by itself and killed in turns: most of the limit is free each time, and no more than that is given."""
    place = Place(tmp_path / "files")
    place.path.mkdir()
    place.create(1000)
    first, second = (Container(tmp_path / name, place) for name in ("first", "second"))
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
