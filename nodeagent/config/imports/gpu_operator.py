"""NVIDIA's GPU Operator: a ClusterPolicy's specification, and the values of the chart, with the same keys."""

from collections.abc import Mapping
from typing import Final

from nodeagent.config.imports import dcgm_exporter, device_plugin, driver_pods, feature_discovery
from nodeagent.config.imports.engine import (
    IN_OUR_CHART,
    Imported,
    Tables,
    Target,
    prefix,
    read_flag,
    read_items,
    read_set_flag,
    translate,
)
from nodeagent.config.nvidia import NOT_NEEDED

_OPERATOR: Final = "there is no operator"
_IMAGE: Final = "there is one image, set in deploy/chart/values.yaml"
_MIG: Final = (
    "mig.manage does it, on nodes from which the MIG manager was taken: docs/migration/mig-parted.md; keep it elsewhere"
)
_SANDBOX: Final = "the agent serves containers, not virtual machines"


def _read_sinks(value: object) -> list[str]:
    """The sinks: labels go to the node, or nowhere."""
    return ["node"] if read_flag(value) else []


TABLES: Final = Tables(
    targets={
        "hostPaths.kubeletRootDir": Target("kubelet.root_dir"),
        "cdi.enabled": Target("cdi.enabled", read_flag),
        **driver_pods.POLICY_TARGETS,
        "toolkit.enabled": Target("runtime.manage", read_flag),
        "toolkit.env.CONTAINERD_CONFIG": Target("runtime.config_file"),
        "toolkit.env.CONTAINERD_SOCKET": Target("runtime.socket"),
        "toolkit.env.RUNTIME_CONFIG": Target("runtime.config_file"),
        "toolkit.env.RUNTIME_SOCKET": Target("runtime.socket"),
        "devicePlugin.enabled": Target("device_plugin.enabled", read_flag),
        "devicePlugin.mps.root": Target("device_plugin.mps_root"),
        **prefix("devicePlugin.env", device_plugin.VARIABLES),
        **prefix("devicePlugin.args", device_plugin.OPTIONS),
        "gfd.enabled": Target("labels.sinks", _read_sinks),
        "gfd.migStrategy": feature_discovery.OPTIONS["mig-strategy"],
        **prefix("gfd.env", feature_discovery.VARIABLES),
        **prefix("gfd.args", feature_discovery.OPTIONS),
        "mig.strategy": Target("device_plugin.mig_strategy"),
        "gds.enabled": Target("device_plugin.gds", read_set_flag, also=("device_plugin.mofed",)),
        "gdrcopy.enabled": Target("device_plugin.gdrcopy", read_flag),
        "dcgmExporter.enablePodLabels": Target("metrics.pod_labels", read_flag),
        "dcgmExporter.enablePodUID": Target("metrics.pod_uid", read_flag),
        "dcgmExporter.podLabelAllowlistRegex": Target("metrics.pod_label_allowlist", read_items),
        **prefix("dcgmExporter.env", dcgm_exporter.VARIABLES),
        **prefix("dcgmExporter.args", dcgm_exporter.OPTIONS),
    },
    # The operator writes these over the variables of the device plugin.
    values=driver_pods.POLICY_VALUES,
    last=("gds.enabled", "mig.strategy", "devicePlugin.mps.root"),
    reasons={
        **driver_pods.POLICY_REASONS,
        "operator.defaultRuntime": "each agent finds the runtime of its own node; runtime.kind says otherwise",
        "*.image": _IMAGE,
        "*.repository": _IMAGE,
        "*.version": _IMAGE,
        "*.imagePullPolicy": _IMAGE,
        "*.imagePullSecrets": _IMAGE,
        "hostPaths.driverInstallDir": "a driver container there is found by itself; elsewhere set driver.root",
        "hostPaths.*": "node.host_root and driver.root say where the host and its driver are",
        "cdi.*": "the runtime reads CDI specifications by itself",
        "toolkit.*": "runtimes read CDI specifications; where pods want the class nvidia, see runtime.shim",
        "operator.*": _OPERATOR,
        "devicePlugin.config.*": device_plugin.MOUNT,
        **{f"devicePlugin.{path}": reason for path, reason in device_plugin.REASONS.items()},
        "gfd.discoveryIntervalSeconds": NOT_NEEDED["flags.gfd.sleepInterval"],
        **{f"gfd.{path}": reason for path, reason in feature_discovery.REASONS.items()},
        "dcgmExporter.config.name": "mount that ConfigMap and set metrics.fields_file; its list is read as it is",
        "dcgmExporter.hostPID": "hostPID in deploy/chart/values.yaml",
        "dcgmExporter.serviceMonitor.*": "podMonitor in deploy/chart/values.yaml",
        **{f"dcgmExporter.env.{name}": reason for name, reason in dcgm_exporter.VARIABLE_REASONS.items()},
        **{f"dcgmExporter.args.{name}": reason for name, reason in dcgm_exporter.OPTION_REASONS.items()},
        "dcgmExporter.enabled": "metrics come with the agent",
        "dcgm.*": "there is no DCGM behind the metrics",
        "migManager.*": _MIG,
        "validator.*": "the agent judges driver and runtime all the time; see driver in docs/configuration.md",
        "nodeStatusExporter.*": "the agent's own metrics say it",
        "daemonsets.*": IN_OUR_CHART,
        "*.resources.*": IN_OUR_CHART,
        "nfd.*": "the agent needs no node feature discovery",
        "node-feature-discovery.*": "the agent needs no node feature discovery",
        **dict.fromkeys(
            (
                "sandboxWorkloads.*",
                "sandboxDevicePlugin.*",
                "kata*",
                "vgpu*",
                "vfioManager.*",
                "ccManager.*",
            ),
            _SANDBOX,
        ),
        "psa.*": _OPERATOR,
        "psp.*": _OPERATOR,
    },
)


def import_policy(document: Mapping[str, object]) -> Imported:
    """A ClusterPolicy's specification, or values of the operator's chart."""
    return driver_pods.complete_policy(translate(document, TABLES), document)
