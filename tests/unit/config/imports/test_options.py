"""Options of programs are read as the programs read them: in policies of years ago, in DaemonSets, in units."""

import json

import pytest

from nodeagent.config.imports.engine import Imported, merge_imported, read_options
from nodeagent.config.imports.recognise import NotRecognised, import_text
from nodeagent.config.imports.render import check_file, render_file

POLICY_OF_2021 = """
apiVersion: nvidia.com/v1
kind: ClusterPolicy
spec:
  mig: {strategy: single}
  devicePlugin:
    args: [--mig-strategy=mixed, --pass-device-specs=true, --fail-on-init-error=true, --device-list-strategy=envvar,
      --device-list-strategy, volume-mounts, --nvidia-driver-root=/run/nvidia/driver, --imex-channel-ids=0]
    env: [{name: MIG_STRATEGY, value: none}, {name: GDS_ENABLED, value: "false"}, {name: IMEX_REQUIRED, value: "true"}]
  gfd: {migStrategy: none, discoveryIntervalSeconds: 60, args: [--no-timestamp], env: [{name: GFD_ONESHOT, value: "1"}]}
  gds: {enabled: true}
  dcgmExporter: {args: [-f, /etc/counters.csv, --collect-interval, "10000", -k, -r, "a:5555", --dump-enabled]}
"""
PLUGIN_DAEMONSET = """
apiVersion: apps/v1
kind: DaemonSet
spec:
  template:
    spec:
      containers:
      - {name: side, image: busybox, args: [sleep]}
      - name: ctr
        image: registry.example/nvidia/k8s-device-plugin:v0.17.0
        command: [/bin/sh, -c, "nvidia-device-plugin --mig-strategy=mixed"]
        env: [{name: FAIL_ON_INIT_ERROR, value: "false"}, {name: GDRCOPY_ENABLED, value: "true"}]
"""
MANIFEST = """
apiVersion: v1
kind: ServiceAccount
---
apiVersion: apps/v1
kind: DaemonSet
spec:
  template:
    spec:
      containers:
      - name: gpu-manager
        image: example/gpu-manager:v1.1.5
        env:
        - {name: LOG_LEVEL, value: "4"}
        - {name: EXTRA_FLAGS, value: "--incluster-mode=true --node-labels=gaia.tencent.com/gpu-model=x,a/pool=b,c="}
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
"""
UNIT = """
[Service]
Environment="EXTRA=--sample_period=2 --kubeconfig $HOME/config"
ExecStart=/usr/bin/gpu-manager --share-mode=true --device-plugin-path /var/plugins \\
  --query-addr localhost --query-port 5679 \\
  --container-runtime-endpoint=unix:///run/containerd/containerd.sock --extra-config=/etc/x.json
ExecStop=echo it's --over
Restart=always
"""
PARTS = {
    "fractions.enabled": True,
    "fractions.enforcement": "library",
    "fractions.limit_compute": True,
    "fractions.usage_socket": "/var/run/gpu-manager.sock",
    "doors.rules": [{"gpus": ["all"], "door": "fractions"}],
}


def names(imported: Imported) -> set[str]:
    return {name.strip() for note in imported.notes for name in note.partition(": ")[0].split(",")}


def test_a_policy_of_2021_has_its_options_read() -> None:
    """Over the variables, over what the operator writes into those, over the fields."""
    imported = import_text("policy", POLICY_OF_2021)
    assert imported.settings == {
        "device_plugin.mig_strategy": "mixed",
        "device_plugin.pass_device_specs": True,
        "device_plugin.device_list_strategy": ["envvar", "volume-mounts"],
        "driver.root": "/run/nvidia/driver",
        "device_plugin.imex_channel_ids": [0],
        "device_plugin.imex_required": True,
        "device_plugin.gds": True,
        "device_plugin.mofed": True,
        "labels.timestamp": False,
        "metrics.fields_file": "/etc/counters.csv",
        "inventory.sample_seconds": 10.0,
        "metrics.pod_attribution": True,
    }
    assert names(imported) == {
        "devicePlugin.args.fail-on-init-error", "gfd.discoveryIntervalSeconds", "gfd.env.GFD_ONESHOT",
        "dcgmExporter.args.r", "dcgmExporter.args.dump-enabled",
    }  # fmt: skip
    check_file(render_file(imported))


def test_what_the_operator_writes_outranks_variables_only_where_it_writes() -> None:
    """Direct storage that is off leaves the variable alone; the strategy is written in any case."""
    text = """
kind: ClusterPolicy
spec:
  gds: {enabled: false}
  mig: {strategy: single}
  devicePlugin: {env: [{name: GDS_ENABLED, value: "true"}, {name: MIG_STRATEGY, value: mixed}]}
"""
    assert import_text("policy", text).settings == {"device_plugin.gds": True, "device_plugin.mig_strategy": "single"}


def test_a_daemonset_is_read_by_its_programs() -> None:
    """A container of no known program says nothing, and neither does a shell."""
    imported = import_text("set", PLUGIN_DAEMONSET)
    assert imported.settings == {"device_plugin.mig_strategy": "mixed", "device_plugin.gdrcopy": True}
    assert names(imported) == {"env.FAIL_ON_INIT_ERROR"}


@pytest.mark.parametrize(
    ("image", "words", "settings"),
    [
        ("k8s-device-plugin", "[nvidia-device-plugin, --mps-root=/m]", {"device_plugin.mps_root": "/m"}),
        ("gpu-feature-discovery:v0.17", "[--mig-strategy=single]", {"device_plugin.mig_strategy": "single"}),
        ("k8s/dcgm-exporter:4", '[-a, ":9400", -n]', {"http.listen": ":9400", "metrics.host_label": "none"}),
    ],
)
def test_a_pod_is_read_as_a_daemonset_is(image: str, words: str, settings: dict[str, object]) -> None:
    """Its containers stand one level higher."""
    text = f"apiVersion: v1\nkind: Pod\nspec: {{containers: [{{image: {image}, args: {words}}}]}}\n"
    assert import_text("pod", text).settings == settings


def test_gpu_managers_manifest_becomes_ours() -> None:
    """With what its image's start script adds, and without what belongs to its deployment."""
    imported = import_text("manifest", MANIFEST)
    assert imported.settings == PARTS | {
        "fractions.usage_listen": "0.0.0.0:5678",
        "labels.static": {"a/pool": "b"},
        "labels.compatibility": ["gpu_manager"],
    }
    assert names(imported) == {"ServiceAccount", "args.incluster-mode", "env.LOG_LEVEL"}
    check_file(render_file(imported))


def test_gpu_managers_unit_becomes_ours() -> None:
    """A line that no shell would read is none of its options; a path that the shell fills in says nothing."""
    imported = import_text("unit", UNIT)
    assert imported.settings == PARTS | {
        "fractions.usage_listen": "127.0.0.1:5679",
        "runtime.socket": "/run/containerd/containerd.sock",
        "inventory.sample_seconds": 2.0,
        "kubelet.device_plugins_dir": "/var/plugins",
    }
    assert imported.notes == ()
    assert [(each.path, each.key, each.is_in_pod) for each in imported.files] == [
        ("/etc/x.json", "containers.extra_devices", False)
    ]
    check_file(render_file(imported))


def test_gpu_managers_extra_configuration_becomes_ours() -> None:
    """Its default list, as it gives it; also out of a ConfigMap, and without the nodes of GPUs."""
    document = {
        "default": {"devices": ["/dev/fuse", "/dev/fuse", "/dev/nvidia0", "dev/kvm"]},
        "other": {"devices": ["/dev/kvm"]},
        "none": {},
    }
    text = json.dumps(document)
    imported = import_text("extra", text)
    assert imported.settings == {"containers.extra_devices": [{"host": "/dev/fuse", "permissions": "rwm"}]}
    assert [note.partition(": ")[2] for note in imported.notes] == [
        "gpu-manager gives the devices of `default` alone",
        "gpu-manager gives the devices of `default` alone",
        "/dev/nvidia0: containers are given it together with their GPUs",
        "'dev/kvm': no absolute path",
    ]
    (device,) = check_file(render_file(imported)).containers.extra_devices
    assert (device.place, device.permissions) == ("/dev/fuse", "rwm")
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"extra.json": text}}
    assert import_text("map", json.dumps(config_map)).settings == imported.settings


@pytest.mark.parametrize("text", ["default: 1", "default: {devices: /dev/fuse}", "default: {nodes: [a]}", "a: {}"])
def test_another_document_is_no_extra_configuration(text: str) -> None:
    """It is told by its keys and their forms."""
    with pytest.raises(NotRecognised):
        import_text("file", text)


def test_an_extra_configuration_in_a_pod_is_not_looked_for_here() -> None:
    """The path is another file's on this machine; once the setting is given, nothing is missing."""
    manifest = import_text("manifest", MANIFEST.replace("--incluster-mode=true", "--extra-config=/etc/x.json"))
    (named,) = manifest.files
    assert named.is_in_pod
    extra = import_text("extra", '{"default": {"devices": []}}')
    assert merge_imported({"manifest": manifest}).files == (named,)
    assert merge_imported({"manifest": manifest, "extra": extra}).files == ()


def test_gpu_manager_that_holds_nobody_is_told_apart() -> None:
    """Here parts are always held; whoever does not want them is told how."""
    imported = import_text("line", "gpu-manager --share-mode=false --node-labels=gaia.tencent.com/gpu-model=")
    assert imported.settings == PARTS | {
        "fractions.usage_listen": "127.0.0.1:5678",
        "labels.compatibility": ["gpu_manager"],
    }
    assert "fractions.enabled: false gives whole GPUs alone" in imported.notes[0]


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--a=b", "-c", "d", "--e"], {"a": "b", "c": "d", "e": "true"}),
        (["--a", "--b=1", "--b=2", "--b=2,"], {"a": "true", "b": "1,2,2,"}),
        (["run", "--under_score=x=y"], {"run": "run", "under-score": "x=y"}),
        (["--a=1", "--a=1"], {"a": "1"}),
    ],
)
def test_options_are_read_as_go_programs_read_them(words: list[str], options: dict[str, str]) -> None:
    """With a value after the sign or as the next word; once or several times."""
    assert read_options(words) == options


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "apiVersion: apps/v1\nkind: DaemonSet\nspec: {template: {spec: {containers: [{image: busybox}, 1]}}}\n",
            "kind D",
        ),
        ("apiVersion: v1\nkind: Pod\nspec: {containers: none}\n", "an object of kind Pod"),
        ("apiVersion: v1\nkind: Secret\n---\napiVersion: v1\nkind: Service\n", "an object of kind Secret"),
        ("kind: ClusterPolicy\n---\nhello: 1\n", "nothing is known by the keys hello"),
        ("/usr/bin/other --query=1\n", "not a mapping"),
    ],
)
def test_what_is_of_no_known_program_is_refused(text: str, reason: str) -> None:
    """Though the kind of object is known."""
    with pytest.raises(NotRecognised, match=reason):
        import_text("file", text)
