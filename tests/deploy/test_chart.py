"""The chart and the manifests rendered from it: equal, minimal, and deaf to misspelt values."""

import json
from pathlib import Path

import pytest
import yaml

from nodeagent import __version__
from tests.deploy.chart import (
    Object,
    needs_helm,
    pod_of,
    read_manifest,
    read_objects,
    render_objects,
    say_notes,
    settings_of,
)
from tests.deploy.helm import CHART, MANIFEST, ROOT, render_chart, render_manifest, run_helm

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")


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
    assert others == {"Namespace", "ConfigMap", "DaemonSet", "FlowSchema", "PriorityLevelConfiguration"}


def read_pace(objects: dict[tuple[str, str], Object]) -> tuple[object, object]:
    """Surge and unavailable nodes of an update."""
    strategy = objects["DaemonSet", "nodeagent"]["spec"]["updateStrategy"]
    assert strategy["type"] == "RollingUpdate"
    return strategy["rollingUpdate"]["maxSurge"], strategy["rollingUpdate"]["maxUnavailable"]


def test_an_update_has_the_next_pod_ready_before_the_old_one_ends() -> None:
    """A standby, which is ready without what the old pod has."""
    assert read_pace(read_manifest()) == (1, 0)
    assert "--standby" in pod_of(read_manifest())["containers"][0]["args"]


@needs_helm
@pytest.mark.parametrize(
    ("values", "pace"),
    [
        ("maxSurge=5%", ("5%", 0)),
        ("maxUnavailable=10%", (0, "10%")),
        ("maxSurge=3,maxUnavailable=2", (0, 2)),
        ("uninstall=true", (0, "10%")),
        ("uninstall=true,maxUnavailable=1", (0, 1)),
    ],
)
def test_the_pace_of_an_update_is_one_that_an_api_server_takes(values: str, pace: tuple[object, object]) -> None:
    """Exactly one of both numbers is 0; what takes back an agent's work never comes beside an agent that works."""
    assert read_pace(render_objects("--set", values)) == pace


def test_liveness_asks_for_the_event_loop_and_nothing_else() -> None:
    """A lost GPU must not get the agent killed that reports it."""
    container = pod_of(read_manifest())["containers"][0]
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_every_host_directory_has_its_reason() -> None:
    """A mount of the host stands under a comment that says what for."""
    lines = (CHART / "templates/daemonset.yaml").read_text().splitlines()
    mounts = [number for number, line in enumerate(lines) if "hostPath:" in line]
    assert len(mounts) == 12
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
@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("gpuAcces=none", "gpuAcces"),
        ("image.tag=latest", "/image/tag"),
        ("gpuAccess=yes", "/gpuAccess"),
        ("maxUnavailable=fifty", "/maxUnavailable"),
        ("maxUnavailable=0%", "/maxUnavailable"),
        ("maxSurge=0", "/maxSurge"),
        ("podMonitor.intervall=15s", "intervall"),
        ("config.http=:9400", "/config/http"),
        ("uninstall=maybe", "/uninstall"),
        ("tolerations=all", "/tolerations"),
        ("gpuNodes=all", "/gpuNodes"),
        ("resources.request.memory=1Gi", "request"),
        ("nodeSelectors.gpu=yes", "nodeSelectors"),
        ("deviceClasses.extendedResourceName=gpu", "extendedResourceName"),
        ("clusterStatus.enable=true", "enable"),
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
    assert not {kind for kind, _ in render_objects() if kind in {"PodMonitor", "PrometheusRule"}}
    objects = render_objects("--set", "podMonitor.enabled=true,prometheusRule.enabled=true")
    rules = yaml.safe_load((ROOT / "deploy/alerts/nodeagent-rules.yaml").read_text())
    assert objects["PrometheusRule", "nodeagent"]["spec"] == rules
    monitor = yaml.safe_load((ROOT / "deploy/prometheus/podmonitor.yaml").read_text())
    assert objects["PodMonitor", "nodeagent"]["spec"] == monitor["spec"]


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
    """As the guides say, and nothing else has a say then."""
    pod = pod_of(render_objects("--set-string", "nodeSelector.nodeagent=true"))
    assert "affinity" not in pod
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "nodeagent": "true"}


def list_required(pod: Object) -> list[str]:
    """Labels of which a node needs one."""
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = required["nodeSelectorTerms"]
    expressions = [expression for term in terms for expression in term["matchExpressions"]]
    assert all((each["operator"], each["values"]) == ("In", ["true"]) for each in expressions)
    return [each["key"] for each in expressions]


def test_a_cluster_without_labels_gets_its_agents() -> None:
    """No label decides by default: the agent itself sees whether its node has GPUs, and waits where it has none."""
    pod = pod_of(read_manifest())
    assert "affinity" not in pod
    assert "--await-gpu" in pod["containers"][0]["args"]


@needs_helm
def test_labels_decide_where_they_are_asked_for() -> None:
    """A node that somebody has labelled has an agent that tells of missing GPUs instead of waiting for some."""
    pod = pod_of(render_objects("--set", "gpuNodes=labels"))
    assert list_required(pod) == list_labels()
    assert "--await-gpu" not in pod["containers"][0]["args"]
    # No node without NVIDIA's runtime starts a pod of its class, so the roll-out would never end there.
    assert list_required(pod_of(render_objects("--set", "gpuAccess=runtimeClass"))) == list_labels()


@needs_helm
def test_an_affinity_of_ones_own_outranks_the_labels() -> None:
    """One affinity, in one place, whatever else is chosen."""
    own = '{"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack"}]}}'
    for choice in ("auto", "labels"):
        pod = pod_of(render_objects("--set", f"gpuNodes={choice}", "--set-json", f"affinity={own}"))
        assert pod["affinity"] == json.loads(own)


BY_LABELS = ("--set", "gpuNodes=labels")


def list_labels() -> list[str]:
    """The labels by which nodes are known to have GPUs."""
    return ["feature.node.kubernetes.io/pci-10de.present", "nvidia.com/gpu.present"]


@needs_helm
def test_an_installation_that_no_node_fits_says_so(tmp_path: Path) -> None:
    """Zero pods count as rolled out: whoever installs is told at once, and with what to do."""
    said = say_notes(tmp_path, [{}, dict.fromkeys(list_labels(), "false")], *BY_LABELS)
    assert "NO AGENT RUNS YET: none of the 2 nodes" in said
    assert "kubectl label node NODE nvidia.com/gpu.present=true" in said
    assert "rollout status" not in said
    for key in list_labels():
        assert key in said
        found = say_notes(tmp_path, [{}, {}, {key: "true"}], *BY_LABELS)
        assert "An agent runs on 1 of 3 nodes" in found
        assert "rollout status daemonset/nodeagent" in found


@needs_helm
def test_helm_does_not_count_nodes_that_it_has_not_seen_or_does_not_choose(tmp_path: Path) -> None:
    """A rehearsal sees no cluster, agents that see for themselves need no label, and who leaves needs another word."""
    unseen = say_notes(tmp_path, [], *BY_LABELS)
    assert all(f"{key}=true" in unseen for key in list_labels())
    by_itself = say_notes(tmp_path, [{}])
    assert "NO AGENT" not in by_itself
    assert "Where a node has no NVIDIA GPU, it waits for one" in by_itself
    assert "rollout status daemonset/nodeagent" in by_itself
    leaving = say_notes(tmp_path, [{}], "--set", "uninstall=true")
    assert "helm uninstall nodeagent --namespace nodeagent --wait" in leaving


CLAIMS = ("--set", "config.claims.enabled=true")


@needs_helm
def test_claims_bring_their_rights_classes_and_directories(tmp_path: Path) -> None:
    """All as reviewed, and none of it without them; the kubelet's own places are followed."""
    reviewed = {
        key: one
        for name in ("rbac-claims", "deviceclasses")
        for key, one in read_objects((ROOT / f"deploy/{name}.yaml").read_text()).items()
    }
    assert not reviewed.keys() & render_objects().keys()
    objects = render_objects(*CLAIMS, "--set", "kubeletRoot=/data/kubelet")
    assert {key: objects.get(key) for key in reviewed} == reviewed
    paths = {volume["hostPath"]["path"] for volume in pod_of(objects)["volumes"] if "hostPath" in volume}
    wanted = {"/data/kubelet/plugins/gpu.nvidia.com", "/data/kubelet/plugins_registry"}
    assert wanted <= paths
    assert wanted <= {mount["mountPath"] for mount in pod_of(objects)["containers"][0]["volumeMounts"]}
    claims = settings_of(objects, tmp_path).claims
    assert (str(claims.plugins_dir), str(claims.registry_dir)) == (
        "/data/kubelet/plugins",
        "/data/kubelet/plugins_registry",
    )


@needs_helm
def test_classes_follow_the_names_that_are_configured() -> None:
    """A driver of another name has selectors of that name; who asks in the old way is served where that is wanted."""
    words = (
        "config.claims.driver=gpu.example.com,deviceClasses.gpu=a-gpu,deviceClasses.extendedResourceName=nvidia.com/gpu"
    )
    objects = render_objects(*CLAIMS, "--set", words)
    spec = objects["DeviceClass", "a-gpu"]["spec"]
    assert spec["extendedResourceName"] == "nvidia.com/gpu"
    (selector,) = spec["selectors"]
    assert "device.attributes['gpu.example.com'].type == 'gpu'" in selector["cel"]["expression"]
    assert "extendedResourceName" not in objects["DeviceClass", "mig.nvidia.com"]["spec"]
    without = render_objects(*CLAIMS, "--set", "deviceClasses.create=false")
    assert not [key for key in without if key[0] == "DeviceClass"]


def test_the_policy_knows_the_labels_of_the_configuration() -> None:
    """Each by its whole key; without any there is none."""

    def find_keys(*words: str) -> str:
        variables = render_objects(*words)["ValidatingAdmissionPolicy", "nodeagent-own-node"]["spec"]["variables"]
        (found,) = [each["expression"] for each in variables if each["name"] == "labelKeys"]
        return str(found)

    labels = '{"static": {"b.example/x": "1", "a": ""}, "compatibility": ["gpu_manager"]}'
    assert find_keys() == "[]"
    assert find_keys("--set-json", f"config.labels={labels}") == '["a","b.example/x","gaia.tencent.com/gpu-model"]'
