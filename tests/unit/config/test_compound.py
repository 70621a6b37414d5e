"""Lists, maps and nested sections: every wrong member is named at its own place."""

from nodeagent.config.compound import ListOf, MapOf, Nested, plain_section
from nodeagent.config.kinds import Maybe, Text, Whole
from nodeagent.config.knobs import Section, knob, required
from tests.unit.config.helpers import complaints, read

DIGITS = Text("digits", "[0-9]+")


class Inner(Section):
    """A record."""

    size: int = required(Whole(1, 9), "how many")
    word: str = knob(DIGITS, "0", "a word", secret=True)


NUMBERS = ListOf(Whole(0, 9), shortest=1)


def test_list_takes_its_three_spellings() -> None:
    """A list, a single value and text with commas are all lists."""
    assert read(NUMBERS, "[1, 2]") == (1, 2)
    assert read(NUMBERS, "1") == (1,)
    assert read(NUMBERS, "1, 2,3,") == (1, 2, 3)


def test_absent_list_is_empty() -> None:
    """A list key without a value is an empty list where that is allowed."""
    assert read(ListOf(Whole(0, 9)), "~") == ()


def test_list_names_every_wrong_item() -> None:
    """Two wrong items make two complaints, each with its index."""
    lines = complaints(NUMBERS, "[1, x, 3, 77]")
    assert [line.split(": ")[1] for line in lines] == ["here[1]", "here[3]"]


def test_list_refuses_a_mapping_repeats_and_too_few() -> None:
    """A mapping is no list, a repeated value is a slip, and a list that must not be empty says so."""
    assert "give a list" in complaints(NUMBERS, "{a: 1}")[0]
    assert "each value once" in complaints(NUMBERS, "[1, 1]")[0]
    assert "at least 1" in complaints(NUMBERS, "[]")[0]


def test_refused_records_are_not_taken_for_repeats() -> None:
    """Two records that differ only in what is wrong with them get their own complaints and no other."""
    lines = complaints(ListOf(Nested(Inner)), "[{size: 1, word: x}, {size: 1, word: y}, {size: 1}, {size: 1}]")
    assert [line.split(": ")[1] for line in lines] == ["here[0].word", "here[1].word", "here[3]"]


def test_list_may_repeat_where_repeats_are_harmless() -> None:
    """Lists that other programs fill may say a thing twice."""
    assert read(ListOf(Whole(0, 9), distinct=False), "1,1") == (1, 1)


def test_map_names_every_wrong_key_and_value() -> None:
    lines = complaints(MapOf(DIGITS, Whole(0, 9)), "{a: 1, 2: 77, 3: 4}")
    assert [line.split(": ")[1] for line in lines] == ["here.a", "here.2"]


def test_map_takes_nothing_and_refuses_a_list() -> None:
    """An absent map is empty; a list is no map."""
    kind = MapOf(DIGITS, Whole(0, 9))
    assert read(kind, "null") == {}
    assert read(kind, "{3: 4}") == {"3": 4}
    assert kind.plain({"3": 4}) == {"3": 4}
    assert "a mapping from digits to a whole number" in complaints(kind, "[1]")[0]


def test_record_needs_its_required_keys() -> None:
    """A missing key is named with what to give, beside every other complaint about the record."""
    lines = complaints(ListOf(Nested(Inner)), "[{word: x, sise: 1}, {size: 2}, 5]")
    assert [line.split(": ")[1] for line in lines] == ["here[0].sise", "here[0].size", "here[0].word", "here[2]"]
    assert "did you mean 'size'?" in lines[0]
    assert "the key is missing; give a whole number" in lines[1]
    assert "give a mapping of keys" in lines[3]


def test_secret_key_of_a_record_is_not_shown() -> None:
    """Secrecy follows the declaration into lists of records."""
    (line,) = complaints(ListOf(Nested(Inner)), "[{size: 1, word: hunter2}]")
    assert "hunter2" not in line


def test_record_is_written_as_it_is_read() -> None:
    """The plain form of a record is the mapping that makes it."""
    assert plain_section(Inner(size=3)) == {"size": 3, "word": "0"}
    assert Nested(Inner).plain(Inner(size=3)) == {"size": 3, "word": "0"}
    assert read(Nested(Inner), "{size: 3}") == Inner(size=3)


def test_optional_record_may_be_absent() -> None:
    assert read(Maybe(Nested(Inner)), "null") is None
    assert "or empty" in Maybe(Nested(Inner)).label
