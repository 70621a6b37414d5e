"""The chart and the manifests rendered from it: equal, minimal, and deaf to misspelt values."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent import __version__
from nodeagent.config.load import load_settings
from nodeagent.config.schema import Settings
from tests.deploy.helm import CHART, MANIFEST, ROOT, helm_path, render_chart, render_manifest, run_helm

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")
needs_helm = pytest.mark.skipif(not helm_path().exists(), reason="Helm is not built: python -m tests.deploy.helm build")

Object = dict[str, Any]


def read_objects(text: str) -> dict[tuple[str, str], Object]:
    documents = [document for document in yaml.safe_load_all(text) if document]
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def read_manifest() -> dict[tuple[str, str], Object]:
    return read_objects(MANIFEST.read_text())


def render_objects(*words: str) -> dict[tuple[str, str], Object]:
    done = render_chart(*words)
    assert done.returncode == 0, done.stderr
    return read_objects(done.stdout)


def pod_of(objects: dict[tuple[str, str], Object]) -> Object:
    pod: Object = objects["DaemonSet", "nodeagent"]["spec"]["template"]["spec"]
    return pod


def settings_of(objects: dict[tuple[str, str], Object], directory: Path) -> Settings:
    file = directory / "config.yaml"
    file.write_text(objects["ConfigMap", "nodeagent"]["data"]["config.yaml"])
    return load_settings(file, environ={"NODE_NAME": "a-node"}).settings


@needs_helm
def test_manifests_are_what_the_chart_renders() -> None:
    """Whoever changes the chart commits what is rendered from it: `make manifests`."""
    assert MANIFEST.read_text() == render_manifest()


@needs_helm
def test_chart_passes_its_own_linter() -> None:
    """Helm finds nothing to warn of."""
    done = run_helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


def test_permissions_are_those_of_the_reviewed_file() -> None:
    """deploy/rbac.yaml is what the cluster tests run under; what is installed may neither do more nor be held less."""
    reviewed, installed = read_objects((ROOT / "deploy/rbac.yaml").read_text()), read_manifest()
    kinds = {key for key in reviewed if key[0] != "Namespace"}
    assert kinds
    assert {key: installed.get(key) for key in kinds} == {key: reviewed[key] for key in kinds}
    others = {key[0] for key in installed.keys() - kinds}
    assert others == {"Namespace", "ConfigMap", "DaemonSet"}


def test_an_update_never_runs_two_agents_on_a_node() -> None:
    """The second would register the same resources with the same kubelet."""
    strategy = read_manifest()["DaemonSet", "nodeagent"]["spec"]["updateStrategy"]
    assert strategy["type"] == "RollingUpdate"
    assert strategy["rollingUpdate"]["maxSurge"] == 0


def test_liveness_asks_for_the_event_loop_and_nothing_else() -> None:
    """A lost GPU must not get the agent killed that reports it."""
    container = pod_of(read_manifest())["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_every_host_directory_has_its_reason() -> None:
    """A mount of the host stands under a comment that says what for."""
    lines = (CHART / "templates/daemonset.yaml").read_text().splitlines()
    mounts = [number for number, line in enumerate(lines) if "hostPath:" in line]
    assert len(mounts) == 7
    for number in mounts:
        assert lines[number - 2].strip().startswith("# "), lines[number]


def test_pods_configuration_is_valid(tmp_path: Path) -> None:
    """What the chart writes for the agent is read by the agent without a complaint."""
    settings = settings_of(read_manifest(), tmp_path)
    assert str(settings.node.host_root) == "/host"
    assert (settings.http.listen.host, settings.http.listen.port) == ("", 9400)


@needs_helm
def test_values_reach_the_agent_over_what_the_pod_decides(tmp_path: Path) -> None:
    """`config` has the last word, section by section."""
    objects = render_objects("--set", "config.metrics.processes=true,config.device_plugin.mig_strategy=mixed")
    settings = settings_of(objects, tmp_path)
    assert (settings.metrics.processes, settings.device_plugin.mig_strategy) == (True, "mixed")
    assert str(settings.node.host_root) == "/host"


@needs_helm
@pytest.mark.parametrize("access", ["runtimeClass", "none"])
def test_nothing_is_privileged_unless_a_feature_needs_it(access: str) -> None:
    """Where somebody else gives the GPUs, or there are none, the container has no capability at all."""
    pod = pod_of(render_objects("--set", f"gpuAccess={access}"))
    security = pod["containers"][0]["securityContext"]
    assert security["privileged"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    paths = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert "/dev" not in paths
    assert ("/" in paths) == (access == "runtimeClass")


WRITES = [
    "runtime.manage=true",
    "cdi.hook_dir=/opt/hook",
    "runtime.shim=true,config.shim.dir=/opt/shim",
    "runtime.shim=true,config.shim.nvidia_name_dir=/usr/local/bin",
]


@needs_helm
@pytest.mark.parametrize("wish", WRITES)
def test_the_host_can_be_written_to_only_where_the_configuration_asks_for_it(wish: str) -> None:
    """The container runtime's files and the hook program; judging and restarting a runtime takes the host's root."""
    (container,) = pod_of(render_objects("--set", f"gpuAccess=runtimeClass,config.{wish}"))["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_CHROOT"]}
    assert not host_mount_of(container)["readOnly"]
    (shipped,) = pod_of(read_manifest())["containers"]
    assert host_mount_of(shipped)["readOnly"]


@needs_helm
@pytest.mark.parametrize("wish", ["hooks=ldcache", "hook_dir=/opt/hook,config.cdi.hooks=none"])
def test_the_hook_in_the_state_directory_needs_nothing_more(wish: str) -> None:
    """Nor does one that is not wanted."""
    (container,) = pod_of(render_objects("--set", f"gpuAccess=runtimeClass,config.cdi.{wish}"))["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert host_mount_of(container)["readOnly"]


def host_mount_of(container: Object) -> Object:
    (mount,) = (each for each in container["volumeMounts"] if each["mountPath"] == "/host")
    return dict(mount)


@needs_helm
def test_the_shim_in_the_state_directory_is_tried_in_the_hosts_root() -> None:
    """Nothing of the host is written for it; the class by which pods ask for it comes with it."""
    objects = render_objects("--set", "gpuAccess=runtimeClass,config.runtime.shim=true")
    (container,) = pod_of(objects)["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_CHROOT"]}
    assert host_mount_of(container)["readOnly"]
    shipped = read_objects((ROOT / "deploy/runtimeclass.yaml").read_text())
    assert objects["RuntimeClass", "nvidia"] == shipped["RuntimeClass", "nvidia"]
    words = "config.runtime.shim=true,createRuntimeClass=false"
    for rendered in (render_objects(), render_objects("--set", words)):
        assert ("RuntimeClass", "nvidia") not in rendered


@needs_helm
def test_markers_reach_the_host_when_they_are_asked_for() -> None:
    """Operands of NVIDIA's operator look on the host; by default nobody writes there."""
    pod = pod_of(render_objects("--set", "config.driver.validation_markers=true"))
    (volume,) = (each for each in pod["volumes"] if each["name"] == "markers")
    assert volume["hostPath"]["path"] == "/run/nvidia/validations"
    assert {"name": "markers", "mountPath": "/run/nvidia/validations"} in pod["containers"][0]["volumeMounts"]
    assert "markers" not in {each["name"] for each in pod_of(read_manifest())["volumes"]}


@needs_helm
@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("gpuAcces=none", "gpuAcces"),
        ("image.tag=latest", "/image/tag"),
        ("gpuAccess=yes", "/gpuAccess"),
        ("maxUnavailable=fifty", "/maxUnavailable"),
        ("podMonitor.intervall=15s", "intervall"),
        ("config.http=:9400", "/config/http"),
        ("uninstall=maybe", "/uninstall"),
        ("tolerations=all", "/tolerations"),
        ("resources.request.memory=1Gi", "request"),
        ("nodeSelectors.gpu=yes", "nodeSelectors"),
        ("extender.replica=2", "replica"),
        ("extender.replicas=0", "/extender/replicas"),
    ],
)
def test_a_wrong_value_fails_by_its_name(value: str, named: str) -> None:
    """Nothing is rendered from values that are not understood."""
    done = render_chart("--set", value)
    assert done.returncode != 0
    assert named in done.stderr


def test_chart_names_the_version_of_the_agent() -> None:
    """Without a tag of its own an installation runs the agent that the chart was made for."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


@needs_helm
@pytest.mark.parametrize(("said", "words"), [("true", ["uninstall"]), ("keepState", ["uninstall", "--keep-state"])])
def test_leaving_runs_no_agent(said: str, words: list[str]) -> None:
    """What the agent did is taken back by a container with the same mounts; then something idles."""
    before = pod_of(read_manifest())["containers"][0]
    pod = pod_of(render_objects("--set", f"uninstall={said}"))
    (container,), (idle,) = pod["initContainers"], pod["containers"]
    assert container["args"] == words
    same = ("env", "image", "securityContext", "volumeMounts")
    assert {key: container[key] for key in same} == {key: before[key] for key in same}
    assert idle["securityContext"]["runAsUser"] != 0
    assert "volumeMounts" not in idle


@needs_helm
def test_monitoring_is_added_when_asked_for() -> None:
    """For clusters with the Prometheus operator; elsewhere its kinds do not exist."""
    assert not {kind for kind, _ in render_objects() if kind.startswith("P")}
    objects = render_objects("--set", "podMonitor.enabled=true,prometheusRule.enabled=true")
    rules = yaml.safe_load((ROOT / "deploy/alerts/nodeagent-rules.yaml").read_text())
    assert objects["PrometheusRule", "nodeagent"]["spec"] == rules
    monitor = yaml.safe_load((ROOT / "deploy/prometheus/podmonitor.yaml").read_text())
    assert objects["PodMonitor", "nodeagent"]["spec"] == monitor["spec"]


@needs_helm
@needs_helm
def test_pods_may_be_read_only_for_their_labels() -> None:
    """The right to follow pods comes with the setting that needs it, and is the reviewed one."""
    name = ("ClusterRole", "nodeagent-pod-labels")
    assert name not in render_objects()
    added = render_objects("--set", "config.metrics.pod_labels=true")
    reviewed = read_objects((ROOT / "deploy/rbac-pod-labels.yaml").read_text())
    assert {key: added.get(key) for key in reviewed} == reviewed


@needs_helm
def test_dashboards_are_added_when_asked_for() -> None:
    """Each in a ConfigMap of its own, word for word as it is shipped, by a label that Grafana looks for."""
    objects = render_objects("--set", "dashboards.enabled=true")
    for name in ("node", "pods", "cluster"):
        found = objects["ConfigMap", f"nodeagent-dashboard-{name}"]
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        shipped = json.loads((ROOT / f"deploy/dashboards/{name}.json").read_text())
        assert json.loads(found["data"][f"nodeagent-{name}.json"]) == shipped


@needs_helm
def test_nodes_can_be_chosen_by_a_label_of_ones_own() -> None:
    """Helm merges mappings, so the default affinity goes only by being set to nothing, as the guides say."""
    pod = pod_of(render_objects("--set", "affinity=null", "--set-string", "nodeSelector.nodeagent=true"))
    assert "affinity" not in pod
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "nodeagent": "true"}


EXTENDER = ("--set", "extender.enabled=true")
SCHEDULER = (*EXTENDER, "--set", "extender.scheduler.enabled=true,extender.scheduler.image=kube-scheduler:v1.36.0")


@needs_helm
def test_the_extender_is_added_when_asked_for_with_the_reviewed_rights() -> None:
    """Under an account of its own, which may do nothing on nodes but look."""
    assert not {name for _, name in render_objects() if "extender" in name}
    objects = render_objects(*EXTENDER)
    reviewed = read_objects((ROOT / "deploy/rbac-extender.yaml").read_text())
    assert {key: objects.get(key) for key in reviewed} == reviewed
    added = {key for key in objects.keys() - render_objects().keys() if key not in reviewed}
    assert added == {
        ("ConfigMap", "nodeagent-extender"),
        ("Service", "nodeagent-extender"),
        ("Deployment", "nodeagent-extender"),
        ("NetworkPolicy", "nodeagent-extender"),
    }
    pod = objects["Deployment", "nodeagent-extender"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["extender"]
    assert container["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    assert pod["serviceAccountName"] == "nodeagent-extender"


@needs_helm
@pytest.mark.parametrize(("replicas", "shares"), [(1, False), (2, True)])
def test_the_extenders_configuration_is_valid(tmp_path: Path, replicas: int, shares: bool) -> None:
    """With the agent's own words; several replicas share a Lease of the name that its role has."""
    words = ("--set", f"extender.replicas={replicas},config.extender.policy=spread,extender.tlsSecret=mine")
    objects = render_objects(*EXTENDER, *words)
    data = objects["ConfigMap", "nodeagent-extender"]["data"]
    file = tmp_path / "config.yaml"
    file.write_text(data["config.yaml"])
    settings = load_settings(file, environ={}).settings.extender
    assert (settings.listen.host, settings.listen.port, settings.policy) == ("", 3456, "spread")
    assert settings.leader_election == shares
    assert settings.lease_name in str(objects["Role", "nodeagent-extender"]["rules"])
    assert str(settings.web_config_file) == "/etc/nodeagent/web.yaml"
    assert "cert_file" in yaml.safe_load(data["web.yaml"])["tls_server_config"]


@needs_helm
@pytest.mark.parametrize(
    ("profiles", "names"),
    [
        ("tencent", {"tencent.com/vcuda-core": False, "tencent.com/vcuda-memory": False}),
        (
            "hami",
            {
                "nvidia.com/gpu": False,
                "nvidia.com/gpumem": True,
                "nvidia.com/gpumem-percentage": True,
                "nvidia.com/gpucores": True,
            },
        ),
    ],
)
def test_a_scheduler_is_told_of_the_extender(profiles: str, names: dict[str, bool]) -> None:
    """As a snippet for the cluster's own, and whole for a second one; it leaves the sizes of shares alone."""
    objects = render_objects(*SCHEDULER, "--set", f"config.extender.profiles={{{profiles}}},extender.tlsSecret=mine")
    (snippet,) = yaml.safe_load(objects["ConfigMap", "nodeagent-extender"]["data"]["scheduler-extender.yaml"])
    configuration = yaml.safe_load(objects["ConfigMap", "nodeagent-scheduler"]["data"]["config.yaml"])
    assert configuration["extenders"] == [snippet]
    assert snippet["urlPrefix"] == "https://nodeagent-extender.nodeagent.svc:3456/scheduler"
    assert {each["name"]: each["ignoredByScheduler"] for each in snippet["managedResources"]} == names
    pod = objects["Deployment", "nodeagent-scheduler"]["spec"]["template"]["spec"]
    mounts = {each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert str(Path(snippet["tlsConfig"]["caFile"]).parent) in mounts


@needs_helm
def test_a_second_scheduler_wants_an_image() -> None:
    """Of the cluster's own version, which nobody here knows."""
    done = render_chart(*EXTENDER, "--set", "extender.scheduler.enabled=true")
    assert done.returncode != 0
    assert "extender.scheduler.image" in done.stderr
