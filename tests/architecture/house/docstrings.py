"""How many pronouns there are in the docstrings of a package, and which docstrings consist of them."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.architecture.house.names import list_sources

# A word that stands in place of a noun. `that` and `which` count wherever they stand, as a parser of English would be
# needed to tell a pronoun from a conjunction; other projects are counted by the same list.
PRONOUNS: Final = frozenset(
    """
    it its itself they them their theirs themselves this that these those who whom whose what which
    one ones nobody nothing somebody something everybody everything anybody anything none
    whoever whatever whichever he she him her his i me my we us our ours you your yours
    """.split()  # noqa: SIM905  a list of words is read as words
)
_FILLING: Final = frozenset(
    """
    a an the and or but as is are was were be been being has have had do does did not no only so of in on at by to for
    from with again anew all each both there here then than when where how why if any more most as well too
    """.split()  # noqa: SIM905
)
_WORD: Final = re.compile(r"[a-z']+")


class Docstring(NamedTuple):
    """A docstring and where it stands."""

    place: str
    text: str

    @property
    def words(self) -> list[str]:
        return _WORD.findall(self.text.lower())

    @property
    def pronouns(self) -> int:
        return sum(word in PRONOUNS for word in self.words)

    @property
    def has_content(self) -> bool:
        """Whether a word of it is neither a pronoun nor a particle."""
        return any(word not in PRONOUNS and word not in _FILLING for word in self.words)


def list_docstrings(package: Path) -> Iterator[Docstring]:
    """The docstrings of a package, in the order of its files."""
    for path in list_sources(package):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    name = getattr(node, "name", "the module")
                    yield Docstring(f"{path.relative_to(package.parent)}: {name}", text)


def count_pronouns(docstrings: Iterable[Docstring]) -> float:
    """Pronouns in a hundred words."""
    words = pronouns = 0
    for docstring in docstrings:
        words += len(docstring.words)
        pronouns += docstring.pronouns
    return 100 * pronouns / words if words else 0.0
