"""Which container runtimes can be told parts of GPUs."""

import pytest
from msgspec.structs import replace

from nodeagent.model.runtime import RuntimeKind, RuntimeState
from nodeagent.rules.fractions.runtime import explain_no_cdi

OFF = RuntimeState(kind=RuntimeKind.CONTAINERD, version="1.7.20", config_file="/etc/c.toml", cdi_enabled=False)


@pytest.mark.parametrize(
    "state",
    [
        None,
        RuntimeState(kind=RuntimeKind.UNKNOWN, problem="no container runtime answers"),
        replace(OFF, cdi_enabled=True),
        replace(OFF, cdi_enabled=None),
        replace(OFF, version=""),
    ],
    ids=["not-looked-yet", "none-found", "on", "silent", "does-not-answer"],
)
def test_only_a_runtimes_own_no_counts(state: RuntimeState | None) -> None:
    """What is not known keeps no GPU from anybody."""
    assert explain_no_cdi(state) == ""


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (
            OFF,
            "containerd 1.7.20 takes no CDI devices: switch them on in /etc/c.toml, as `nodeagent runtime plan` shows",
        ),
        (
            replace(OFF, restart_needed="systemctl restart containerd"),
            "containerd 1.7.20 takes no CDI devices before it is restarted: systemctl restart containerd",
        ),
        (
            RuntimeState(
                kind=RuntimeKind.DOCKER, version="20.10.7", cdi_enabled=False, problem="it is too old: upgrade to 25"
            ),
            "docker 20.10.7 takes no CDI devices: it is too old: upgrade to 25",
        ),
    ],
    ids=["off", "not-restarted", "too-old"],
)
def test_the_reason_names_runtime_lack_and_remedy(state: RuntimeState, told: str) -> None:
    """In one sentence, as it stands in the condition and in the pod's event."""
    assert explain_no_cdi(state) == told
