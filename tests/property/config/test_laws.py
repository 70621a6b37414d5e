"""Laws of the configuration: every wrong key is reported, what is written reads back, garbage never escapes."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.config.errors import ConfigurationInvalid, Problem
from nodeagent.config.explain import render_json, render_table
from nodeagent.config.knobs import knobs_of
from nodeagent.config.load import decide_settings
from nodeagent.config.nvidia import translate_nvidia
from nodeagent.config.reference import render_yaml
from nodeagent.config.reload import decide_reload
from nodeagent.config.schema import Settings
from nodeagent.config.sources import read_environment, read_flags
from nodeagent.config.tree import EMPTY, Mapping, Node, Origin
from nodeagent.config.yaml_tree import Parsed, parse_yaml
from tests.property.config.strategies import KEYS, NAMES, settings_with_changes, wrong_for

ANY_KEY = st.sampled_from(
    [key for pair in KEYS for key in pair] + ["flags", "imex", "version", "resources", "devices", "replicas"]
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["auto", "1:0"])
)
GARBAGE = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_KEY | st.text(max_size=4), inner, max_size=5),
    max_leaves=25,
)
YAML_LIKE = st.text(alphabet="[]{}:,-&*!|>'\"%@`#? \n\tab0")
LATIN = st.binary().map(lambda raw: raw.decode("latin-1"))
VARIABLES = st.sampled_from(["NODEAGENT_HTTP", "NODEAGENT_LOG__", "NODEAGENT_NODE__NAME", "NODE_NAME"])
FLAGS = st.text() | st.tuples(st.sampled_from(["http.listen", "a.b", "node"]), st.text()).map("=".join)


def parse(text: str) -> Parsed:
    return parse_yaml(text, lambda line: Origin("file", "f", line))


def tree_of(text: str) -> Node:
    """A file with that text, which is good YAML."""
    parsed = parse(text)
    assert parsed.problems == ()
    return parsed.node or EMPTY


def problems_of(layers: Sequence[Node], known: Sequence[Problem] = ()) -> tuple[Problem, ...]:
    """The problems of a configuration; none for one that is valid."""
    try:
        decide_settings(layers, known)
    except ConfigurationInvalid as invalid:
        return invalid.problems
    return ()


@given(
    wrong=st.sets(st.sampled_from(KEYS)),
    unknown=st.sets(st.tuples(st.sampled_from(list(knobs_of(Settings))), NAMES)),
)
def test_every_wrong_key_is_reported(wrong: set[tuple[str, str]], unknown: set[tuple[str, str]]) -> None:
    """All wrong values and unknown keys are named at once, each at its exact path and line, and nothing else is."""
    written: dict[str, dict[str, object]] = {}
    for section, key in wrong:
        kind = knobs_of(type(getattr(Settings(), section)))[key].kind
        written.setdefault(section, {})[key] = wrong_for(kind)
    for section, key in unknown:
        written.setdefault(section, {})[f"{key}Xq"] = 1
    text = ""
    expected: dict[str, int] = {}
    for section, keys in written.items():
        text += f"{section}:\n"
        for key, value in keys.items():
            text += f"  {key}: {json.dumps(value)}\n"
            expected[f"{section}.{key}"] = text.count("\n")
    found = [(problem.path, problem.origin.line) for problem in problems_of([tree_of(text)])]
    assert sorted(found) == sorted(expected.items())


@given(settings_with_changes())
def test_everything_written_out_reads_back(settings: Settings) -> None:
    """Any valid settings, written as a file, are those settings again; or a rule between them is named."""
    tree = tree_of(render_yaml(settings))
    problems = problems_of([tree])
    assert all("refused" not in problem.message and "unknown" not in problem.message for problem in problems)
    if not problems:
        loaded = decide_settings([tree])
        assert loaded.settings == settings
        assert render_table(loaded).count("\n") == len(json.loads(json.dumps(render_json(loaded)))["settings"])


def test_defaults_read_back() -> None:
    """Schema to YAML to settings gives the defaults."""
    assert decide_settings([tree_of(render_yaml(Settings()))]).settings == Settings()


@given(st.lists(st.sampled_from(KEYS), max_size=12))
def test_last_writer_of_a_key_is_its_origin(writes: list[tuple[str, str]]) -> None:
    """However many files say something about a key, its origin is the last of them."""
    layers: list[Node] = []
    last: dict[str, str] = {}
    for index, (section, key) in enumerate(writes):
        declared = knobs_of(type(getattr(Settings(), section)))[key]
        plain = json.dumps(declared.kind.plain(declared.default))
        layers.append(tree_of("\n" * index + f"{section}: {{{key}: {plain}}}\n"))
        last[f"{section}.{key}"] = f"f:{index + 1}"
    loaded = decide_settings(layers)
    assert {path: str(loaded.origin_of(path)) for path in last} == last


@given(st.dictionaries(ANY_KEY, GARBAGE, max_size=6))
def test_nested_garbage_raises_nothing_else(garbage: dict[str, Any]) -> None:
    """Any nesting of anything is settings or a list of problems, each on one line."""
    parsed = parse(json.dumps(garbage))
    translated = translate_nvidia(parsed.node if isinstance(parsed.node, Mapping) else EMPTY)
    problems = problems_of([translated.tree], [*parsed.problems, *translated.problems])
    assert all(str(problem).isprintable() for problem in problems)


@given(st.text() | YAML_LIKE | LATIN)
def test_any_text_is_a_tree_or_a_problem(text: str) -> None:
    """No text makes the reader of YAML raise, and every problem has a line of that text."""
    problems = parse(text).problems
    assert all(problem.message for problem in problems)
    assert all(1 <= problem.origin.line <= len(text.splitlines()) + 2 for problem in problems)


@given(st.dictionaries(VARIABLES, st.text()), st.lists(FLAGS))
def test_any_environment_and_flags_are_settings_or_problems(environ: dict[str, str], flags: list[str]) -> None:
    """What a shell can pass never raises anything but the list of problems."""
    variables, first = read_environment(Settings, environ)
    overrides, second = read_flags(flags)
    problems = problems_of([*variables, *overrides], [*first, *second])
    assert all(str(problem).isprintable() for problem in problems)


@given(settings_with_changes(), settings_with_changes())
def test_reload_takes_all_that_it_may_and_names_the_rest(old: Settings, new: Settings) -> None:
    """After a reload only what needs a restart differs, and the plan names each difference exactly once."""
    plan = decide_reload(old, new)
    again = decide_reload(plan.settings, new)
    assert again.changed_reloadable == ()
    assert again.changed_needs_restart == plan.changed_needs_restart
    differing = [
        f"{section}.{key}"
        for section, key in KEYS
        if getattr(getattr(old, section), key) != getattr(getattr(new, section), key)
    ]
    named = [change.path for change in (*plan.changed_reloadable, *plan.changed_needs_restart)]
    assert sorted(named) == sorted(differing)
