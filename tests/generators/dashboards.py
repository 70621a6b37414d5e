"""The Grafana dashboards of `deploy/dashboards`, a few lines each: what Grafana keeps is no way to write."""

import json
from dataclasses import dataclass
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT = 12, 8


@dataclass(frozen=True)
class Panel:
    """One graph or table: what is asked, in which unit, and how each line is named."""

    title: str
    query: str
    legend: str
    unit: str = "short"
    kind: str = "timeseries"


@dataclass(frozen=True)
class Variable:
    """A choice at the top of the page."""

    name: str
    query: str


@dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    variables: tuple[Variable, ...]
    panels: tuple[Panel, ...]


INSTANCE = Variable("instance", "label_values(nodeagent_build_info, instance)")
GPU = Variable("gpu", 'label_values(nodeagent_gpu_present{instance=~"$instance"}, gpu)')
NAMESPACE = Variable("namespace", "label_values(nodeagent_pod_gpu_held_seconds_total, namespace)")
ON_GPU = '{instance=~"$instance", gpu=~"$gpu"}'
ON_NODE = '{instance=~"$instance"}'
IN_NAMESPACE = '{namespace=~"$namespace"}'
DEVICE = "{{instance}} GPU {{gpu}} {{GPU_I_PROFILE}}"
POD = "{{namespace}}/{{pod}}"

NODE = Dashboard(
    "nodeagent-node",
    "nodeagent / node",
    (INSTANCE, GPU),
    (
        Panel("GPUs by state", f"nodeagent_gpus{ON_NODE}", "{{state}}", kind="stat"),
        Panel("What is wrong now", f"nodeagent_condition_active{ON_NODE}", "{{code}} {{key}}", kind="table"),
        Panel("GPU use", f"DCGM_FI_DEV_GPU_UTIL{ON_GPU}", DEVICE, "percent"),
        Panel("Engine active", f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{ON_GPU}", DEVICE, "percentunit"),
        Panel("Tensor cores active", f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{ON_GPU}", DEVICE, "percentunit"),
        Panel("Memory used", f"DCGM_FI_DEV_FB_USED{ON_GPU} * 1048576", DEVICE, "bytes"),
        Panel("Power", f"nodeagent_gpu_power_watts{ON_GPU}", "GPU {{gpu}}", "watt"),
        Panel("Temperature", f"DCGM_FI_DEV_GPU_TEMP{ON_GPU}", DEVICE, "celsius"),
        Panel("Memory temperature", f"DCGM_FI_DEV_MEMORY_TEMP{ON_GPU}", DEVICE, "celsius"),
        Panel(
            "Held back by power or heat",
            f"rate(nodeagent_gpu_held_back_seconds_total{ON_GPU}[$__rate_interval])",
            "GPU {{gpu}} {{limit}}",
            "percentunit",
        ),
        Panel(
            "NVLink",
            f"rate(nodeagent_gpu_nvlink_bytes_total{ON_GPU}[$__rate_interval])",
            "GPU {{gpu}} {{direction}}",
            "Bps",
        ),
        Panel(
            "PCIe",
            f"rate(nodeagent_gpu_pcie_bytes_total{ON_GPU}[$__rate_interval])",
            "GPU {{gpu}} {{direction}}",
            "Bps",
        ),
        Panel(
            "Memory errors in the last hour",
            f"increase(nodeagent_gpu_ecc_errors_total{ON_GPU}[1h])",
            "GPU {{gpu}} {{kind}}",
        ),
        Panel(
            "Compute promised in parts",
            f"sum by (instance, gpu) (nodeagent_fraction_cores_ratio{ON_GPU})",
            "{{instance}} GPU {{gpu}}",
            "percentunit",
        ),
        Panel("Age of the newest sample", f"nodeagent_sample_age_seconds{ON_NODE}", "{{instance}}", "s"),
        Panel("Agent: event loop lag", f"nodeagent_loop_lag_seconds{ON_NODE}", "{{instance}} {{quantile}}", "s"),
        Panel("Agent: memory", f"process_resident_memory_bytes{ON_NODE}", "{{instance}}", "bytes"),
    ),
)

PODS = Dashboard(
    "nodeagent-pods",
    "nodeagent / namespaces and pods",
    (NAMESPACE,),
    (
        Panel(
            "GPUs held, by namespace",
            f"count by (namespace) (nodeagent_pod_gpu_held_seconds_total{IN_NAMESPACE})",
            "{{namespace}}",
        ),
        Panel(
            "GPUs held but idle, by namespace",
            f"sum by (namespace) (rate(nodeagent_pod_gpu_idle_seconds_total{IN_NAMESPACE}[$__rate_interval]))",
            "{{namespace}}",
        ),
        Panel(
            "Power, by namespace",
            f"sum by (namespace) (rate(nodeagent_pod_gpu_energy_joules_total{IN_NAMESPACE}[$__rate_interval]))",
            "{{namespace}}",
            "watt",
        ),
        Panel(
            "Energy in the range shown, by pod",
            f"sum by (namespace, pod) (increase(nodeagent_pod_gpu_energy_joules_total{IN_NAMESPACE}[$__range]))",
            POD,
            "joule",
            "table",
        ),
        Panel(
            "SM time, by pod",
            f"sum by (namespace, pod) (nodeagent_pod_gpu_sm_ratio{IN_NAMESPACE})",
            POD,
            "percentunit",
        ),
        Panel(
            "Memory, by pod",
            f"sum by (namespace, pod) (nodeagent_pod_gpu_memory_used_bytes{IN_NAMESPACE})",
            POD,
            "bytes",
        ),
        Panel(
            "Compute used of a part, by pod",
            f"sum by (namespace, pod) (nodeagent_fraction_cores_used_ratio{IN_NAMESPACE})"
            f" / sum by (namespace, pod) (nodeagent_fraction_cores_ratio{IN_NAMESPACE})",
            POD,
            "percentunit",
        ),
        Panel(
            "Memory used of a part, by pod",
            f"sum by (namespace, pod) (nodeagent_fraction_memory_used_bytes{IN_NAMESPACE})"
            f" / sum by (namespace, pod) (nodeagent_fraction_memory_bytes{IN_NAMESPACE})",
            POD,
            "percentunit",
        ),
        Panel(
            "Idle part of the time held, by pod",
            f"sum by (namespace, pod) (rate(nodeagent_pod_gpu_idle_seconds_total{IN_NAMESPACE}[$__rate_interval]))"
            f" / sum by (namespace, pod) (rate(nodeagent_pod_gpu_held_seconds_total{IN_NAMESPACE}[$__rate_interval]))",
            POD,
            "percentunit",
        ),
        Panel(
            "Temperature of the devices, by pod", f"DCGM_FI_DEV_GPU_TEMP{IN_NAMESPACE}", f"{POD} {DEVICE}", "celsius"
        ),
    ),
)

CLUSTER = Dashboard(
    "nodeagent-cluster",
    "nodeagent / cluster",
    (),
    (
        Panel("GPUs by state", "sum by (state) (nodeagent_gpus)", "{{state}}", kind="stat"),
        Panel("Nodes by agent version", "count by (version) (nodeagent_build_info)", "{{version}}", kind="stat"),
        Panel("GPUs by model", "count by (model) (nodeagent_gpu_info)", "{{model}}", kind="stat"),
        Panel("GPUs held", "count(count by (instance, UUID, GPU_I_ID) (nodeagent_pod_gpu_held_seconds_total))", "held"),
        Panel("Mean GPU use, by node", "avg by (instance) (DCGM_FI_DEV_GPU_UTIL)", "{{instance}}", "percent"),
        Panel("Power, by node", "sum by (instance) (nodeagent_gpu_power_watts)", "{{instance}}", "watt"),
        Panel(
            "Energy in the range shown, by node",
            "sum by (instance) (increase(nodeagent_gpu_energy_joules_total[$__range]))",
            "{{instance}}",
            "joule",
            "table",
        ),
        Panel(
            "Conditions, by code",
            "count by (code, severity) (nodeagent_condition_active) or vector(0)",
            "{{severity}} {{code}}",
        ),
        Panel("Devices advertised, by node", "gpu_operator_node_device_plugin_devices_total", "{{instance}}"),
        Panel("Drivers that do not work", "count(nodeagent_driver_ready == 0) or vector(0)", "nodes", kind="stat"),
    ),
)

DASHBOARDS = (NODE, PODS, CLUSTER)


def render_dashboard(dashboard: Dashboard) -> str:
    """As Grafana imports it."""
    page = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["nodeagent", "gpu"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_render_datasource(), *map(_render_variable, dashboard.variables)]},
        "panels": [_render_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }
    return json.dumps(page, indent=2) + "\n"


def _render_datasource() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "data source"}


def _render_variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "definition": variable.query,
        "refresh": 2,
        "sort": 3,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _render_panel(number: int, panel: Panel) -> dict[str, Any]:
    is_table = panel.kind == "table"
    target = {
        "refId": "A",
        "expr": panel.query,
        "legendFormat": panel.legend,
        "instant": panel.kind != "timeseries",
        "range": panel.kind == "timeseries",
        **({"format": "table"} if is_table else {}),
    }
    return {
        "id": number + 1,
        "title": panel.title,
        "type": panel.kind,
        "datasource": DATASOURCE,
        "gridPos": {"x": number % 2 * WIDTH, "y": number // 2 * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [target],
    }
