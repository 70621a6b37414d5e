"""The environment and the flags as located values.

Owns the mapping of names to settings; files are read in `files`, settings judged in `load`.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Mapping as MappingOf
from typing import Final

from nodeagent.config.compound import Nested
from nodeagent.config.errors import Problem
from nodeagent.config.kinds import Maybe
from nodeagent.config.knobs import Kind, Knob, Section, knobs_of
from nodeagent.config.tree import Node, Origin, Scalar, nest
from nodeagent.config.yaml_tree import parse_yaml
from nodeagent.model.wording import find_nearest

PREFIX: Final = "NODEAGENT_"
SEPARATOR: Final = "__"


def walk_knobs(section: type[Section], path: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], Knob]]:
    """Every setting with its path; a section comes before its settings, records of lists are not entered."""
    for name, knob in knobs_of(section).items():
        yield (*path, name), knob
        inner = inner_section(knob.kind)
        if inner is not None:
            yield from walk_knobs(inner, (*path, name))


def inner_section(kind: Kind[object]) -> type[Section] | None:
    """The section held by a setting, if any."""
    if isinstance(kind, Maybe):
        return inner_section(kind.kind)
    return kind.section if isinstance(kind, Nested) else None


def variable_of(path: tuple[str, ...]) -> str:
    """The environment variable of a setting."""
    return PREFIX + SEPARATOR.join(path).upper()


def read_environment(section: type[Section], environ: MappingOf[str, str]) -> tuple[list[Node], list[Problem]]:
    """The settings of the environment, weakest first: foreign variables, then the agent's variables.

    Unknown names are a problem only with a double underscore: Kubernetes puts variables such as NODEAGENT_PORT into the
    environment of every pod beside a service named nodeagent.
    """
    knobs = tuple(walk_knobs(section))
    known = {variable_of(path): path for path, _ in knobs}
    trees = [
        nest(path, Scalar(environ[knob.also_env], Origin("environment", knob.also_env)))
        for path, knob in knobs
        if environ.get(knob.also_env)
    ]
    problems: list[Problem] = []
    for name in sorted(name for name in environ if name.startswith(PREFIX)):
        origin = Origin("environment", name)
        if name in known:
            trees.append(nest(known[name], read_value(environ[name], origin)))
        elif SEPARATOR in name:
            problems.append(Problem(origin, "", f"unknown setting{_near(name, known)}"))
    return trees, problems


def _near(name: str, known: Iterable[str]) -> str:
    """The nearest variable; a list of all two hundred would be no help."""
    near = find_nearest(name.removeprefix(PREFIX), [other.removeprefix(PREFIX) for other in known])
    return f"; did you mean {PREFIX}{near}?" if near else "; `nodeagent config show` lists all settings"


def read_flags(overrides: Sequence[str]) -> tuple[list[Node], list[Problem]]:
    """The settings of `--set section.key=value`; the last of several wins."""
    trees: list[Node] = []
    problems: list[Problem] = []
    for text in overrides:
        path, equals, value = text.partition("=")
        keys = tuple(part.strip() for part in path.split("."))
        origin = Origin("flag", f"--set {path.strip()}")
        if not equals or len(keys) < 2 or not all(keys):  # a section and a key
            problems.append(Problem(Origin("flag", f"--set {text!r}"), "", "not of the form section.key=value"))
        else:
            trees.append(nest(keys, read_value(value, origin)))
    return trees, problems


def read_value(text: str, origin: Origin) -> Node:
    """A value as read by YAML; invalid YAML is text as written, so that [::1]:9400 needs no quotes."""
    parsed = parse_yaml(text, lambda _line: origin)
    if parsed.problems:
        return Scalar(text, origin)
    return Scalar("", origin) if parsed.node is None else parsed.node
