"""What is NVIDIA's is said in modules that say so, and nothing of the rest says NVIDIA where it means a GPU."""

from pathlib import Path

import pytest

from tests.architecture.house.vendor import OWN, find_idle, find_mentions, find_unowned, says_so

PACKAGE = Path(__file__).parents[3] / "nodeagent"


def test_no_file_says_nvidia_where_it_means_a_gpu() -> None:
    """A new file says GPU and driver, takes names from `model.nvidia`, or says by its name what it is about."""
    assert [f"{each.place}:{each.line}: {each.text}" for each in find_unowned(PACKAGE)] == []


def test_each_exception_is_one() -> None:
    """A place of the list still mentions NVIDIA, with the thing of NVIDIA's that it is about."""
    assert find_idle(PACKAGE) == []
    assert [own.place for own in OWN if not own.thing] == []


@pytest.mark.parametrize(
    ("place", "is_so"),
    [
        ("model/nvidia.py", True),
        ("components/mig/pause.py", True),
        ("components/node_requests/mig_request.py", True),
        ("components/health/evidence/xid_text.py", True),
        ("components/migrations/plan.py", False),
        ("rules/ids.py", False),
    ],
)
def test_a_module_says_so_by_a_whole_word(place: str, is_so: bool) -> None:
    """Of its own name, or of a folder around it."""
    assert says_so(Path(place)) is is_so


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""The GPU, as NVML has it."""\n', [1]),
        ('"""The label `nvidia.com/gpu.count`."""\n', []),
        ("count = 0\n# NVIDIA's\n", [2]),
        ("class NvidiaGpu: ...\n", [1]),
        ("import pynvml\n", [1]),
        ("from nodeagent.model.nvidia import DOMAIN\nfrom nodeagent.model.gpu import nvml\n", [2]),
        ('name = f"{1}/nvidia{2}"\n', [1]),
        ('"""A sentence.\n\nOf NVIDIA.\n"""\n', [3]),
        ('name = "gpu"\n', []),
    ],
)
def test_a_mention_is_found_wherever_a_reader_meets_it(tmp_path: Path, text: str, lines: list[int]) -> None:
    """In sentences, names, values and imports, but for names that a sentence quotes and imports of NVIDIA's names."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "plan.py").write_text(text)
    (tmp_path / "rules" / "mig.py").write_text(text)
    assert [each.line for each in find_mentions(tmp_path)] == lines
    assert {each.place for each in find_unowned(tmp_path)} <= {"rules/plan.py"}
