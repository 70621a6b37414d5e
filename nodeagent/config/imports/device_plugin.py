"""NVIDIA's device plugin: configuration file, environment variables, and values of the chart.

The agent also reads the file unchanged (`nodeagent.config.nvidia`); the import puts all into one file of the agent's.
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
    read_numbers,
)
from nodeagent.config.nvidia import COUNTERPARTS, NOT_NEEDED

MOUNT: Final = (
    "mount that ConfigMap and set device_plugin.config_dir and device_plugin.default_config; its entries are read as"
    " they are"
)

VARIABLES: Final = {
    "MIG_STRATEGY": Target("device_plugin.mig_strategy"),
    "NVIDIA_DRIVER_ROOT": Target("driver.root"),
    "NVIDIA_DEV_ROOT": Target("driver.dev_root"),
    "PASS_DEVICE_SPECS": Target("device_plugin.pass_device_specs", read_flag),
    "DEVICE_LIST_STRATEGY": Target("device_plugin.device_list_strategy", read_items),
    "DEVICE_ID_STRATEGY": Target("device_plugin.device_id_strategy"),
    "GDRCOPY_ENABLED": Target("device_plugin.gdrcopy", read_flag),
    "GDS_ENABLED": Target("device_plugin.gds", read_flag),
    "MOFED_ENABLED": Target("device_plugin.mofed", read_flag),
    "CDI_ANNOTATION_PREFIX": Target("device_plugin.cdi_annotation_prefix"),
    "MPS_ROOT": Target("device_plugin.mps_root"),
    "SHARED_DEVICES_ALLOCATION_POLICY": Target("device_plugin.shared_allocation_policy"),
    "DP_DISABLE_HEALTHCHECKS": Target("health.disable_xids", read_items),
    "DP_ENABLE_HEALTHCHECKS": Target("health.enable_xids", read_items),
    "IMEX_CHANNEL_IDS": Target("device_plugin.imex_channel_ids", read_numbers),
    "IMEX_REQUIRED": Target("device_plugin.imex_required", read_flag),
}
OPTIONS: Final = {
    **{name.lower().replace("_", "-"): target for name, target in VARIABLES.items() if not name.startswith("DP_")},
    "driver-root": VARIABLES["NVIDIA_DRIVER_ROOT"],
    "dev-root": VARIABLES["NVIDIA_DEV_ROOT"],
}
_OPTION_REASONS: Final = {
    "fail-on-init-error": NOT_NEEDED["flags.failOnInitError"],
    "device-discovery-strategy": NOT_NEEDED["flags.deviceDiscoveryStrategy"],
    "nvidia-cdi-hook-path": NOT_NEEDED["flags.plugin.nvidiaCTKPath"],
    "nvidia-ctk-path": NOT_NEEDED["flags.plugin.nvidiaCTKPath"],
    "driver-root-ctr-path": NOT_NEEDED["flags.plugin.containerDriverRoot"],
    "container-driver-root": NOT_NEEDED["flags.plugin.containerDriverRoot"],
    "kubelet-socket": "kubelet.device_plugins_dir says where the kubelet's socket is",
    "config-file": MOUNT,
    "cdi-feature-flags": "specifications are the agent's own; see docs/containers.md",
    "cdi-disable-hooks": "cdi.hooks says whether hooks are run",
}
REASONS: Final = {
    **{f"args.{name}": reason for name, reason in _OPTION_REASONS.items()},
    **{f"env.{name.upper().replace('-', '_')}": reason for name, reason in _OPTION_REASONS.items()},
}
"""By path in a container."""

FILE: Final = Tables(
    targets={
        **{path: Target(key) for path, key in COUNTERPARTS.items()},
        "flags.plugin.deviceListStrategy": Target("device_plugin.device_list_strategy", read_items),
        "sharing": Target("sharing"),
        "resources": Target("resources"),
    },
    reasons={**NOT_NEEDED, "version": "ours needs none"},
)

_CHART_KEYS: Final = {
    "migStrategy": "MIG_STRATEGY",
    "nvidiaDriverRoot": "NVIDIA_DRIVER_ROOT",
    "compatWithCPUManager": "PASS_DEVICE_SPECS",
    "deviceListStrategy": "DEVICE_LIST_STRATEGY",
    "deviceIDStrategy": "DEVICE_ID_STRATEGY",
    "gdrcopyEnabled": "GDRCOPY_ENABLED",
    "gdsEnabled": "GDS_ENABLED",
    "mofedEnabled": "MOFED_ENABLED",
    "cdi.annotationPrefix": "CDI_ANNOTATION_PREFIX",
    "mps.root": "MPS_ROOT",
}

VALUES: Final = Tables(
    targets={
        **{path: VARIABLES[name] for path, name in _CHART_KEYS.items()},
        **prefix("extraEnv", VARIABLES),
    },
    reasons={
        "failOnInitError": NOT_NEEDED["flags.failOnInitError"],
        "config.map.*": "import each of these configurations as a file of its own, or mount them as they are and set"
        " device_plugin.config_dir",
        "config.*": MOUNT,
        "gfd.*": "labels need no second program; see labels in docs/configuration.md",
        "nfd.*": "the agent needs no node feature discovery",
        **DEPLOYMENT,
        "updateStrategy.*": IN_OUR_CHART,
    },
)
