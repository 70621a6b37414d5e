"""DCGM exporter: environment variables and values of the chart.

The list of fields is read unchanged (`metrics.fields_file`).
"""

from typing import Final

from nodeagent.config.imports.engine import (
    DEPLOYMENT,
    IN_OUR_CHART,
    Tables,
    Target,
    read_flag,
    read_items,
    read_milliseconds,
)

_DCGM: Final = "there is no DCGM behind the metrics"


def _read_host_label(value: object) -> str:
    """The host label; DCGM exporter's switch is negative."""
    return "none" if read_flag(value) else "Hostname"


def _read_level(value: object) -> str:
    return "debug" if read_flag(value) else "info"


VARIABLES: Final = {
    "DCGM_EXPORTER_LISTEN": Target("http.listen"),
    "DCGM_EXPORTER_INTERVAL": Target("inventory.sample_seconds", read_milliseconds),
    "DCGM_EXPORTER_COLLECTORS": Target("metrics.fields_file"),
    "DCGM_EXPORTER_KUBERNETES": Target("metrics.pod_attribution", read_flag),
    "DCGM_EXPORTER_USE_OLD_NAMESPACE": Target("metrics.old_namespace_labels", read_flag),
    "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS": Target("metrics.pod_labels", read_flag),
    "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID": Target("metrics.pod_uid", read_flag),
    "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX": Target("metrics.pod_label_allowlist", read_items),
    "DCGM_EXPORTER_NO_HOSTNAME": Target("metrics.host_label", _read_host_label),
    "DCGM_EXPORTER_WEB_CONFIG_FILE": Target("http.web_config_file"),
    "DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE": Target("metrics.xid_window_seconds", read_milliseconds),
    "DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE": Target("metrics.clock_events_window_seconds", read_milliseconds),
    "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME": Target("metrics.replace_blanks_in_model_name", read_flag),
    "DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES": Target("http.max_concurrent_scrapes", lambda value: int(str(value))),
    "DCGM_EXPORTER_DEBUG": Target("log.level", _read_level),
    "DCGM_POD_RESOURCES_KUBELET_SOCKET": Target("kubelet.pod_resources_socket"),
    "NVIDIA_RESOURCE_NAMES": Target("metrics.extra_resource_names", read_items),
}
VARIABLE_REASONS: Final = {
    "DCGM_REMOTE_HOSTENGINE_INFO": _DCGM,
    "DCGM_EXPORTER_ENABLE_DCGM_LOG": _DCGM,
    "DCGM_EXPORTER_DCGM_LOG_LEVEL": _DCGM,
    "DCGM_EXPORTER_CONFIGMAP_DATA": "mount that ConfigMap and set metrics.fields_file",
}

VALUES: Final = Tables(
    targets={
        "kubernetes.enablePodLabels": VARIABLES["DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"],
        "kubernetes.enablePodUID": VARIABLES["DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"],
        "kubernetes.podLabelAllowlistRegex": VARIABLES["DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"],
        **{f"extraEnv.{name}": target for name, target in VARIABLES.items()},
    },
    reasons={
        **{f"extraEnv.{name}": reason for name, reason in VARIABLE_REASONS.items()},
        "customMetrics": "save it as a file and set metrics.fields_file",
        "serviceMonitor.*": "podMonitor in deploy/chart/values.yaml",
        "tlsServerConfig.*": "write them into a file in the exporter-toolkit format and set http.web_config_file",
        "basicAuth.*": "write them into a file in the exporter-toolkit format and set http.web_config_file",
        "arguments": "give them as DCGM_EXPORTER_ variables instead, or see docs/configuration.md",
        **DEPLOYMENT,
        **dict.fromkeys(("rollingUpdate.*", "service.*", "serviceAccount.*", "hostPID"), IN_OUR_CHART),
    },
)
