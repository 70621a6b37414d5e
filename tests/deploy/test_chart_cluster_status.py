"""The published readiness of the cluster as the chart installs it."""

from pathlib import Path

import pytest

from nodeagent.cli.commands import ROOT as COMMANDS
from nodeagent.cli.frame.parser import build_parser
from nodeagent.edge.kube.readiness.cluster import FIELD_MANAGER
from nodeagent.model.readiness import AGENT_LABEL, AGENT_NAME, CLUSTER_CONDITION
from nodeagent.rules.cluster_readiness import UNWATCHED
from tests.deploy.chart import needs_helm, read_objects, render_objects, say_notes
from tests.deploy.helm import ROOT

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")
ENABLED = ("--set", "clusterStatus.enabled=true")
NAME = "nodeagent-cluster-status"


@needs_helm
def test_the_condition_is_published_when_asked_for_with_the_reviewed_rights() -> None:
    """By one pod without any right on its host, under an account of its own."""
    assert not {name for _, name in render_objects() if "cluster-status" in name}
    objects = render_objects(*ENABLED)
    reviewed = read_objects((ROOT / "deploy/rbac-cluster-status.yaml").read_text())
    assert {key: objects.get(key) for key in reviewed} == reviewed
    assert objects.keys() - render_objects().keys() - reviewed.keys() == {("Deployment", NAME)}
    deployment = objects["Deployment", NAME]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    assert (pod["serviceAccountName"], "priorityClassName" in pod) == (NAME, False)
    parsed = build_parser(COMMANDS, container["args"]).parse_args(container["args"])
    assert parsed.chosen.runs == "nodeagent.cli.cluster.publish:run"


@needs_helm
def test_what_the_program_reads_and_writes_is_what_the_chart_names() -> None:
    """The DaemonSet's name and label, the condition in the policy, and the name of the Deployment in a message."""
    objects = render_objects(*ENABLED)
    metadata = objects["DaemonSet", AGENT_NAME]["metadata"]
    labels = objects["DaemonSet", AGENT_NAME]["spec"]["template"]["metadata"]["labels"]
    assert metadata["labels"][AGENT_LABEL] == labels[AGENT_LABEL] == AGENT_NAME
    assert objects["Deployment", NAME]["metadata"]["labels"][AGENT_LABEL] != AGENT_NAME
    (written,) = (each for each in objects["Role", NAME]["rules"] if "patch" in each["verbs"])
    assert (written["resources"], written["resourceNames"]) == (["daemonsets/status"], [AGENT_NAME])
    policy = objects["ValidatingAdmissionPolicy", NAME]["spec"]
    assert f'"{CLUSTER_CONDITION}"' in policy["validations"][-1]["expression"]
    assert NAME in UNWATCHED.message
    assert FIELD_MANAGER == NAME


@needs_helm
def test_a_changed_configuration_starts_the_program_anew() -> None:
    """It reads the agents' own, which says whether agents keep conditions."""
    words = "config.kubernetes.node_condition=false"
    annotations = [
        rendered["Deployment", NAME]["spec"]["template"]["metadata"]["annotations"]["nodeagent/config"]
        for rendered in (render_objects(*ENABLED), render_objects(*ENABLED, "--set", words))
    ]
    assert annotations[0] != annotations[1]


@needs_helm
def test_leaving_ends_the_program_and_keeps_its_rights() -> None:
    """Its last word, that nobody watches, needs the right to write."""
    objects = render_objects(*ENABLED, "--set", "uninstall=true")
    assert ("Deployment", NAME) not in objects
    assert ("Role", NAME) in objects


@needs_helm
def test_whoever_installs_is_told_how_to_wait(tmp_path: Path) -> None:
    """As soon as there is a condition to wait for."""
    line = f"kubectl --namespace nodeagent wait daemonset/nodeagent --for=condition={CLUSTER_CONDITION} --timeout=10m"
    assert line in say_notes(tmp_path, [], *ENABLED)
    assert "kubectl --namespace nodeagent wait" not in say_notes(tmp_path, [])
