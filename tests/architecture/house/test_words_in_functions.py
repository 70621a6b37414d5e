"""The count of retired words in functions is itself right."""

from pathlib import Path

from tests.architecture.house.words_in_functions import list_retired_in_functions


def test_a_retired_word_is_found_in_functions_and_parameters(tmp_path: Path) -> None:
    """In methods and in lambdas too, and a name with two of the words counts once."""
    package = tmp_path / "nodeagent"
    package.mkdir()
    (package / "a.py").write_text(
        "class A:\n"
        "    def find_door(self, *, gpu, wish): ...\n"
        "    async def b(self, **known_share): ...\n"
        "c = lambda keeper: keeper\n"
    )
    names = [line.removeprefix("nodeagent/a.py: ") for line in list_retired_in_functions(package)]
    assert sorted(names) == ["find_door", "keeper", "known_share", "wish"]
