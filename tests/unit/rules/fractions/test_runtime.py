"""Which container runtimes can be told parts of GPUs, and how."""

import pytest
from msgspec.structs import replace

from nodeagent.model.plugin import ContainerAnswer
from nodeagent.model.runtime import RuntimeKind, RuntimeState
from nodeagent.model.shim_names import place_request, read_request
from nodeagent.rules.fractions.runtime import explain_no_cdi, is_by_shim, render_answer

OR = "; or have it create every container through the runtime shim (`runtime.shim`, `shim.default_runtime`)"
OFF = RuntimeState(kind=RuntimeKind.CONTAINERD, version="1.7.20", config_file="/etc/c.toml", cdi_enabled=False)


@pytest.mark.parametrize(
    "state",
    [
        None,
        RuntimeState(kind=RuntimeKind.UNKNOWN, problem="no container runtime answers"),
        replace(OFF, cdi_enabled=True),
        replace(OFF, cdi_enabled=None),
        replace(OFF, version=""),
        replace(OFF, through_shim=True),
    ],
    ids=["not-looked-yet", "none-found", "on", "silent", "does-not-answer", "through-the-shim"],
)
def test_only_a_runtimes_own_no_counts(state: RuntimeState | None) -> None:
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
    assert explain_no_cdi(state).removesuffix(OR) == told


@pytest.mark.parametrize(
    ("state", "by_shim"),
    [
        (None, False),
        (OFF, False),
        (replace(OFF, through_shim=True), True),
        (replace(OFF, cdi_enabled=True, through_shim=True), False),
        (replace(OFF, cdi_enabled=None, through_shim=True), False),
    ],
    ids=["not-looked-yet", "no-way", "shim", "both", "silent"],
)
def test_the_shim_is_asked_where_the_runtime_is_none_to_ask(state: RuntimeState | None, by_shim: bool) -> None:
    """By a mount, which no image can replace; and what has no name is told nothing either way."""
    name = "vendor.example/part=p1"
    answer = render_answer(name, state)
    asked = [read_request(mount.container_path) for mount in answer.mounts]
    assert (is_by_shim(state), asked, answer.cdi_devices) == (by_shim, [name] * by_shim, (name,) * (not by_shim))
    assert render_answer("", state) == ContainerAnswer()


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (place_request("a.example/b=c"), "a.example/b=c"),
        ("/var/run/nvidia-container-devices/0", ""),
        ("/var/run/nvidia-container-devices/cdi/alone", ""),
        ("/var/run/nvidia-container-devices/cdi/a/b/", ""),
        ("/etc/ld.so.preload", ""),
        ("", ""),
    ],
)
def test_only_a_mount_at_its_place_is_a_request(place: str, name: str) -> None:
    """What else is mounted asks for nothing."""
    assert read_request(place) == name
