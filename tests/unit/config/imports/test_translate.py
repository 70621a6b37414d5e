"""What is known about other people's documents is carried over, and nothing else is lost without a line."""

import textwrap

import pytest

from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.imports import dcgm_exporter, device_plugin, gpu_manager, gpu_operator
from nodeagent.config.imports.engine import Imported, Tables, Target, list_leaves, merge_imported, translate
from nodeagent.config.imports.recognise import NotRecognised, import_text
from nodeagent.config.imports.render import check_file, nest_settings, render_file
from nodeagent.config.schema import Settings
from nodeagent.config.sources import walk_knobs

PLUGIN_FILE = """
version: v1
flags:
  migStrategy: mixed
  failOnInitError: false
  mpsRoot: ""
  plugin: {deviceListStrategy: "envvar,cdi-cri", passDeviceSpecs: true}
  somethingNew: 1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
"""
CLUSTER_POLICY = """
apiVersion: nvidia.com/v1
kind: ClusterPolicy
spec:
  hostPaths: {kubeletRootDir: /data/kubelet}
  driver: {enabled: true, version: "595"}
  toolkit: {enabled: true, env: [{name: CONTAINERD_SOCKET, value: /run/k3s/containerd/containerd.sock}, odd]}
  devicePlugin:
    env: [{name: MIG_STRATEGY, value: mixed}]
    config: {name: plugins}
  gfd: {enabled: false}
  mig: {strategy: single}
  dcgmExporter:
    enablePodUID: true
    env:
    - {name: DCGM_EXPORTER_INTERVAL, value: "15000"}
    - {name: DCGM_EXPORTER_NO_HOSTNAME, value: "true"}
    - {name: DCGM_EXPORTER_KUBERNETES, value: perhaps}
    - {name: DCGM_EXPORTER_DEBUG, value: "false"}
    - {name: DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES, value: "8"}
    - {name: NODE_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
  wholly: {unknown: 1}
"""


def indent(text: str, by: int) -> str:
    return textwrap.indent(text, " " * by)


def config_map(**entries: str) -> str:
    data = "".join(f"  {name}: |\n{indent(text.strip(), 4)}\n" for name, text in entries.items())
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n{data}"


def test_every_table_names_settings_that_exist() -> None:
    """A setting that is renamed is renamed in the tables too."""
    known = {".".join(path) for path, _ in walk_knobs(Settings)} | {"sharing", "resources"}
    tables = (
        gpu_operator.TABLES.targets,
        device_plugin.FILE.targets,
        device_plugin.VALUES.targets,
        dcgm_exporter.VALUES.targets,
        gpu_manager.TABLES.targets,
    )
    named = {key for table in tables for target in table.values() for key in (target.key, *target.also)}
    assert named - known == set()


def test_a_cluster_policy_becomes_ours() -> None:
    """Values are read for what they mean, what the operator writes over variables, and what is left out says why."""
    imported = import_text("policy", CLUSTER_POLICY)
    assert imported.settings == {
        "kubelet.root_dir": "/data/kubelet",
        "runtime.manage": True,
        "runtime.socket": "/run/k3s/containerd/containerd.sock",
        "labels.sinks": [],
        "device_plugin.mig_strategy": "single",
        "metrics.pod_uid": True,
        "inventory.sample_seconds": 15.0,
        "metrics.host_label": "none",
        "log.level": "info",
        "http.max_concurrent_scrapes": 8,
    }
    notes = "\n".join(imported.notes)
    assert imported.values == {"driver.enabled": True, "driver.version": "595"}
    for part in ("driver.os: the operator reads it from a node", "wholly.unknown: nothing here"):
        assert part in notes
    assert "dcgmExporter.env.DCGM_EXPORTER_KUBERNETES: 'perhaps' is not understood" in notes
    assert "devicePlugin.config.name: mount that ConfigMap" in notes
    check_file(render_file(imported))


def test_a_device_plugin_file_becomes_ours() -> None:
    """Sharing is carried over as it is, flags by their counterparts; empty texts are defaults."""
    imported = import_text("plugin", PLUGIN_FILE)
    assert imported.settings == {
        "device_plugin.mig_strategy": "mixed",
        "device_plugin.device_list_strategy": ["envvar", "cdi-cri"],
        "device_plugin.pass_device_specs": True,
        "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}},
    }
    assert [note.partition(":")[0] for note in imported.notes] == [
        "version",
        "flags.failOnInitError",
        "flags.somethingNew",
    ]
    check_file(render_file(imported))


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("toolkit: {enabled: false}\nnfd: {enabled: true}", {"runtime.manage": False}),
        ("migStrategy: single\nresources: {limits: {cpu: 1}}", {"device_plugin.mig_strategy": "single"}),
        ("compatWithCPUManager: true", {"device_plugin.pass_device_specs": True}),
        ("serviceMonitor: {enabled: true}\nkubernetes: {enablePodLabels: true}", {"metrics.pod_labels": True}),
        ("version: v1", {}),
        ("version: v1\nmig-configs: {all-disabled: []}", {}),
    ],
)
def test_plain_files_are_told_apart(text: str, settings: dict[str, object]) -> None:
    imported = import_text("file", text)
    assert imported.settings == settings
    assert imported.notes or settings


def test_a_field_list_is_used_as_it_is() -> None:
    """Our metrics read the same format, so the list is referred to, not copied."""
    text = "# list\nDCGM_FI_DEV_SM_CLOCK, gauge, SM clock\n\nDCGM_FI_DEV_GPU_TEMP, gauge, temperature\n"
    assert import_text("/etc/list.csv", text).settings == {"metrics.fields_file": "/etc/list.csv"}


def test_a_config_map_is_read_through() -> None:
    """One entry is taken, of several the chosen one, and without a choice none is."""
    other = "version: v1\nflags: {migStrategy: single}\n"
    assert import_text("map", config_map(any=other)).settings == {"device_plugin.mig_strategy": "single"}
    several = config_map(any=other, sliced=PLUGIN_FILE)
    assert import_text("map", several).settings == {}
    assert "any, sliced: several configurations" in import_text("map", several).notes[0]
    assert import_text("map", several, entry="any").settings == {"device_plugin.mig_strategy": "single"}
    with pytest.raises(NotRecognised, match="no entry 'none', only any, sliced"):
        import_text("map", several, entry="none")
    fields = import_text("map", config_map(metrics="DCGM_FI_DEV_SM_CLOCK, gauge, SM clock"))
    assert (fields.settings, len(fields.notes)) == ({}, 1)


def test_lists_of_objects_and_several_documents_are_read_through() -> None:
    """As `kubectl get -o yaml` and Helm print them."""
    policy = "apiVersion: nvidia.com/v1\nkind: ClusterPolicy\nspec: {mig: {strategy: mixed}}\n"
    listed = f"apiVersion: v1\nkind: List\nitems:\n-\n{indent(policy, 2)}"
    assert import_text("list", listed).settings == {"device_plugin.mig_strategy": "mixed"}
    both = f"{policy}---\nmigStrategy: single\n"
    assert import_text("both", both).settings == {"device_plugin.mig_strategy": "single"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("- 1\n", "not a mapping"),
        ("a: [", "no YAML"),
        ("apiVersion: v1\nkind: Secret\n", "an object of kind Secret"),
        ("http: {listen: ':1'}\n", "nothing is known by the keys http"),
    ],
)
def test_what_is_not_recognised_is_refused(text: str, reason: str) -> None:
    """With what it looks like, and what would be read."""
    with pytest.raises(NotRecognised, match=f"cannot import file: .*{reason}.*; what is read: a ClusterPolicy"):
        import_text("file", text)


def test_a_later_file_wins_and_the_earlier_is_noted() -> None:
    """Nothing is overridden silently."""
    merged = merge_imported({"a": Imported({"log.level": "info"}, ("x",)), "b": Imported({"log.level": "debug"})})
    assert merged.settings == {"log.level": "debug"}
    assert merged.notes == ("a: x", "b: log.level: 'debug' replaces 'info' of a")
    same = merge_imported({"a": Imported({"log.level": "info"}), "b": Imported({"log.level": "info"})})
    assert same.notes == ()


def test_nothing_but_the_empty_is_passed_over() -> None:
    """Every other value is either a setting or in a note."""
    document = {"a": {"b": 0, "c": "", "d": None, "e": []}, "f": False, "g": {}}
    assert dict(list_leaves(document, {})) == {"a.b": 0, "f": False}
    imported = translate(document, Tables({"f": Target("x.y")}))
    assert (imported.settings, imported.notes) == ({"x.y": False}, ("a.b: nothing here corresponds to it",))


def test_the_file_has_the_order_of_the_reference_and_its_notes_above() -> None:
    """It reads as if a person had written it."""
    imported = Imported({"metrics.pod_uid": True, "http.listen": ":9400", "metrics.processes": False}, ("a: why",))
    assert list(nest_settings(imported)) == ["http", "metrics"]
    assert render_file(imported).startswith("# not imported: a: why\nhttp:\n  listen: :9400\n")
    check_file(render_file(Imported()))


def test_values_that_the_agent_would_refuse_are_found() -> None:
    """An import never yields a file with which the agent does not start."""
    with pytest.raises(ConfigurationInvalid):
        check_file(render_file(Imported({"device_plugin.mig_strategy": "sometimes"})))
    with pytest.raises(ConfigurationInvalid):
        check_file("a: 1\na: 2\n")
