"""The scheduler's extender as the chart installs it."""

from pathlib import Path

import pytest
import yaml

from nodeagent.config.load import load_settings
from tests.deploy.chart import needs_helm, read_objects, render_objects
from tests.deploy.helm import ROOT, render_chart

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")
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
