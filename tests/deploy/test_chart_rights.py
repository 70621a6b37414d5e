"""What the chart's pod may do to its host and to the cluster: as much as the configuration asks for."""

from pathlib import Path

import pytest

from nodeagent.model.slots import Domain
from tests.deploy.chart import Object, needs_helm, pod_of, read_manifest, read_objects, render_objects, settings_of
from tests.deploy.helm import ROOT, render_chart

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")


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
    "cdi.nvidia_name_dir=/usr/local/bin",
    "runtime.shim=true,config.shim.dir=/opt/shim",
    "runtime.shim=true,config.shim.nvidia_name_dir=/usr/local/bin",
]


@needs_helm
@pytest.mark.parametrize("setting", WRITES)
def test_the_host_can_be_written_to_only_where_the_configuration_asks_for_it(setting: str) -> None:
    """The container runtime's files and the hook program; judging and restarting a runtime takes the host's root."""
    (container,) = pod_of(render_objects("--set", f"gpuAccess=runtimeClass,config.{setting}"))["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_CHROOT"]}
    assert not host_mount_of(container)["readOnly"]
    (shipped,) = pod_of(read_manifest())["containers"]
    assert host_mount_of(shipped)["readOnly"]


@needs_helm
def test_gpus_can_be_cut_only_where_the_configuration_asks_for_it() -> None:
    """The right to it comes with `mig.manage`, and goes with it."""
    words = "gpuAccess=runtimeClass,config.mig.manage={}"
    for asked, added in (("true", {"add": ["SYS_ADMIN", "SYS_CHROOT"]}), ("false", {})):
        (container,) = pod_of(render_objects("--set", words.format(asked)))["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], **added}
        names = {each["name"] for each in container["env"]}
        assert ("NVIDIA_MIG_CONFIG_DEVICES" in names) is (asked == "true")


@needs_helm
@pytest.mark.parametrize("setting", ["hooks=ldcache", "hook_dir=/opt/hook,config.cdi.hooks=none"])
def test_the_hook_in_the_state_directory_needs_nothing_more(setting: str) -> None:
    (container,) = pod_of(render_objects("--set", f"gpuAccess=runtimeClass,config.cdi.{setting}"))["containers"]
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


MPS = [
    "mps.claims=true",
    "fractions.enabled=true,config.fractions.enforcement=mps",
    "sharing.mps.resources[0].name=gpu,config.sharing.mps.resources[0].replicas=2",
]


@needs_helm
@pytest.mark.parametrize("setting", MPS)
def test_daemons_of_mps_have_what_they_need(setting: str) -> None:
    """The host's processes, and a directory that means the same on the host, with what is mounted there if it can."""
    capabilities: list[object] = []
    for access, propagation in (("privileged", "Bidirectional"), ("runtimeClass", "None")):
        pod = pod_of(render_objects("--set", f"gpuAccess={access},config.{setting}"))
        (container,) = pod["containers"]
        assert pod["hostPID"] is True
        (mount,) = (each for each in container["volumeMounts"] if each["name"] == "mps")
        assert mount == {"name": "mps", "mountPath": "/run/nvidia/mps", "mountPropagation": propagation}
        (volume,) = (each for each in pod["volumes"] if each["name"] == "mps")
        assert volume["hostPath"] == {"path": "/run/nvidia/mps", "type": "DirectoryOrCreate"}
        capabilities.append(container["securityContext"].get("capabilities"))
    assert capabilities == [None, {"drop": ["ALL"], "add": ["SYS_ADMIN", "SYS_CHROOT"]}]


@needs_helm
def test_daemons_may_lie_elsewhere_and_nobody_else_gets_their_rights(tmp_path: Path) -> None:
    """The mount follows the configuration; a library that holds parts, or a part that is off, needs no daemon."""
    words = "config.mps.claims=true,config.device_plugin.mps_root=/run/mps"
    (container,) = pod_of(render_objects("--set", words))["containers"]
    assert "/run/mps" in {each["mountPath"] for each in container["volumeMounts"]}
    for other in (
        "enabled=true,config.fractions.enforcement=library",
        "enabled=false,config.fractions.enforcement=mps",
    ):
        objects = render_objects("--set", f"config.fractions.{other}")
        pod = pod_of(objects)
        assert pod["hostPID"] is settings_of(objects, tmp_path).uses_mps is False
        assert "mps" not in {each["name"] for each in pod["volumes"]}


@needs_helm
def test_markers_reach_the_host_when_they_are_asked_for() -> None:
    """Operands of NVIDIA's operator look on the host; by default nobody writes there."""
    pod = pod_of(render_objects("--set", "config.driver.validation_markers=true"))
    (volume,) = (each for each in pod["volumes"] if each["name"] == "markers")
    assert volume["hostPath"]["path"] == "/run/nvidia/validations"
    assert {"name": "markers", "mountPath": "/run/nvidia/validations"} in pod["containers"][0]["volumeMounts"]
    assert "markers" not in {each["name"] for each in pod_of(read_manifest())["volumes"]}


@needs_helm
@needs_helm
@pytest.mark.parametrize("setting", ["metrics.pod_labels", "fractions.enabled"])
def test_pods_may_be_read_only_where_a_setting_needs_it(setting: str) -> None:
    """The right to follow pods comes with the setting that needs it, and is the reviewed one."""
    name = ("ClusterRole", "nodeagent-pod-labels")
    assert name not in render_objects()
    added = render_objects("--set", f"config.{setting}=true")
    reviewed = read_objects((ROOT / "deploy/rbac-pod-labels.yaml").read_text())
    assert {key: added.get(key) for key in reviewed} == reviewed


@needs_helm
def test_pods_may_be_written_on_only_where_parts_are_given() -> None:
    """With the policy that holds the agent to its own node's pods and to some annotations."""
    reviewed = read_objects((ROOT / "deploy/rbac-fractions.yaml").read_text())
    assert not reviewed.keys() & render_objects().keys()
    added = render_objects("--set", "config.fractions.enabled=true")
    assert {key: added.get(key) for key in reviewed} == reviewed


@needs_helm
def test_pods_may_be_deleted_only_where_the_configuration_asks_for_it() -> None:
    """With the policy that holds the agent to refused pods of its own node; an empty list asks for nothing."""
    reviewed = read_objects((ROOT / "deploy/rbac-refused-pods.yaml").read_text())
    assert not reviewed.keys() & render_objects().keys()
    assert not reviewed.keys() & render_objects("--set-json", "config.kubernetes.delete_refused_pods=[]").keys()
    added = render_objects("--set", "config.kubernetes.delete_refused_pods={failed,pending}")
    assert {key: added.get(key) for key in reviewed} == reviewed
    with_rights = [
        name
        for (kind, name), each in added.items()
        if kind in {"Role", "ClusterRole"}
        and any("pods" in rule["resources"] and {"delete", "*"} & {*rule["verbs"]} for rule in each["rules"])
    ]
    assert with_rights == ["nodeagent-refused-pods"]


@needs_helm
def test_pods_may_be_made_only_where_pods_validate_the_node() -> None:
    """With the policies that hold the agent to one form of pod on its own node, of the image that the agent runs."""
    reviewed = read_objects((ROOT / "deploy/rbac-validation.yaml").read_text())
    assert not reviewed.keys() & render_objects().keys()
    added = render_objects("--set", "config.driver.workload_validation=true")
    assert {key: added.get(key) for key in reviewed} == reviewed
    makers = [
        name
        for (kind, name), each in added.items()
        if kind in {"Role", "ClusterRole"}
        and any("pods" in rule["resources"] and {"create", "*"} & {*rule["verbs"]} for rule in each["rules"])
    ]
    assert makers == ["nodeagent-validation"]
    elsewhere = render_objects("--set", "config.driver.workload_validation=true,image.repository=registry.example/a")
    (container,) = pod_of(elsewhere)["containers"]
    variables = elsewhere["ValidatingAdmissionPolicy", "nodeagent-validation"]["spec"]["variables"]
    assert {"name": "image", "expression": f'"{container["image"]}"'} in variables


@needs_helm
def test_the_status_of_pods_may_be_written_only_where_the_configuration_asks_for_it() -> None:
    """With the policy that holds the agent to one condition on pods of its own node."""
    reviewed = read_objects((ROOT / "deploy/rbac-pod-conditions.yaml").read_text())
    assert not reviewed.keys() & render_objects().keys()
    added = render_objects("--set", "config.signals.pod_condition=true")
    assert {key: added.get(key) for key in reviewed} == reviewed


@needs_helm
@pytest.mark.parametrize("setting", ["when_busy=evict", "pause_clients=true"])
def test_others_may_be_asked_to_make_way_only_where_a_setting_needs_it(setting: str) -> None:
    """With GPUs that are cut, and with the reviewed rights."""
    name = ("ClusterRole", "nodeagent-mig")
    assert name not in render_objects("--set", "config.mig.manage=true")
    assert name not in render_objects("--set", f"config.mig.{setting}")
    added = render_objects("--set", f"config.mig.manage=true,config.mig.{setting}")
    reviewed = read_objects((ROOT / "deploy/rbac-mig.yaml").read_text())
    assert {key: added.get(key) for key in reviewed} == reviewed


@needs_helm
def test_pods_leave_for_repairs_only_where_the_agent_repairs() -> None:
    """With the reviewed rights, and none of the rights in mode observe."""
    reviewed = read_objects((ROOT / "deploy/rbac-repairs.yaml").read_text())
    assert not reviewed.keys() & render_objects("--set", "config.repairs.mode=observe").keys()
    added = render_objects("--set", "config.repairs.mode=act")
    assert {key: added.get(key) for key in reviewed} == reviewed


RACK = '{"label":"example.com/rack","slots":2,"values":["r1","r2"]}'
SLOTS = ("--set-json", f'repairs.slots.domains=[{RACK},{{"label":"cluster","slots":1}}]')


@needs_helm
def test_slots_of_repairs_stand_before_and_are_all_that_agents_may_write(tmp_path: Path) -> None:
    """A Lease for each slot of each value, by the names that the agent asks for; none may be made."""
    assert ("Role", "nodeagent-repair-slots") not in render_objects()
    objects = render_objects("--set", "config.repairs.mode=act", *SLOTS)
    settings = settings_of(objects, tmp_path).repairs.slots
    assert settings.namespace == "nodeagent"
    first, last = settings.domains
    domains = [Domain(key=first.label, value=value, slots=first.slots) for value in ("r1", "r2")]
    wanted = [
        domain.name_slot(number)
        for domain in (*domains, Domain(key=last.label, value="", slots=last.slots))
        for number in range(domain.slots)
    ]
    assert [name for kind, name in objects if kind == "Lease"] == wanted
    labels = [each["metadata"]["labels"] for (kind, _), each in objects.items() if kind == "Lease"]
    assert [each["nodeagent.io/repair-slot"] for each in labels] == ["0", "1", "0", "1", "0"]
    assert [each["nodeagent.io/repair-domain"] for each in labels] == ["r1", "r1", "r2", "r2", "cluster"]
    (rule,) = objects["Role", "nodeagent-repair-slots"]["rules"]
    assert (rule["resources"], rule["resourceNames"], rule["verbs"]) == (["leases"], wanted, ["get", "patch"])


@needs_helm
@pytest.mark.parametrize(
    ("domain", "why"),
    [
        ('{"label":"cluster","slots":1,"values":["x"]}', "leave its values out"),
        ('{"label":"rack","slots":1}', "list the values of the label rack"),
        ('{"label":"rack","slots":0,"values":["x"]}', "slots"),
    ],
)
def test_a_domain_that_no_lease_can_stand_for_is_refused(domain: str, why: str) -> None:
    done = render_chart("--set-json", f"repairs.slots.domains=[{domain}]")
    assert done.returncode != 0
    assert why in done.stderr


@needs_helm
def test_claims_are_answered_only_where_pods_wait_for_a_proof() -> None:
    """With the reviewed rights; a driver of another name has its own devices alone."""
    reviewed = read_objects((ROOT / "deploy/rbac-proof.yaml").read_text())
    assert not reviewed.keys() & render_objects("--set", "config.proof.idle=quick").keys()
    asked = "config.claims.enabled=true,config.proof.before_binding=quick"
    added = render_objects("--set", asked)
    assert {key: added.get(key) for key in reviewed} == reviewed
    other = render_objects("--set", f"{asked},config.claims.driver=gpu.example.com")
    assert "gpu.nvidia.com" not in str(other["ClusterRole", "nodeagent-proof"])


@needs_helm
def test_an_upgrade_of_the_driver_has_both_rights_where_the_agent_acts() -> None:
    """To have pods leave, and to wait for those of paused DaemonSets."""
    names = ("deploy/rbac-mig.yaml", "deploy/rbac-repairs.yaml")
    reviewed = {key: each for name in names for key, each in read_objects((ROOT / name).read_text()).items()}
    wanted = "config.driver.wanted_version=580.105.08,config.driver.upgrade"
    assert not reviewed.keys() & render_objects("--set", f"{wanted}=observe").keys()
    added = render_objects("--set", f"{wanted}=act")
    assert {key: added.get(key) for key in reviewed} == reviewed


@needs_helm
def test_a_share_of_the_api_server_is_kept_for_agents_unless_it_is_not_wanted() -> None:
    """The reviewed file, with the release's account."""
    reviewed = read_objects((ROOT / "deploy/flow-control.yaml").read_text())
    assert {key: render_objects().get(key) for key in reviewed} == reviewed
    assert not reviewed.keys() & render_objects("--set", "flowControl=false").keys()


@needs_helm
def test_openshift_is_asked_for_the_constraints_that_the_pod_needs() -> None:
    """By a role that names them, which no other cluster would know."""
    name = ("Role", "nodeagent-openshift")
    assert name not in render_objects()
    objects = render_objects("--api-versions", "security.openshift.io/v1")
    (rule,) = objects[name]["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (["privileged"], ["use"])
    (subject,) = objects["RoleBinding", "nodeagent-openshift"]["subjects"]
    account = pod_of(objects)["serviceAccountName"]
    assert (subject["name"], subject["namespace"]) == (account, "nodeagent")


@needs_helm
@pytest.mark.parametrize("driver", ["gpu.nvidia.com", "gpu.example.com"])
def test_the_policy_of_slices_names_the_driver_of_the_configuration(driver: str) -> None:
    """An agent that serves claims under another driver's name would be refused its own slices."""
    objects = render_objects("--set", f"config.claims.enabled=true,config.claims.driver={driver}")
    text = str(objects["ValidatingAdmissionPolicy", "nodeagent-own-slices"])
    assert (f'driver == "{driver}"' in text, "gpu.nvidia.com" in text) == (True, driver == "gpu.nvidia.com")


POLICY = "nodeagent-claim-configurations"


@needs_helm
def test_claims_are_judged_when_they_are_made_only_where_the_cluster_wants_it() -> None:
    """As reviewed, whatever the release has of claims; a driver of another name has rules of that name."""
    reviewed = read_objects((ROOT / "deploy/claim-policy.yaml").read_text())
    assert not reviewed.keys() & render_objects("--set", "config.claims.enabled=true").keys()
    objects = render_objects("--set", "claimPolicy.enabled=true")
    assert {key: objects.get(key) for key in reviewed} == reviewed
    renamed = render_objects("--set", "claimPolicy.enabled=true,config.claims.driver=gpu.example.com")
    policy = renamed["ValidatingAdmissionPolicy", POLICY]
    assert "gpu.nvidia.com" not in str(policy)
    assert str(policy).count("gpu.example.com") == str(reviewed["ValidatingAdmissionPolicy", POLICY]).count(
        "gpu.nvidia.com"
    )


@needs_helm
def test_the_policy_has_the_configured_node_conditions_and_no_others() -> None:
    """To the letter; without a configured one the list is empty, as in the reviewed file."""
    configured = '[{"type":"AcceleratedHardwareReady","true_means":"healthy"},{"type":"x/B","true_means":"faulty"}]'
    objects = render_objects("--set-json", f"config.signals.node_conditions={configured}")
    assert find_variable(objects, "conditionTypes") == '["AcceleratedHardwareReady","x/B"]'
    assert find_variable(render_objects(), "conditionTypes") == "[]"


@needs_helm
def test_the_policy_has_the_annotation_that_requests_a_reboot_where_one_is_configured() -> None:
    by, key = "config.repairs.reboot_by=node_annotation", "config.repairs.reboot_annotation.key=x/reboot"
    keys = [find_variable(render_objects("--set", each), "annotationKeys") for each in (by, f"{by},{key}", key)]
    assert keys == ['["nodeagent.io/reboot-requested"]', '["x/reboot"]', "[]"]


def find_variable(objects: dict[tuple[str, str], Object], name: str) -> str:
    policy = objects["ValidatingAdmissionPolicy", "nodeagent-own-node"]
    (found,) = (each for each in policy["spec"]["variables"] if each["name"] == name)
    return str(found["expression"])


@needs_helm
@pytest.mark.parametrize(("socket", "folder"), [("", "/var/run/nvsentinel"), ("/run/x/y.sock", "/run/x")])
def test_the_folder_of_nvsentinels_socket_is_mounted_where_it_is_told(socket: str, folder: str) -> None:
    """By the same path as on the host, and only there."""
    words = "config.signals.nvsentinel.enabled=true" + (f",config.signals.nvsentinel.socket={socket}" if socket else "")
    pod = pod_of(render_objects("--set", words))
    (volume,) = (each for each in pod["volumes"] if each["name"] == "nvsentinel")
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "nvsentinel")
    assert (volume["hostPath"]["path"], mount["mountPath"]) == (folder, folder)
    assert "nvsentinel" not in {each["name"] for each in pod_of(render_objects())["volumes"]}
