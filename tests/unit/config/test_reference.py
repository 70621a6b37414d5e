"""The reference page and the example file."""

import re
from pathlib import Path

from nodeagent.config.files import DEFAULT_CONFIG_FILE
from nodeagent.config.knobs import knobs_of
from nodeagent.config.reference import flow, render_example, render_markdown, render_yaml
from nodeagent.config.schema import Settings
from nodeagent.config.sources import variable_of
from tests.unit.config.helpers import load_text


def test_page_names_every_key_with_its_reason() -> None:
    """Each setting has a row of six cells that says what it is."""
    page = render_markdown()
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in page.splitlines() if line.startswith("| `")]
    assert {len(row) for row in rows} == {6}
    assert all(row[5].strip() for row in rows)
    keys = [row[0].strip(" `") for row in rows]
    for name, declared in knobs_of(Settings).items():
        assert f"\n## {name}\n" in page
        assert set(knobs_of(type(declared.default))) <= set(keys)
    assert {"timeSlicing.resources[].replicas", "gpus[].pattern"} <= set(keys)


def test_page_tells_the_names_that_the_code_uses() -> None:
    """The main file and the form of the variables are written out in the page's head."""
    page = render_markdown()
    assert f"`{DEFAULT_CONFIG_FILE}`" in page
    assert f"`{variable_of(('http', 'listen'))}=" in page


def test_numbers_carry_their_unit_in_the_page() -> None:
    row = next(line for line in render_markdown().splitlines() if line.startswith("| `rotate_bytes`"))
    assert "| bytes |" in row


def test_keys_of_a_reloaded_section_are_reloaded() -> None:
    """What lies in a setting that is reloaded as a whole is reloaded with it."""
    rows = [line for line in render_markdown().splitlines() if line.startswith("| `timeSlicing")]
    assert len(rows) > 5
    assert all("| yes |" in row for row in rows)


def test_page_shows_marks_as_they_are() -> None:
    """An asterisk or an angle bracket in a text is no Markdown."""
    page = render_markdown()
    assert "in which \\* stands" in page
    assert "mig-&lt;profile>" in page
    assert "<profile>" not in page


def test_example_loads_to_the_defaults(tmp_path: Path) -> None:
    """As it is, and with every commented line put in force."""
    example = render_example()
    assert load_text(tmp_path, example).settings == Settings()
    in_force = re.sub(r"(?m)^  #(\w+:)", r"  \1", example)
    loaded = load_text(tmp_path, in_force)
    assert loaded.settings == Settings()
    assert len(loaded.origins) > 100


def test_everything_written_out_reads_back(tmp_path: Path) -> None:
    """Settings as a file, and the file as settings, are the same."""
    text = "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: ['1:0']}]}}\nlog: {level: debug}\n"
    settings = load_text(tmp_path, text).settings
    assert load_text(tmp_path, render_yaml(settings)).settings == settings


def test_words_with_a_meaning_are_quoted() -> None:
    """A word that YAML takes for something else is written with quotes."""
    assert [flow(value) for value in ("auto", "true", "No", "", "a b", 5, None, True)] == [
        "auto",
        '"true"',
        '"No"',
        '""',
        '"a b"',
        "5",
        "null",
        "true",
    ]
    assert flow({"k": ["a", {"79": 1}]}) == '{k: [a, {"79": 1}]}'
