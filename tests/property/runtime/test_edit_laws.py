"""Laws of the patchers: one change, nothing else, and no damage from any input."""

import json
import tomllib
from contextlib import suppress
from typing import Any

import tomlkit
from hypothesis import example, given
from hypothesis import strategies as st

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.plan import Wanted, apply_to_tree
from nodeagent.components.runtime.plan_containerd import plan_containerd
from nodeagent.components.runtime.plan_docker import parse_daemon_json, plan_docker
from nodeagent.components.runtime.toml_edit import ConfigUneditable, ConfigUnparsable, merge, set_keys
from nodeagent.model.runtime import ConfigFile, ConfigTree, RuntimeFlavour, RuntimeKind

KEY = ("plugins", "io.containerd.grpc.v1.cri", "enable_cdi")
EDITED = {"plugins": {"io.containerd.grpc.v1.cri": {"enable_cdi": True}}}

NAMES = st.sampled_from(["plugins", "io.containerd.grpc.v1.cri", "version", "imports", "a", "b c", "é", "x.y"])
LEAVES = st.one_of(st.booleans(), st.integers(-5, 5), st.text(max_size=5), st.lists(st.integers(0, 3), max_size=3))
TABLES = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=3),
    lambda inner: st.dictionaries(NAMES, st.one_of(LEAVES, inner), max_size=3),
)
FRAGMENTS = st.lists(
    st.sampled_from(
        [
            "# a comment\n",
            "\n",
            'a = "b" # why\n',
            "[plugins]\n",
            "[plugins.a]\n",
            '[plugins."io.containerd.grpc.v1.cri"]\n',
            'plugins."io.containerd.grpc.v1.cri".b = 1\n',
            '[plugins."io.containerd.grpc.v1.cri".registry]\n',
            "enable_cdi = false\n",
            "x = {y = 1}\n",
            "plugins = {a = 1}\n",
            "[[plugins.list]]\n",
            '"""',
            "[",
            "=",
        ]
    ),
    max_size=8,
).map("".join)


def runtime(kind: RuntimeKind, version: str) -> ChosenRuntime:
    return ChosenRuntime(
        kind=kind, flavour=RuntimeFlavour.PLAIN, socket="/s", config_file="/etc/x/config", version=version
    )


def plan_any(version: str, content: bytes) -> None:
    for wanted in (Wanted(wrapper="/usr/bin/w"), Wanted(wrapper="/usr/bin/w", names=(), default=True)):
        plan_one(version, content, wanted)


def plan_one(version: str, content: bytes, wanted: Wanted) -> None:
    tree = ConfigTree(files=(ConfigFile(path="/etc/x/config", content=content),))
    with suppress(ConfigUnparsable, ConfigUneditable):
        plan = plan_containerd(runtime(RuntimeKind.CONTAINERD, version), tree, wanted)
        for change in plan.changes:
            tomllib.loads((change.after or b"").decode())
        after = apply_to_tree(tree, plan.changes)
        if plan.changes:
            assert plan_containerd(runtime(RuntimeKind.CONTAINERD, version), after, wanted).changes == ()


@given(TABLES)
def test_exactly_one_key_changes(document: dict[str, Any]) -> None:
    """Whatever else the file says, it says afterwards; done twice it is done once."""
    content = tomlkit.dumps(document).encode()
    with suppress(ConfigUneditable):
        edited = set_keys("x", content, {KEY: True})
        assert tomllib.loads(edited.decode()) == merge(tomllib.loads(content.decode()), EDITED)
        assert set_keys("x", edited, {KEY: True}) == edited


@given(FRAGMENTS)
@example("[[plugins.list]]\n[plugins.a]\n[[plugins.list]]\n")
def test_comments_and_lines_survive(text: str) -> None:
    """Every line that people wrote is still there, in their order, unless it is the key itself."""
    with suppress(ConfigUneditable, ConfigUnparsable):
        edited = set_keys("x", text.encode(), {KEY: True}).decode()
        lines = [line for line in text.splitlines() if line.strip() and "enable_cdi" not in line]
        rest = iter(edited.splitlines())
        assert all(any(line.strip() == other.strip() for other in rest) for line in lines)


@given(
    st.sampled_from(["1.6.1", "1.7.1", "2.0.0", "2.3.0"]), st.one_of(st.binary(max_size=80), FRAGMENTS.map(str.encode))
)
def test_no_file_makes_the_plan_do_harm(version: str, content: bytes) -> None:
    """Any bytes give a plan that is valid and done once, a problem, or one of two errors."""
    plan_any(version, content)


@given(st.one_of(st.binary(max_size=60), st.from_regex(r'\{("features": ?(\{\}|1|\{"a":2\}))?\}').map(str.encode)))
def test_no_daemon_file_makes_the_plan_do_harm(content: bytes) -> None:
    """Any bytes give a valid file with every foreign key, or an error."""
    tree = ConfigTree(files=(ConfigFile(path="/d", content=content),))
    with suppress(ConfigUnparsable):
        plan = plan_docker(runtime(RuntimeKind.DOCKER, "27.0"), tree, Wanted())
        for change in plan.changes:
            after = json.loads(change.after or b"")
            assert after.pop("features")["cdi"] is True
            before = parse_daemon_json("/d", content)
            assert after == {name: value for name, value in before.items() if name != "features"}
