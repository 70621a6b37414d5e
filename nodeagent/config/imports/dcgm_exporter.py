"""DCGM exporter: environment variables and values of the chart.

The list of fields is read unchanged (`metrics.fields_file`).
"""

from typing import Final

from nodeagent.config.imports.engine import (
    DEPLOYMENT,
    IN_OUR_CHART,
    Tables,
    Target,
    prefix,
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

OPTIONS: Final = {
    "collectors": VARIABLES["DCGM_EXPORTER_COLLECTORS"],
    "f": VARIABLES["DCGM_EXPORTER_COLLECTORS"],
    "address": VARIABLES["DCGM_EXPORTER_LISTEN"],
    "a": VARIABLES["DCGM_EXPORTER_LISTEN"],
    "collect-interval": VARIABLES["DCGM_EXPORTER_INTERVAL"],
    "c": VARIABLES["DCGM_EXPORTER_INTERVAL"],
    "kubernetes": VARIABLES["DCGM_EXPORTER_KUBERNETES"],
    "k": VARIABLES["DCGM_EXPORTER_KUBERNETES"],
    "use-old-namespace": VARIABLES["DCGM_EXPORTER_USE_OLD_NAMESPACE"],
    "o": VARIABLES["DCGM_EXPORTER_USE_OLD_NAMESPACE"],
    "no-hostname": VARIABLES["DCGM_EXPORTER_NO_HOSTNAME"],
    "n": VARIABLES["DCGM_EXPORTER_NO_HOSTNAME"],
    "x": VARIABLES["DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE"],
    "rbmn": VARIABLES["DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME"],
    "pod-resources-kubelet-socket": VARIABLES["DCGM_POD_RESOURCES_KUBELET_SOCKET"],
    "nvidia-resource-names": VARIABLES["NVIDIA_RESOURCE_NAMES"],
    **{
        name.removeprefix("DCGM_EXPORTER_").lower().replace("_", "-"): target
        for name, target in VARIABLES.items()
        if name.startswith("DCGM_EXPORTER_") and name not in ("DCGM_EXPORTER_LISTEN", "DCGM_EXPORTER_INTERVAL")
    },
}
OPTION_REASONS: Final = {
    "remote-hostengine-info": VARIABLE_REASONS["DCGM_REMOTE_HOSTENGINE_INFO"],
    "r": VARIABLE_REASONS["DCGM_REMOTE_HOSTENGINE_INFO"],
    "enable-dcgm-log": _DCGM,
    "dcgm-log-level": _DCGM,
    "configmap-data": VARIABLE_REASONS["DCGM_EXPORTER_CONFIGMAP_DATA"],
    "m": VARIABLE_REASONS["DCGM_EXPORTER_CONFIGMAP_DATA"],
    **dict.fromkeys(("devices", "d"), "gpus.include and gpus.exclude say which GPUs there are"),
    **dict.fromkeys(("switch-devices", "s", "cpu-devices", "p"), "metrics of these devices are not there"),
}

VALUES: Final = Tables(
    targets={
        "kubernetes.enablePodLabels": VARIABLES["DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"],
        "kubernetes.enablePodUID": VARIABLES["DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"],
        "kubernetes.podLabelAllowlistRegex": VARIABLES["DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX"],
        **prefix("extraEnv", VARIABLES),
        **prefix("arguments", OPTIONS),
    },
    reasons={
        **{f"extraEnv.{name}": reason for name, reason in VARIABLE_REASONS.items()},
        "customMetrics": "save it as a file and set metrics.fields_file",
        "serviceMonitor.*": "podMonitor in deploy/chart/values.yaml",
        "tlsServerConfig.*": "write them into a file in the exporter-toolkit format and set http.web_config_file",
        "basicAuth.*": "write them into a file in the exporter-toolkit format and set http.web_config_file",
        **{f"arguments.{name}": reason for name, reason in OPTION_REASONS.items()},
        **DEPLOYMENT,
        **dict.fromkeys(("rollingUpdate.*", "service.*", "serviceAccount.*", "hostPID"), IN_OUR_CHART),
    },
)
