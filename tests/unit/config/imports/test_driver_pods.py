"""The GPU Operator's driver pods become values of the chart, key by key, and no key is lost without its reason."""

import pytest
import yaml

from nodeagent.config.imports.engine import NO_COUNTERPART
from nodeagent.config.imports.recognise import import_text
from nodeagent.config.imports.render import check_file, list_values, render_file, render_values
from tests.support.repairs import NEW

PROBE = {
    "failureThreshold": 1,
    "initialDelaySeconds": 2,
    "periodSeconds": 3,
    "successThreshold": 1,
    "timeoutSeconds": 4,
}
IMAGE = {"repository": "r", "image": "i", "version": "1", "imagePullPolicy": "Always", "imagePullSecrets": ["s"]}
POD = {
    **IMAGE,
    "args": ["--max-threads=4"],
    "env": [{"name": "A", "value": "b"}],
    "kernelModuleType": "open",
    "usePrecompiled": True,
    "useOpenKernelModules": True,
    "rdma": {"enabled": True, "useHostMofed": True},
    "manager": {**IMAGE, "env": [{"name": "C", "value": "d"}]},
    "startupProbe": PROBE,
    "livenessProbe": PROBE,
    "readinessProbe": PROBE,
    "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}},
    "secretEnv": "proxy",
    "hostNetwork": True,
    "certConfig": {"name": "c"},
    "kernelModuleConfig": {"name": "c"},
}
"""Every key of both kinds of documents, in the form of their definitions."""
UPGRADES = {
    "autoUpgrade": True,
    "maxParallelUpgrades": 1,
    "maxUnavailable": "25%",
    "drain": {"enable": True, "force": True, "podSelector": "a", "timeoutSeconds": 1, "deleteEmptyDir": True},
    "podDeletion": {"force": True, "timeoutSeconds": 1, "deleteEmptyDir": True},
    "gpuPodDeletion": {"force": True, "timeoutSeconds": 1, "deleteEmptyDir": True},
    "waitForCompletion": {"podSelector": "a", "timeoutSeconds": 1},
}
POLICY = {
    **POD,
    "enabled": True,
    "useNvidiaDriverCRD": True,
    "repoConfig": {"configMapName": "c"},
    "licensingConfig": {"configMapName": "c", "secretName": "s", "nlsEnabled": True},
    "virtualTopology": {"config": "c"},
    "upgradePolicy": UPGRADES,
}
OBJECT = {
    **POD,
    "default": True,
    "driverType": "vgpu",
    "repoConfig": {"name": "c"},
    "licensingConfig": {"name": "c", "secretName": "s", "nlsEnabled": True},
    "virtualTopologyConfig": {"name": "c"},
    "gds": {**IMAGE, "enabled": True, "args": ["a"], "env": [{"name": "E", "value": "f"}]},
    "gdrcopy": {**IMAGE, "enabled": True, "args": ["a"], "env": [{"name": "E", "value": "f"}]},
    "nodeSelector": {"pool": "a"},
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": []}]}},
    "labels": {"team": "x"},
    "annotations": {"note": "y"},
    "tolerations": [{"operator": "Exists"}],
    "priorityClassName": "high",
    "podSecurityContext": {"runAsUser": 0},
}
VALUES = {
    "repository": "r",
    "image": "i",
    "version": "1",
    "pullPolicy": "Always",
    "imagePullSecrets": [{"name": "s"}],
    "args": ["--max-threads=4"],
    "env": [{"name": "A", "value": "b"}],
    "kernelModuleType": "open",
    "usePrecompiled": True,
    "rdma": {"enabled": True, "useHostMofed": True},
    "startupProbe": {"initialDelaySeconds": 2, "periodSeconds": 3, "timeoutSeconds": 4, "failureThreshold": 1},
    "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}},
    "secretEnv": "proxy",
    "hostNetwork": True,
}


def policy(section: dict[str, object]) -> str:
    return yaml.safe_dump({"kind": "ClusterPolicy", "spec": {"driver": section}})


def driver(spec: dict[str, object], name: str = "h100.pool") -> str:
    return yaml.safe_dump({"kind": "NVIDIADriver", "metadata": {"name": name}, "spec": spec})


def test_every_key_of_a_cluster_policy_is_a_value_or_has_a_reason() -> None:
    imported = import_text("policy", policy(POLICY))
    slots = {"slots": {"domains": [{"label": "cluster", "slots": 1}]}}
    assert list_values(imported) == {"driver": {"enabled": True, **VALUES}, "repairs": slots}
    notes = "\n".join(imported.notes)
    assert NO_COUNTERPART not in notes
    for left_out in POLICY.keys() - VALUES.keys() - {"enabled", "imagePullPolicy"}:
        assert f"driver.{left_out}" in notes
    for left_out in UPGRADES.keys() - {"maxParallelUpgrades"}:
        assert f"driver.upgradePolicy.{left_out}" in notes
    for reason in ("/etc/apt/sources.list.d", "/drivers/nvidia.conf", "import them too", "docs/driver.md"):
        assert reason in notes


def test_every_key_of_a_driver_object_is_a_value_of_a_group_or_has_a_reason() -> None:
    imported = import_text("driver", driver(OBJECT))
    (group,) = imported.groups
    assert group == {
        "name": "h100-pool",
        "nodeSelector": {"pool": "a"},
        **VALUES,
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "high",
        "podLabels": {"team": "x"},
        "podAnnotations": {"note": "y"},
    }
    notes = "\n".join(imported.notes)
    assert NO_COUNTERPART not in notes
    kept = {"imagePullPolicy", "labels", "annotations"}
    for left_out in OBJECT.keys() - group.keys() - kept:
        assert left_out in notes
    assert "NVIDIADriver h100-pool, driverType: 'vgpu' is not understood: drivers of virtual GPUs" in notes


def test_several_objects_are_groups_beside_the_policy() -> None:
    """As kubectl lists them; an object without a selector has the nodes that the operator gives it."""
    documents = [policy({"enabled": True, "version": "580"}), driver({"driverType": "gpu"}, "all"), driver({}, "b")]
    imported = import_text("list", "---\n".join(documents))
    assert list_values(imported) == {
        "driver": {
            "enabled": True,
            "version": "580",
            "groups": [{"name": name, "nodeSelector": {"nvidia.com/gpu.present": "true"}} for name in ("all", "b")],
        }
    }


def test_automatic_upgrades_of_driver_pods_become_upgrades_by_the_agent() -> None:
    """To the version of the driver pods, and as many at once as there."""
    policies = {"upgradePolicy": {"autoUpgrade": True, "maxParallelUpgrades": 3}}
    imported = import_text("policy", policy({"enabled": True, "version": NEW, **policies}))
    upgrade = {"upgrade": "act", "wanted_version": NEW, "installed_by": "container"}
    assert yaml.safe_load(render_values(imported)) == {
        "driver": {"enabled": True, "version": NEW},
        "repairs": {"slots": {"domains": [{"label": "cluster", "slots": 3}]}},
        "config": {"driver": upgrade},
    }
    assert check_file(render_file(imported)).driver.upgrade == "act"


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ({"version": NEW}, "driver.enabled is not true"),
        ({"enabled": True, "version": "580"}, "driver.version is 580"),
        ({"enabled": True}, "driver.version is empty"),
        ({"enabled": True, "version": NEW, "useNvidiaDriverCRD": True}, "may name several versions"),
    ],
)
def test_upgrades_stay_off_where_no_version_is_wanted_on_all_nodes(section: dict[str, object], why: str) -> None:
    imported = import_text("policy", policy({"upgradePolicy": {"autoUpgrade": True}, **section}))
    assert imported.settings == {}
    (note,) = [note for note in imported.notes if "autoUpgrade" in note]
    assert why in note


@pytest.mark.parametrize(
    ("limit", "values", "said"),
    [(0, {}, ""), (101, {}, "101 is not understood: repairs.slots has 1 to 100 slots in a domain")],
)
def test_upgrades_switched_off_stay_off_and_no_limit_is_no_slot(limit: int, values: object, said: str) -> None:
    section: dict[str, object] = {"autoUpgrade": False, "maxParallelUpgrades": limit}
    imported = import_text("policy", policy({"upgradePolicy": section}))
    assert (imported.settings, list_values(imported)) == ({"driver.upgrade": "off"}, values)
    assert said in "".join(imported.notes)


@pytest.mark.parametrize(("section", "told"), [({"enabled": True}, True), ({"enabled": False}, False), ({}, False)])
def test_the_system_of_the_nodes_is_asked_for_where_driver_pods_come(section: dict[str, object], told: bool) -> None:
    """The only value that no document of the operator has."""
    notes = import_text("policy", policy(section)).notes
    assert any(note.startswith("driver.os: ") for note in notes) is told


def test_values_have_the_settings_where_the_chart_has_them() -> None:
    text = yaml.safe_dump({"mig": {"strategy": "mixed"}, "driver": {"enabled": False}, "toolkit": {"nothing": 1}})
    rendered = render_values(import_text("values", text))
    assert rendered.startswith("# not imported: toolkit.nothing: ")
    assert yaml.safe_load(rendered) == {
        "driver": {"enabled": False},
        "config": {"device_plugin": {"mig_strategy": "mixed"}},
    }
