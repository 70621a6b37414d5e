"""NVIDIA's GPU feature discovery: options and environment variables."""

from typing import Final

from nodeagent.config.imports.engine import Target, read_inverted_flag
from nodeagent.config.nvidia import NOT_NEEDED

OPTIONS: Final = {
    "mig-strategy": Target("device_plugin.mig_strategy"),
    "no-timestamp": Target("labels.timestamp", read_inverted_flag),
    "machine-type-file": Target("labels.machine_type_file"),
}
_OPTION_REASONS: Final = {
    "fail-on-init-error": NOT_NEEDED["flags.failOnInitError"],
    "use-node-feature-api": NOT_NEEDED["flags.useNodeFeatureAPI"],
    "device-discovery-strategy": NOT_NEEDED["flags.deviceDiscoveryStrategy"],
    "oneshot": NOT_NEEDED["flags.gfd.oneshot"],
    "sleep-interval": NOT_NEEDED["flags.gfd.sleepInterval"],
    **dict.fromkeys(("output-file", "output", "o"), NOT_NEEDED["flags.gfd.outputFile"]),
}
VARIABLES: Final = {
    **{f"GFD_{name.upper().replace('-', '_')}": target for name, target in OPTIONS.items()},
    "MIG_STRATEGY": OPTIONS["mig-strategy"],
}
REASONS: Final = {
    **{f"args.{name}": reason for name, reason in _OPTION_REASONS.items()},
    **{f"env.GFD_{name.upper().replace('-', '_')}": reason for name, reason in _OPTION_REASONS.items()},
    "env.USE_NODE_FEATURE_API": NOT_NEEDED["flags.useNodeFeatureAPI"],
}
"""By path in a container."""
