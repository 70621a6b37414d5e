"""What is in force, who said so, and what could be said."""

import json
from pathlib import Path

import msgspec
import pytest

from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.explain import plain_value, render_json, render_json_schema, render_table, show_value
from nodeagent.config.kinds import Text
from nodeagent.config.knobs import Section, knob, knobs_of
from tests.unit.config.helpers import load_text
from tests.unit.config.schema_check import find_schema_faults, satisfies


def test_table_names_key_value_and_origin(tmp_path: Path) -> None:
    """A line each, in columns; only what was set where that is asked."""
    loaded = load_text(tmp_path, "http: {listen: 'h:1'}\n", overrides=("labels.sinks=[]",))
    table = render_table(loaded).replace(f"{tmp_path}/", "")
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in table.splitlines()}
    assert rows["http.listen"] == ["h:1", "config.yaml:1"]
    assert rows["labels.sinks"] == ["[]", "flag --set labels.sinks"]
    assert rows["node.name"] == ["null", "default"]
    assert [line.split()[0] for line in render_table(loaded, only_set=True).splitlines()] == [
        "http.listen",
        "labels.sinks",
    ]


def test_table_of_nothing_set_is_empty(tmp_path: Path) -> None:
    assert render_table(load_text(tmp_path, ""), only_set=True) == ""


def test_json_says_the_same_for_programs(tmp_path: Path) -> None:
    """Every setting with value, layer, origin; files and notices beside them; it survives JSON."""
    loaded = load_text(tmp_path, "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}\n")
    document = json.loads(json.dumps(render_json(loaded)))
    resources = document["settings"]["sharing.timeSlicing.resources"]
    assert resources["value"] == [{"name": "gpu", "replicas": 2, "rename": None, "devices": "all", "models": []}]
    assert resources["layer"] == "file"
    assert resources["origin"].endswith("config.yaml:1")
    assert document["settings"]["log.level"]["reloadable"] is True
    assert document["files"] == [str(tmp_path / "config.yaml")]
    assert len(document["settings"]) == len(render_table(loaded).splitlines())
    assert list(render_json(loaded, only_set=True)["settings"]) == ["sharing.timeSlicing.resources"]  # type: ignore[call-overload]


class Vault(Section):
    """A section with a secret."""

    token: str = knob(Text(), "", "a token", secret=True)


@pytest.mark.parametrize(("value", "shown"), [("hunter2", "***"), ("", '""')])
def test_secret_only_says_that_it_is_there(value: str, shown: str) -> None:
    """A secret is shown as stars, its absence as absence."""
    assert show_value(plain_value(knobs_of(Vault)["token"], value)) == shown


def test_schema_is_well_formed() -> None:
    """Every keyword is one of JSON Schema, every pattern compiles, every required key is described."""
    assert find_schema_faults(render_json_schema()) == []


def test_schema_accepts_what_the_loader_accepts(tmp_path: Path) -> None:
    """The defaults, and a file that uses the compound settings, satisfy the schema."""
    schema = render_json_schema()
    assert satisfies(schema, {})
    written = {
        "http": {"listen": "[::1]:9400"},
        "kubernetes": {"enabled": True},
        "health": {"xid_policy": {"79": "ignore"}, "disable_xids": "48,63"},
        "resources": {"gpus": [{"pattern": "*", "name": "gpu"}]},
        "sharing": {
            "timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 2, "devices": [0, "1:0"]}]},
            "mps": None,
        },
        "journal": None,
    }
    assert satisfies(schema, written)
    load_text(tmp_path, json.dumps(written))
    loaded = load_text(tmp_path, "")
    defaults = {
        name: {key: declared.kind.plain(getattr(section, key)) for key, declared in knobs_of(type(section)).items()}
        for name, section in msgspec.structs.asdict(loaded.settings).items()
    }
    assert satisfies(schema, defaults)


@pytest.mark.parametrize(
    "written",
    [
        {"htp": {}},
        {"http": {"listn": "x"}},
        {"http": 5},
        {"http": {"listen": "9400"}},
        {"http": {"max_concurrent_scrapes": 0}},
        {"http": {"max_concurrent_scrapes": "5"}},
        {"log": {"level": "loud"}},
        {"labels": {"sinks": ["node", "node"]}},
        {"labels": {"sinks": {"node": True}}},
        {"health": {"xid_policy": {"79": "maybe"}}},
        {"health": {"xid_policy": {"X": "ignore"}}},
        {"sharing": {"timeSlicing": {"resources": []}}},
        {"sharing": {"timeSlicing": {}}},
        {"device_plugin": {"gds": "yes please"}},
        {"node": {"name": "Not A Name"}},
    ],
)
def test_schema_refuses_what_the_loader_refuses(tmp_path: Path, written: dict[str, object]) -> None:
    """An editor with the schema shows the mistake that the agent would."""
    assert not satisfies(render_json_schema(), written)
    with pytest.raises(ConfigurationInvalid):
        load_text(tmp_path, json.dumps(written))
