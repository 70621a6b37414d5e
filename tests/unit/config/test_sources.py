"""Environment and flags: how their names map to settings."""

from nodeagent.config.load import decide_settings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.agent import LogSettings
from nodeagent.config.sources import read_environment, read_flags, variable_of, walk_knobs
from nodeagent.config.tree import Mapping, Node, Scalar, shorten


def at(tree: Node, *path: str) -> str:
    for key in path:
        assert isinstance(tree, Mapping)
        tree = tree.entries[key]
    return shorten(tree)


def test_every_setting_has_its_own_variable() -> None:
    """No two settings share a variable, although case is lost in it."""
    names = [variable_of(path) for path, _ in walk_knobs(Settings)]
    assert len(names) == len(set(names))
    assert "NODEAGENT_SHARING__TIMESLICING__RENAMEBYDEFAULT" in names


def test_variables_are_read_as_yaml_and_name_themselves() -> None:
    """The value is YAML, the origin the variable."""
    trees, problems = read_environment(Settings, {"NODEAGENT_LABELS__SINKS": "[node, stdout]"})
    assert problems == []
    assert at(trees[0], "labels", "sinks") == "a list of 2"
    assert str(trees[0].origin) == "env NODEAGENT_LABELS__SINKS"


def test_variable_of_a_section_holds_the_section() -> None:
    """A whole section fits in one variable, and single keys in their own still win over it."""
    environ = {"NODEAGENT_LOG": "{level: debug, format: json}", "NODEAGENT_LOG__LEVEL": "error"}
    trees, problems = read_environment(Settings, environ)
    assert problems == []
    assert decide_settings(trees).settings.log == LogSettings(level="error", format="json")


def test_foreign_variables_are_weaker_than_ours_and_ignored_when_empty() -> None:
    """NODE_NAME comes before our own variable, so that ours wins; empty it says nothing."""
    trees, _ = read_environment(Settings, {"NODEAGENT_NODE__NAME": "b", "NODE_NAME": "a"})
    assert [at(tree, "node", "name") for tree in trees] == ["'a'", "'b'"]
    assert read_environment(Settings, {"NODE_NAME": ""}) == ([], [])


def test_foreign_value_is_text_as_written() -> None:
    """What clusters put into foreign variables is no YAML."""
    trees, _ = read_environment(Settings, {"DP_DISABLE_HEALTHCHECKS": "48, 63"})
    assert at(trees[0], "health", "disable_xids") == "'48, 63'"


def test_unknown_variables_are_problems_with_the_nearest_name() -> None:
    """A misspelt variable is named; one like nothing is pointed to the list."""
    _, problems = read_environment(Settings, {"NODEAGENT_HTP__LISTEN": "x", "NODEAGENT_ZZ__QQQ": "x"})
    assert [str(problem) for problem in problems] == [
        "env NODEAGENT_HTP__LISTEN: unknown setting; did you mean NODEAGENT_HTTP__LISTEN?",
        "env NODEAGENT_ZZ__QQQ: unknown setting; `nodeagent config show` lists all settings",
    ]


def test_variables_that_kubernetes_injects_are_no_settings() -> None:
    """A service named nodeagent puts such names into every pod."""
    injected = {"NODEAGENT_SERVICE_HOST": "10.0.0.1", "NODEAGENT_PORT": "tcp://10.0.0.1:9400"}
    assert read_environment(Settings, injected) == ([], [])


def test_flags_that_are_not_yaml_are_text() -> None:
    """An IPv6 address needs no quotes on the command line, and an empty value is nothing."""
    trees, problems = read_flags(["http.listen=[::1]:9400", "node.name=", "log.level= debug "])
    assert problems == []
    assert at(trees[0], "http", "listen") == "'[::1]:9400'"
    assert at(trees[1], "node", "name") == "''"
    assert at(trees[2], "log", "level") == "'debug'"
    assert isinstance(trees[0], Mapping)
    assert not isinstance(trees[0], Scalar)


def test_flags_of_the_wrong_form_are_all_named() -> None:
    """A flag needs a section, a key and an equals sign."""
    _, problems = read_flags(["http.listen", "http=1", ".x=1", "a.=1", ""])
    assert [str(problem) for problem in problems] == [
        f"flag --set {text!r}: not of the form section.key=value"
        for text in ("http.listen", "http=1", ".x=1", "a.=1", "")
    ]
