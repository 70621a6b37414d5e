"""`gpu prove` as a person runs it: the prover's process over the fake CUDA driver, beside the fake NVML."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec import yaml

from nodeagent.cli.frame.exit_codes import ExitCode
from tests.fakes.cuda.driver import FakeDriver, build_driver
from tests.fakes.nvml.control import FakeNvml
from tests.support.programs.command_line import run_here

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler for the fakes: apt-get install gcc"),
    pytest.mark.may_block("commands read files in their own short-lived loop"),
]

ROOM = 4 << 20


def prove(path: Path, **driver: Any) -> tuple[int, str]:
    """The only GPU of the node, by a driver root of the test's own."""
    nvml = FakeNvml(path, "t4")
    uuids = (nvml.gpu(0).uuid.decode(),)
    cuda = FakeDriver(path, **{"memory": (ROOM,), "proves": True, "uuids": uuids, **driver})
    library = path / "root/usr/lib64/libcuda.so.1"
    library.parent.mkdir(parents=True)
    shutil.copy(build_driver(), library)
    file = path / "config.yaml"
    settings = {
        "driver": {
            "root": str(path / "root"),
            "nvml_library": str(nvml.library_path),
            "worker_environment": {**nvml.environment, **cuda.environ()},
        },
        "node": {"run_dir": str(path / "run"), "proc_dir": str(path)},
        "http": {"listen": "127.0.0.1:1"},
        "gpus": {"source": "nvml"},
    }
    file.write_bytes(yaml.encode(settings))
    code, out, _ = run_here("gpu", "prove", "0", "--config", str(file))
    nvml.close()
    return code, out


@pytest.mark.slow
def test_a_sound_gpu_passes(tmp_path: Path) -> None:
    code, out = prove(tmp_path)
    assert (code, "\nGPU 0 passed (quick, " in out) == (ExitCode.OK, True), out
    assert "right on 132 SMs" in out


@pytest.mark.slow
def test_a_gpu_with_a_wrong_byte_fails(tmp_path: Path) -> None:
    """The table has its place, and the last line the check."""
    code, out = prove(tmp_path, wrong={"memory": 1000})
    assert code == ExitCode.UNWELL
    assert "(byte 8000): 0x" in out
    assert out.splitlines()[-1].endswith(" s): memory, copies")
