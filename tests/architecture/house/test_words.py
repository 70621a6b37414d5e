"""The names of the package are words of the field, and its docstrings have become no harder to read."""

from pathlib import Path

import pytest

from tests.architecture.house.docstrings import Docstring, count_pronouns, list_docstrings
from tests.architecture.house.names import PACKAGES, list_names
from tests.architecture.house.report import count_rooms, list_retired, measure, render_json, render_table
from tests.architecture.house.words import RETIRED, TERMS

ROOT = Path(__file__).parents[3]
SOURCES = [ROOT / name for name in PACKAGES]
PRONOUNS_MAX = 4.5
"""In a hundred words of docstring; other projects of the field have 3.5 to 5 by the same count."""


def make_package(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / "nodeagent" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "nodeagent"


def test_no_name_has_a_retired_word() -> None:
    """A new module or class takes the field's term; words of former days are pending until they are gone."""
    pending = {each.word for each in RETIRED if each.pending}
    assert [
        f"{name.place}: {name.name}: say {each.instead}"
        for package in SOURCES
        for name in list_names(package)
        for each in RETIRED
        if each.word in name.words and each.word not in pending
    ] == []


def test_a_word_is_pending_while_a_name_has_it() -> None:
    """The last rename of a word takes the word's flag with it, so that the word does not come back."""
    words = frozenset[str]().union(*(name.words for package in SOURCES for name in list_names(package)))
    assert [each.word for each in RETIRED if each.pending and each.word not in words] == []


def test_the_list_of_words_contradicts_itself_nowhere() -> None:
    """A term stands once, has one sentence, and is not retired at the same time."""
    names = [term.name.lower() for term in TERMS]
    words = [each.word for each in RETIRED]
    assert len(set(names)) == len(names)
    assert len(set(words)) == len(words)
    assert set(names) & set(words) == set()
    assert [term.name for term in TERMS if not term.meaning.endswith(".") or ". " in term.meaning] == []


def test_docstrings_say_their_nouns() -> None:
    """Few pronouns in all, and no docstring of pronouns alone."""
    docstrings = [each for package in SOURCES for each in list_docstrings(package)]
    assert count_pronouns(docstrings) <= PRONOUNS_MAX
    assert [f"{each.place}: {each.text}" for each in docstrings if not each.has_content] == []


def test_a_retired_word_is_found_wherever_a_name_has_it(tmp_path: Path) -> None:
    """The reader of names is itself right: folders, modules and classes, in words and in camel case."""
    package = make_package(
        tmp_path,
        {
            "__init__.py": "",
            "wishes/__init__.py": "",
            "wishes/gpu_door.py": "class ShareKeeper:\n    class XidBOOK: ...\n",
            "proto/door_pb2.py": "class Door: ...\n",
        },
    )
    found = [line.partition(": not ")[0] for line in list_retired(package)]
    assert found == [
        "nodeagent/wishes: wishes",
        "nodeagent/wishes/gpu_door.py: gpu_door",
        "nodeagent/wishes/gpu_door.py: ShareKeeper",
        "nodeagent/wishes/gpu_door.py: ShareKeeper",
        "nodeagent/wishes/gpu_door.py: XidBOOK",
    ]


@pytest.mark.parametrize(
    ("text", "pronouns", "has_content"),
    [
        ("All of them.", 1, False),
        ("As it is.", 1, False),
        ("The GPU that the kubelet counts.", 1, True),
        ("Remove the socket of a plugin.", 0, True),
    ],
)
def test_pronouns_are_counted(text: str, pronouns: int, has_content: bool) -> None:
    """A docstring without a word of its own is told from one with a noun or a verb."""
    docstring = Docstring("here", text)
    assert (docstring.pronouns, docstring.has_content) == (pronouns, has_content)


def test_pronouns_are_counted_by_the_hundred_and_by_room(tmp_path: Path) -> None:
    """One in four words is twenty-five in a hundred; nothing said is nothing counted."""
    text = '"""They have a GPU."""\n'
    make_package(tmp_path, {"edge/nvml/a.py": text, "edge/kube/__init__.py": "", "cli/b.py": '"""A b c."""\n'})
    assert count_rooms(tmp_path) == {"edge/nvml": (4, 25.0), "cli": (3, 0.0)}
    assert count_pronouns([]) == 0


def test_the_report_is_a_table_and_a_document(tmp_path: Path) -> None:
    """Each measure has its value, its goal where there is one, and the places that are counted."""
    make_package(tmp_path, {"core/door.py": '"""All of them."""\n'})
    (tmp_path / "tests").mkdir()
    rows = list(measure(tmp_path, with_crossings=False))
    assert "names of modules and classes with a retired word             1  at most 0\n" in render_table(rows)
    assert "nodeagent/core/door.py: the module: All of them." in render_json(rows)
