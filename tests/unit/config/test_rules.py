"""What must hold between settings that are each fine alone."""

from pathlib import Path

import pytest

from nodeagent.model.labels import GPU_MODEL_LABEL
from tests.unit.config.helpers import load_text, problems_of

LONG = "/" + "d" * 95
MPS = "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"node: {{run_dir: {LONG}x}}", "node.run_dir: socket path '/"),
        (f"kubelet: {{device_plugins_dir: {LONG}}}", "kubelet.device_plugins_dir: socket path '/"),
        (f"kubelet: {{plugins_registry_dir: {LONG}}}", "kubelet.plugins_registry_dir: socket path '/"),
        (f"kubelet: {{pod_resources_socket: {LONG}/{'s' * 11}}}", "kubelet.pod_resources_socket: socket path '/"),
        (
            f"signals: {{nvsentinel: {{socket: {LONG}/{'s' * 11}}}}}",
            "signals.nvsentinel.socket: socket path '/",
        ),
        *(
            (
                f"signals: {{node_conditions: [{{type: {kind}, true_means: healthy}}]}}",
                f"signals.node_conditions[0].type: {kind} is a condition of the kubelet or of the cloud; give a type",
            )
            for kind in ("Ready", "MemoryPressure", "NetworkUnavailable")
        ),
        *(
            (
                f"signals: {{node_conditions: [{{type: {kind}, true_means: faulty}}]}}",
                f"signals.node_conditions[0].type: the agent keeps {kind} itself, in a meaning of its own; give",
            )
            for kind in ("nvidia.com/GPUReady", "devices.nodeagent.io/cards", "nodeagent.io/GPUFault")
        ),
        (
            "repairs: {drain: {wait_seconds: 60, deadline_seconds: 60}}",
            "repairs.drain.wait_seconds: after 60 s the deadline of 60 s is over, and no pod would be asked to leave",
        ),
        (
            "{repairs: {drain: {after_deadline: delete_where_dead}}, kubernetes: {delete_refused_pods: [failed]}}",
            "repairs.drain.after_deadline: with kubernetes.delete_refused_pods a policy lets the agent delete no pod",
        ),
        (f"fractions: {{usage_socket: {LONG}/{'s' * 11}}}", "fractions.usage_socket: socket path '/"),
        (f"claims: {{enabled: true, plugins_dir: {LONG[:85]}}}", "claims.plugins_dir: socket path '/"),
        (f"claims: {{enabled: true, registry_dir: {LONG[:90]}}}", "claims.registry_dir: socket path '/"),
        (
            f"claims: {{enabled: true, registry_dir: {LONG[:60]}, instance: {'i' * 36}}}",
            "claims.registry_dir: socket path '/",
        ),
        (
            "{claims: {enabled: true}, cdi: {enabled: false}}",
            "claims.enabled: containers are told their devices by CDI",
        ),
        (
            "{fractions: {enabled: true}, cdi: {enabled: false}}",
            "fractions.enabled: containers are told their parts by CDI",
        ),
        ("claims: {mig_on_demand: true}", "claims.mig_on_demand: the agent cuts GPUs only where it may"),
        *(
            (f"labels: {{static: {{{key}: a}}}}", f"labels.static.{key}: the agent finds the values of such labels")
            for key in ("nvidia.com/team", "feature.node.kubernetes.io/x", "devices.nodeagent.io/kvm", GPU_MODEL_LABEL)
        ),
        (
            "supervisor: {restart_min_seconds: 90}",
            "supervisor.restart_min_seconds: 90 exceeds restart_max_seconds, 60; lower it",
        ),
        (
            "{containers: {extra_devices: [/dev/fuse]}, cdi: {enabled: false}}",
            "containers.extra_devices: containers are told of it by CDI specifications; set cdi.enabled: true too",
        ),
        (
            "{containers: {extra_environment: {A: b}}, cdi: {enabled: false}}",
            "containers.extra_environment: containers are told of it by CDI",
        ),
        *(
            (
                f"containers: {{extra_environment: {{{name}: a}}}}",
                f"containers.extra_environment.{name}: the agent sets this variable itself in containers with GPUs",
            )
            for name in (
                "NVIDIA_VISIBLE_DEVICES",
                "TRITON_LIBCUDA_PATH",
                "CUDA_MPS_PIPE_DIRECTORY",
                "NODEAGENT_SIMULATED_0",
            )
        ),
        (
            "containers: {extra_devices: [/dev/null, /dev/nvidia0]}",
            "containers.extra_devices[1]: /dev/nvidia0 is given to containers together with their GPUs; take it out",
        ),
        (
            "containers: {extra_devices: [{host: /dev/null, container: /dev/dri/card0}]}",
            "containers.extra_devices[0]: /dev/dri/card0 in containers is for the nodes of their GPUs",
        ),
        (
            "containers: {extra_devices: [/dev/null, {host: /dev/zero, container: /dev/null}]}",
            "containers.extra_devices[1]: /dev/null is the path of two devices in containers; give each its own",
        ),
        ("shutdown: {drain_seconds: 20}", "shutdown.drain_seconds: 20 exceeds total_seconds, 18; lower it"),
        ("inventory: {sample_seconds: 61}", "metrics.stale_after_seconds: 60 is shorter than inventory.sample_seconds"),
        ("device_plugin: {default_config: a}", "device_plugin.default_config: there are no named configurations"),
        (f"{{{MPS}, device_plugin: {{mig_strategy: mixed}}}}", "sharing.mps: MPS and MIG strategy mixed exclude"),
        (
            f"{{{MPS}, driver: {{cuda_smoke_test: true}}}}",
            "driver.cuda_smoke_test: it fails on GPUs that are in exclusive",
        ),
        (f"{{{MPS}, device_plugin: {{mps_root: {LONG[:50]}}}}}", "device_plugin.mps_root: socket path '/"),
        (
            f"{{fractions: {{enabled: true, enforcement: mps}}, device_plugin: {{mps_root: {LONG[:50]}}}}}",
            "device_plugin.mps_root: socket path",
        ),
        (
            "{fractions: {enabled: true, enforcement: mps}, driver: {cuda_smoke_test: true}}",
            "driver.cuda_smoke_test: it fails on GPUs",
        ),
        ("{fractions: {enforcement: mps}, claims: {shares: true}}", "fractions.enforcement: claims that share a GPU"),
        (f"{{mps: {{claims: true}}, device_plugin: {{mps_root: {LONG[:50]}}}}}", "device_plugin.mps_root: socket path"),
        (
            f"{{{MPS}, mps: {{daemon_per: resource}}, device_plugin: {{mps_root: {LONG[:70]}}}}}",
            "device_plugin.mps_root: socket path '/",
        ),
        ("{driver: {upgrade: observe}}", "driver.wanted_version: there is nothing to upgrade to; give a version"),
        (
            "{driver: {upgrade: act, wanted_version: 580.105.08, installed_by: command}}",
            "driver.upgrade_command: driver.installed_by: command has no command to run",
        ),
        (
            "{driver: {upgrade: act, wanted_version: installed, installed_by: container}}",
            "driver.wanted_version: a driver's container brings its version with it",
        ),
        ("{repairs: {reboot_by: command}}", "repairs.reboot_command: repairs.reboot_by: command has no command to run"),
        ("{runtime: {shim: true}, cdi: {enabled: false}}", "runtime.shim: what it looks up is made with the CDI"),
        ("resources: {gpus: [{pattern: a, name: b.c/d}]}", "resources.gpus[0].name: domain 'b.c' is not offered"),
    ],
)
def test_breach_is_named_at_the_setting_to_change(tmp_path: Path, text: str, expected: str) -> None:
    """One line with the line that was written, or the default where nothing was."""
    (line,) = problems_of(tmp_path, text)
    origin, _, rest = line.partition(": ")
    assert origin in {"config.yaml:1", "default"}
    assert rest.startswith(expected)


@pytest.mark.parametrize(
    "text",
    [
        f"node: {{run_dir: {LONG}}}",
        f"kubelet: {{pod_resources_socket: {LONG}/{'s' * 10}}}",
        f"fractions: {{usage_socket: {LONG}/{'s' * 10}}}",
        "device_plugin: {default_config: a, config_dir: /}",
        f"claims: {{plugins_dir: {LONG}}}",
        "{claims: {mig_on_demand: true}, mig: {manage: true}}",
        f"device_plugin: {{mps_root: {LONG}}}",
        "device_plugin: {resource_prefix: b.c}\nresources: {mig: [{pattern: a, name: b.c/d}]}",
    ],
)
def test_limits_themselves_are_allowed(tmp_path: Path, text: str) -> None:
    """A path of exactly 107 bytes is a socket path; a domain that is offered may be named."""
    load_text(tmp_path, text)


def test_longer_resource_names_need_shorter_directories(tmp_path: Path) -> None:
    """With a resource for each MIG profile the socket names are longer."""
    directory = f"kubelet: {{device_plugins_dir: {LONG[:90]}}}\n"
    load_text(tmp_path, directory)
    assert len(problems_of(tmp_path, f"{directory}device_plugin: {{mig_strategy: mixed}}")) == 1


def test_rule_over_a_refused_value_is_not_judged(tmp_path: Path) -> None:
    """A complaint that only follows from another is not made."""
    (line,) = problems_of(tmp_path, "shutdown: {drain_seconds: 20, total_seconds: long}")
    assert "shutdown.total_seconds: value 'long' is refused" in line
    lines = problems_of(tmp_path, "resources: {gpus: [{pattern: a, name: b.c/d}], mig: 5}")
    assert len(lines) == 1
    assert len(problems_of(tmp_path, "node: 5\nshutdown: {drain_seconds: 20}")) == 2


def test_a_type_with_two_meanings_is_named_at_each_place(tmp_path: Path) -> None:
    """With the file, the key, the value and what to do; the same meaning twice is no better."""
    entries = "{type: A, true_means: healthy}, {type: B, true_means: healthy}, {type: A, true_means: %s%s}"
    text = f"signals: {{node_conditions: [{entries}]}}"
    message = "A is there 2 times, and a condition has one status; leave one of them"
    for second in (("faulty", ""), ("healthy", ", severity: warn")):
        assert problems_of(tmp_path, text % second) == [
            f"config.yaml:1: signals.node_conditions[{index}].type: {message}" for index in (0, 2)
        ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("{type: A}", "signals.node_conditions[0].true_means"),
        ("{true_means: healthy}", "signals.node_conditions[0].type"),
        ("{type: A, true_means: good}", "value 'good' is refused; give healthy or faulty"),
        ("{type: 'a b', true_means: healthy}", "value 'a b' is refused; give the type of a node condition such as"),
        ("{type: A, true_means: healthy, severity: user}", "value 'user' is refused; give critical or warn"),
    ],
)
def test_a_condition_needs_a_type_and_what_true_means(tmp_path: Path, entry: str, expected: str) -> None:
    """Neither has a default, as programs act on both."""
    (problem,) = problems_of(tmp_path, f"signals: {{node_conditions: [{entry}]}}")
    assert expected in problem
