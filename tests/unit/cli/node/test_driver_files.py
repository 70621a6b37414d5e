"""`nodeagent cdi files` and `cdi info`, also under the name of NVIDIA's program.

Forms are those of libnvidia-container: `src/cli/info.c` (commit 5decca39) and `src/cli/main.c` (1f2ad796). `Nvidia` as
the brand of an A100 is what it prints with driver 525.147.05.
"""

import io
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent import __version__
from nodeagent.cli import container_cli
from nodeagent.cli import main as command_line
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import Streams
from nodeagent.cli.node.driver_files import render_csv, render_info
from nodeagent.model.driver import LibraryAnswer
from tests.support.files.driver_tree import VERSION, DriverTree
from tests.support.programs.command_line import run_here
from tests.support.samples import make_gpu

pytestmark = pytest.mark.may_block("a made-up node's profile is read before anything is served")

GPUS = "simulated:a100-80gb-mig"
LIBRARY = LibraryAnswer(driver_version="525.147.05", cuda_version=(12, 0))
INFO = """\
NVRM version:   525.147.05
CUDA version:   12.0

Device Index:   0
Device Minor:   3
Model:          NVIDIA A100-PCIE-40GB
Brand:          Nvidia
GPU UUID:       GPU-00000000-0000-0000-0000-000000000000
Bus Location:   00000000:10:00.0
Architecture:   8.0
"""
CSV = """\
NVRM version,CUDA version
525.147.05,12.0

Device Index,Device Minor,Model,Brand,GPU UUID,Bus Location,Architecture
0,3,NVIDIA A100-PCIE-40GB,Nvidia,GPU-00000000-0000-0000-0000-000000000000,00000000:10:00.0,8.0
"""


def test_info_has_the_lines_of_nvidias_program() -> None:
    gpu = replace(make_gpu(0, name="NVIDIA A100-PCIE-40GB"), minor=3, brand="NVIDIA", compute_capability=(8, 0))
    assert render_info(LIBRARY, [gpu]) == INFO
    assert render_csv(LIBRARY, [gpu]) == CSV
    assert render_info(LIBRARY, [gpu, gpu]).count("\n\nDevice Index:") == 2
    assert render_csv(LIBRARY, []).endswith("Architecture\n")


def test_what_the_driver_does_not_tell_is_unknown() -> None:
    gpu = replace(make_gpu(0, name=""), minor=None, compute_capability=None)
    values = [line.partition(":")[2].strip() for line in render_info(LibraryAnswer(), [gpu]).splitlines()]
    assert [values[number] for number in (1, 4, 5, 6, 9)] == ["Unknown"] * 5


def run_as_theirs(*words: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return container_cli.run(words, Streams(out, err)), out.getvalue(), err.getvalue()


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEAGENT_GPUS__SOURCE", GPUS)


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize(
    ("words", "own"),
    [
        (("info",), ("info",)),
        (("-k", "-d", "/dev/tty", "info", "--csv"), ("info", "--csv")),
        (("-kn", "--no-create-imex-channels", "--debug=/x", "list"), ("files",)),
        (
            ("-u1000:1000", "--user=0", "-u", "--ldcache", "/etc/ld.so.cache", "list", "-d", "0:0"),
            ("files", "-d", "0:0"),
        ),
    ],
)
def test_the_words_of_nvidias_program_are_those_of_ours(words: tuple[str, ...], own: tuple[str, ...]) -> None:
    code, out, err = run_as_theirs(*words)
    assert (code, err) == (ExitCode.OK, "")
    assert out == run_here("cdi", *own)[1]


def test_the_root_is_the_drivers(tmp_path: Path) -> None:
    """Paths are told below the root, programs as they really lie there; `list` has what a specification has."""
    tree = DriverTree(tmp_path)
    tree.install()
    tree.write(f"usr/lib32/libcuda.so.{VERSION}", b"\x7fELF\x01 and more")
    tree.write(f"usr/lib32/libnvidia-ml.so.{VERSION}", b"\x7fELF\x02 of 64 bits")
    tree.write("usr/lib32/readme", b"\x7fELF\x01")
    (tmp_path / f"usr/lib32/libnvcuvid.so.{VERSION}").mkdir()
    own = [f"/usr/lib/x86_64-linux-gnu/{stem}.so.{VERSION}" for stem in ("libnvidia-ml", "libcuda")]
    assert run_as_theirs(f"-r{tmp_path}", "list", "--gpus", GPUS, "-bl", "--compat32")[1].splitlines() == [
        "/usr/bin/nvidia-smi",
        *own,
        *(
            f"/usr/lib/x86_64-linux-gnu/{stem}.so.{VERSION}"
            for stem in ("libnvidia-ptxjitcompiler", "libnvidia-allocator")
        ),
        *(f"/usr/lib/x86_64-linux-gnu/{stem}.so.{VERSION}" for stem in ("libnvidia-glcore", "libGLX_nvidia")),
        f"/usr/lib32/libcuda.so.{VERSION}",
    ]


def test_pipes_of_mps_are_listed_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipes").mkdir()
    for name, listed in (("pipes", [f"{tmp_path}/pipes"]), ("none", [])):
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / name))
        assert run_here("cdi", "files", "--gpus", GPUS, "--ipcs")[1].splitlines() == listed


def test_channels_are_told_beside_everything_else() -> None:
    """As in the original, where they are the only option."""
    listed = run_here("cdi", "files", "--gpus", GPUS, "--imex-channel=0,1", "--imex-channel=2")[1].splitlines()
    assert [line[-1] for line in listed if "imex" in line] == ["0", "1", "2"]
    assert "/dev/nvidia0" in listed


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("configure", "--pid", "3", "/rootfs"), "ask for devices by CDI names"),
        (("-l", "/x", "list"), "--ldcache /x"),
        (("--nope", "list"), "option --nope not recognized"),
        (("--help",), "usage: nvidia-container-cli"),
        ((), "usage: nvidia-container-cli"),
        (("other",), "usage: nvidia-container-cli"),
        (("list", "-d", "99"), "99: unknown device"),
    ],
)
def test_what_nodeagent_does_not_do_is_refused_in_a_line(words: tuple[str, ...], said: str) -> None:
    code, out, err = run_as_theirs(*words)
    assert (code, out, err.count("\n")) == (ExitCode.UNWELL, "", 1)
    assert said in err


def test_words_of_no_option_and_help_end_as_there(capsys: pytest.CaptureFixture[str]) -> None:
    for words, code in ((("list", "--nope"), ExitCode.UNWELL), (("info", "--help"), ExitCode.OK)):
        assert run_as_theirs(*words)[0] == code
    said = capsys.readouterr()
    assert "unknown option '--nope'" in said.err
    assert "nodeagent cdi info" in said.out


def test_a_driver_that_does_not_answer_has_its_own_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NODEAGENT_DRIVER__ROOT", str(tmp_path))
    for command in ("info", "files"):
        assert run_here("cdi", command)[0] == ExitCode.NO_DRIVER
    assert run_here("cdi", "info", "--gpus", "simulated:nonsense")[0] == ExitCode.BAD_INPUT


def test_the_name_of_the_program_decides(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A link of the name is enough."""
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/nvidia-container-cli", "--version"])
    assert command_line.main() == ExitCode.OK
    assert capsys.readouterr().out.splitlines()[:2] == [f"cli-version: {__version__}", f"lib-version: {__version__}"]
    monkeypatch.setattr("sys.argv", ["/usr/bin/nodeagent", "version"])
    assert command_line.main() == ExitCode.OK
    assert capsys.readouterr().out.startswith(f"nodeagent {__version__}")
