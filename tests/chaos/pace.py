"""Settings of the agent on a node that is broken on purpose: what it cannot do without, and what makes haste."""

ALWAYS = (
    # The fake driver has no device nodes, without which a GPU gets no CDI entry and is not offered.
    'device_plugin.device_list_strategy=["envvar"]',
    "device_plugin.mig_strategy=mixed",
    "driver.manage_device_nodes=false",
    "kubernetes.enabled=true",
)
HASTE = (
    "driver.call_timeout_seconds=0.5",
    "health.poll_seconds=0.5",
    "health.flap_limit=1000",
    "health.unknown_after_missed_polls=2",
    "inventory.sample_seconds=0.25",
    "inventory.rescan_seconds=1",
    "journal.free_after_seconds=1",
    "journal.rotate_bytes=4096",
    "kubelet.pod_resources_poll_seconds=0.5",
    "kubernetes.catch_up_max_seconds=0.2",
    "kubernetes.request_timeout_seconds=1",
    "kubernetes.requests_per_second=50",
    "labels.hold_seconds=0.2",
)
"""So that a step takes a second where a node may take a minute."""
