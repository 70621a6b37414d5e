"""What nvidia-smi of 535 and 550 says where no driver is loaded, and whether it knows what the agent asks of it."""

import ast
import gzip
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import pytest

import nodeagent
from nodeagent.edge.nvml.agent.partitioning import NvmlPartitioning, PartitioningSettings
from nodeagent.model.errors import PartitionRefused
from tests.component.edge_nvml.conftest import make_fake
from tests.component.edge_nvml.test_partitioning import IN_USE, find_gpu, running
from tests.contract.libraries import HARMLESS, Library, skip_unless_harmless
from tests.fakes.nvidia_smi.answers import ANSWERS, MANUAL, PROGRAM
from tests.fakes.nvidia_smi.program import FakeSmi
from tests.fakes.nvml.control import FakeNvml
from tests.originals.packages import DRIVERS, LIBRARIES, REASON, find_driver, find_program

__all__ = ["make_fake"]

pytestmark = pytest.mark.may_block("what is asked of NVIDIA's program is no business of the event loop")

NO_DRIVER, NO_LIBRARY = ANSWERS["no-driver"], ANSWERS["no-library"]
GPU: Final = "00000000:3b:00.0"
QUESTIONS: Final[tuple[list[str], ...]] = (
    [],
    ["-L"],
    ["-q"],
    ["--no-such-option"],
    ["-i", GPU, "-c", "DEFAULT"],
    PartitioningSettings().render_reset(GPU)[1:],
    PartitioningSettings().render_time_slice(GPU, 3)[1:],
    ["--gpu-reset", "bus", "-i", GPU],
    ["-i", GPU, "-pm", "0"],
    ["-i", GPU, "-pl", "500"],
    ["-i", GPU, "-c", "EXCLUSIVE_PROCESS"],
    ["-i", GPU, "-ac", "2619,1980"],
)
"""All that the agent or a remedy of its names, nothing at all, and an option that there is not."""
OF_SUBCOMMANDS: Final = {"compute-policy", "--set-timeslice"}
"""Words whose help wants a driver: they are looked for in the program itself."""


@pytest.fixture(params=DRIVERS)
def program(request: pytest.FixtureRequest) -> Library:
    skip_unless_harmless()
    path, root = find_program(request.param, "nvidia-smi"), find_driver(request.param)
    if path is None or root is None:
        pytest.skip(REASON)
    return Library(request.param, path, path, {"LD_LIBRARY_PATH": str(root / LIBRARIES)})


@pytest.fixture
def stand_in(tmp_path: Path) -> FakeSmi:
    return FakeSmi(tmp_path / "smi")


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_without_a_driver_every_question_has_one_answer(
    program: Library, stand_in: FakeSmi, question: list[str]
) -> None:
    """On its standard output, also where the question makes no sense; the same words by the stand-in."""
    stand_in.give("no-driver")
    for path in (program.path, stand_in.program):
        done = program.run(str(path), *question)
        assert (done.returncode, done.stdout, done.stderr) == (NO_DRIVER.code, NO_DRIVER.said, "")


def test_without_its_library_it_says_so(program: Library, stand_in: FakeSmi) -> None:
    stand_in.give("no-library")
    for path in (program.path, stand_in.program):
        done = program.run(str(path), "-L", LD_LIBRARY_PATH="/nowhere")
        assert (done.returncode, done.stderr) == (NO_LIBRARY.code, "")
        assert done.stdout.startswith(NO_LIBRARY.said.strip())


def test_the_help_names_every_option_that_the_agent_uses(program: Library) -> None:
    """It is there without a driver."""
    done = program.run(str(program.path), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    words = {word.rstrip(",=") for word in done.stdout.split()}
    used = {word for question in QUESTIONS for word in question if word.startswith("-")} - {"--no-such-option"}
    assert used - OF_SUBCOMMANDS - words == set()
    assert "0/DEFAULT" in words


def test_the_program_has_the_words_that_no_help_tells_here(program: Library) -> None:
    """Those of its subcommand, and those by which the agent knows that a GPU is in use."""
    content = program.path.read_bytes()
    for words in (
        *sorted(OF_SUBCOMMANDS),
        "GPU %s is currently in use by another process.",
        "Unable to reset GPU %s: %s",
    ):
        assert words.encode() in content, words
    assert [
        said for said in IN_USE if "use by another process." not in said and "In use by another client" not in said
    ] == []


def test_every_answer_of_the_stand_in_is_in_the_program_or_its_manual(program: Library) -> None:
    """Of a text a piece in the program's file, of another exit code than 255 its line in the manual page."""
    content = program.path.read_bytes()
    manual = gzip.decompress(program.path.with_name("nvidia-smi.1.gz").read_bytes()).decode()
    lines = dict(re.findall(r"^Return code (\d+) \\- (.*)$", manual, re.MULTILINE))
    for name, answer in ANSWERS.items():
        if answer.source in (PROGRAM, MANUAL):
            assert bool(answer.said) == bool(answer.piece), name
            assert answer.piece in answer.said, name
            assert answer.piece.encode() in content, name
        if answer.source == MANUAL:
            assert answer.manual, name
            assert lines[str(answer.code)].startswith(answer.manual), name
    assert {answer.code for answer in ANSWERS.values() if answer.source == PROGRAM} == {0, 255}
    assert (lines["0"], lines["255"]) == ("Success", "Other error or internal driver error occurred")
    assert {lines[str(one.code)] for one in (NO_DRIVER, NO_LIBRARY)} == {
        "NVIDIA driver is not loaded",
        "NVML Shared Library couldn't be found or loaded",
    }


def test_every_command_of_the_agent_is_asked_here() -> None:
    """A call of nvidia-smi that is not among the questions is one that nobody has held against the program."""
    options: set[str] = set()
    for path in Path(nodeagent.__file__).parent.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "nvidia-smi" in text else ():
            words = [
                each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            if isinstance(node, ast.List | ast.Tuple | ast.Call | ast.Assign) and "nvidia-smi" in words:
                options |= {word for word in words if word.startswith("-") and " " not in word}
            options |= {
                part for word in words if word.startswith("nvidia-smi -") for part in word.split() if part[0] == "-"
            }
    assert {"-q", "-L", "-c", "-i"} <= options
    assert options - {word for question in QUESTIONS for word in question} == set()


async def test_a_refusal_of_the_program_is_told_in_its_words(
    program: Library, make_fake: object, tmp_path: Path
) -> None:
    fake = make_fake("dgx-a100")  # type: ignore[operator]
    assert isinstance(fake, FakeNvml)
    command = (*HARMLESS, "env", f"LD_LIBRARY_PATH={program.environment['LD_LIBRARY_PATH']}", str(program.path))
    settings = PartitioningSettings(library=str(fake.library_path), environment=fake.environment, tool=command)
    async with running(NvmlPartitioning(settings, nullcontext)) as session:
        with pytest.raises(
            PartitionRefused, match="ended with 9: NVIDIA-SMI has failed because it couldn't"
        ) as refused:
            await session.set_time_slice(find_gpu(fake, 0), 3)
    assert not refused.value.in_use
