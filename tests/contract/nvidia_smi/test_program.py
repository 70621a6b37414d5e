"""What nvidia-smi of 535 and 550 says where no driver is loaded, and whether it knows what the agent asks of it."""

import ast
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
from tests.fakes.nvidia_smi.answers import ANSWERS, PROGRAM
from tests.fakes.nvml.control import FakeNvml
from tests.originals.packages import DRIVERS, LIBRARIES, REASON, find_driver, find_program

__all__ = ["make_fake"]

pytestmark = pytest.mark.may_block("what is asked of NVIDIA's program is no business of the event loop")

NO_DRIVER: Final = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    " Make sure that the latest NVIDIA driver is installed and running.\n\n"
)
NO_LIBRARY: Final = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system."
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 9, 12
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


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_without_a_driver_every_question_has_one_answer(program: Library, question: list[str]) -> None:
    """On its standard output, also where the question makes no sense."""
    done = program.run(str(program.path), *question)
    assert (done.returncode, done.stdout, done.stderr) == (DRIVER_NOT_LOADED, NO_DRIVER, "")


def test_without_its_library_it_says_so(program: Library) -> None:
    done = program.run(str(program.path), "-L", LD_LIBRARY_PATH="/nowhere")
    assert (done.returncode, done.stderr) == (LIBRARY_NOT_FOUND, "")
    assert done.stdout.startswith(NO_LIBRARY)


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


def test_the_program_has_the_texts_of_the_stand_in(program: Library) -> None:
    """Of every answer to a reset whose text is said to be the program's."""
    content = program.path.read_bytes()
    pieces = [one.piece for one in ANSWERS.values() if one.source == PROGRAM and one.piece]
    assert len(pieces) > 8
    assert [piece for piece in pieces if piece.encode() not in content] == []


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
