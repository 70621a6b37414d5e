"""Which runtime serves the kubelet."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.runtime.choose import (
    ChosenRuntime,
    NoRuntime,
    decide_runtime,
    parse_version,
)
from nodeagent.config.sections.containers import RuntimeSettings
from nodeagent.model.runtime import RuntimeCandidate, RuntimeEvidence, RuntimeFlavour, RuntimeKind
from nodeagent.model.runtimes import RUNTIMES

CONTAINERD = RuntimeCandidate(
    kind=RuntimeKind.CONTAINERD, socket="/run/containerd/containerd.sock", answers=True, version="2.1.4"
)
DOCKER = RuntimeCandidate(kind=RuntimeKind.DOCKER, socket="/var/run/docker.sock", answers=True, version="28.1.0")
CRIO = RuntimeCandidate(kind=RuntimeKind.CRIO, socket="/var/run/crio/crio.sock", answers=True, version="1.33.0")


def decide(*candidates: RuntimeCandidate, endpoint: str = "", **settings: Any) -> ChosenRuntime | NoRuntime:
    evidence = RuntimeEvidence(candidates=candidates, kubelet_endpoint=endpoint)
    return decide_runtime(evidence, replace(RuntimeSettings(), **settings))


def test_the_only_one_alive_serves() -> None:
    """A socket left behind by a removed runtime is no rival."""
    dead = replace(CRIO, answers=False)
    chosen = decide(dead, CONTAINERD)
    assert isinstance(chosen, ChosenRuntime)
    assert (chosen.kind, chosen.config_file) == (RuntimeKind.CONTAINERD, "/etc/containerd/config.toml")


def test_podman_is_chosen_by_the_settings() -> None:
    """It has no socket, reads its files at every start, and nothing has to be restarted."""
    podman = RuntimeCandidate(kind=RuntimeKind.PODMAN, socket="", answers=True, executable="/usr/bin/podman")
    chosen = decide(podman, kind="podman")
    assert isinstance(chosen, ChosenRuntime)
    assert (chosen.config_file, chosen.restart_command) == ("/etc/containers/containers.conf", ())
    assert chosen.restart_advice == ""
    assert chosen.knows_cdi


def test_docker_beside_containerd_serves_nobody() -> None:
    """Docker brings its own containerd along; the kubelet speaks to containerd."""
    chosen = decide(DOCKER, CONTAINERD)
    assert isinstance(chosen, ChosenRuntime)
    assert chosen.kind is RuntimeKind.CONTAINERD


@pytest.mark.parametrize("endpoint", [CRIO.socket, f"unix://{CRIO.socket}"])
def test_the_kubelets_own_word_decides(endpoint: str) -> None:
    """Whatever else is alive, the runtime at the kubelet's endpoint is the one."""
    chosen = decide(CONTAINERD, CRIO, endpoint=endpoint)
    assert isinstance(chosen, ChosenRuntime)
    assert chosen.kind is RuntimeKind.CRIO


def test_two_alive_are_not_guessed_between() -> None:
    """The reason names both and the settings that decide."""
    found = decide(CONTAINERD, CRIO)
    assert isinstance(found, NoRuntime)
    assert "runtime.kind" in found.reason


@pytest.mark.parametrize("settings", [{"kind": "crio"}, {"socket": Path(CRIO.socket)}], ids=["by kind", "by socket"])
def test_the_settings_decide(settings: dict[str, Any]) -> None:
    chosen = decide(CONTAINERD, CRIO, **settings)
    assert isinstance(chosen, ChosenRuntime)
    assert chosen.kind is RuntimeKind.CRIO


def test_no_runtime_is_an_answer_with_a_reason() -> None:
    """Nothing found and nothing answering are told apart."""
    nothing = decide()
    assert isinstance(nothing, NoRuntime)
    assert "no container runtime was found" in nothing.reason
    silent = decide(replace(CONTAINERD, answers=False, problem="connection refused"))
    assert isinstance(silent, NoRuntime)
    assert "connection refused" in silent.reason
    assert (nothing.seen, silent.seen) == (False, True)


@pytest.mark.parametrize(
    ("kind", "arguments", "path"),
    [
        (RuntimeKind.CONTAINERD, ("containerd", "-c", "/x.toml"), "/x.toml"),
        (RuntimeKind.CONTAINERD, ("containerd", "--config=/y.toml"), "/y.toml"),
        (RuntimeKind.CONTAINERD, ("containerd", "--config"), ""),
        (RuntimeKind.DOCKER, ("dockerd", "--config-file", "/z.json"), "/z.json"),
        (RuntimeKind.CRIO, ("crio",), ""),
    ],
)
def test_the_configuration_is_where_the_daemon_was_told(
    kind: RuntimeKind, arguments: tuple[str, ...], path: str
) -> None:
    """The command line of the running daemon is stronger than its default."""
    assert RUNTIMES[kind].find_config_flag(arguments) == path


@pytest.mark.parametrize(
    ("flavour", "config_file", "restart"),
    [
        (RuntimeFlavour.PLAIN, "/etc/containerd/config.toml", "systemctl restart containerd.service"),
        (RuntimeFlavour.MICROK8S, "/var/snap/microk8s/current/args/containerd-template.toml", "snap restart"),
        (RuntimeFlavour.K0S, "/etc/k0s/containerd.toml", "k0sworker"),
        (RuntimeFlavour.K3S, "/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "k3s-agent"),
        (RuntimeFlavour.RKE2, "/var/lib/rancher/rke2/agent/etc/containerd/config.toml", "rke2-agent"),
    ],
)
def test_distributions_have_their_own_places(flavour: RuntimeFlavour, config_file: str, restart: str) -> None:
    """Each is configured where it lets itself be, and restarted by its own unit."""
    chosen = decide(replace(CONTAINERD, flavour=flavour))
    assert isinstance(chosen, ChosenRuntime)
    assert chosen.config_file == config_file
    assert restart in " ".join(chosen.restart_command)


SECOND = "/srv/second/containerd.sock"


@pytest.mark.parametrize(
    ("socket", "flavour", "unit", "told", "command"),
    [
        (CONTAINERD.socket, RuntimeFlavour.PLAIN, "", (), "systemctl restart containerd.service"),
        (f"/var{CONTAINERD.socket}", RuntimeFlavour.PLAIN, "", (), "systemctl restart containerd.service"),
        (CONTAINERD.socket, RuntimeFlavour.PLAIN, "cri.service", (), "systemctl restart cri.service"),
        (SECOND, RuntimeFlavour.PLAIN, "second.service", (), "systemctl restart second.service"),
        (SECOND, RuntimeFlavour.PLAIN, "", (), ""),
        (SECOND, RuntimeFlavour.PLAIN, "", ("sv", "restart", "two"), "sv restart two"),
        (SECOND, RuntimeFlavour.PLAIN, "second.service", ("sv", "restart", "two"), "sv restart two"),
        (CONTAINERD.socket, RuntimeFlavour.MICROK8S, "snap.x.service", (), "snap restart microk8s.daemon-containerd"),
        (CONTAINERD.socket, RuntimeFlavour.MICROK8S, "", ("sv", "restart", "two"), "sv restart two"),
    ],
)
def test_what_is_restarted_is_the_daemon_behind_the_socket(
    socket: str, flavour: RuntimeFlavour, unit: str, told: tuple[str, ...], command: str
) -> None:
    """By the settings, by its distribution, by the service it runs in; another daemon's is never taken for its own."""
    chosen = decide(
        replace(CONTAINERD, socket=socket, flavour=flavour, unit=unit), socket=Path(socket), restart_command=told
    )
    assert isinstance(chosen, ChosenRuntime)
    assert " ".join(chosen.restart_command) == command
    assert ("runtime.restart_command" in chosen.restart_advice) is not bool(command)


@pytest.mark.parametrize(
    ("socket", "pid", "config_file"),
    [
        ("/run/containerd/containerd.sock", None, "/etc/containerd/config.toml"),
        ("/var/run/containerd/containerd.sock", None, "/etc/containerd/config.toml"),
        ("/srv/second/containerd.sock", 7, "/etc/containerd/config.toml"),
        ("/srv/second/containerd.sock", None, ""),
    ],
)
def test_the_default_file_is_not_that_of_a_process_nobody_sees(socket: str, pid: int | None, config_file: str) -> None:
    """Behind a socket of its own there is another one than the distribution's."""
    chosen = decide(replace(CONTAINERD, socket=socket, pid=pid), socket=Path(socket))
    assert isinstance(chosen, ChosenRuntime)
    assert chosen.config_file == config_file


def test_a_configured_file_is_taken() -> None:
    """A path in the settings is stronger than the daemon's own."""
    chosen = decide(replace(CONTAINERD, arguments=("containerd", "-c", "/x")), config_file=Path("/y.toml"))
    assert isinstance(chosen, ChosenRuntime)
    assert chosen.config_file == "/y.toml"


@pytest.mark.parametrize(
    ("text", "version"),
    [("v2.1.4", (2, 1)), ("1.7.22-k3s1", (1, 7)), ("2.0", (2, 0)), ("28", (28, 0)), ("", (0, 0)), ("x.y", (0, 0))],
)
def test_versions_of_any_spelling_are_read(text: str, version: tuple[int, int]) -> None:
    """Only major and minor decide; nonsense is zero."""
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("endpoint", "kind"),
    [
        ("unix:///run/crio/crio.sock", RuntimeKind.CRIO),
        ("unix:///var/run/crio/crio.sock", RuntimeKind.CRIO),
        ("unix:///run/cri-dockerd.sock", RuntimeKind.DOCKER),
        ("/run/containerd/containerd.sock", RuntimeKind.CONTAINERD),
    ],
)
def test_the_kubelets_endpoint_is_known_by_each_of_its_names(endpoint: str, kind: RuntimeKind) -> None:
    """/var/run is /run, and cri-dockerd stands for Docker, whoever else answers beside it."""
    candidates = tuple(
        RuntimeCandidate(kind=each, socket=socket, answers=True)
        for each, socket in (
            (RuntimeKind.CONTAINERD, "/run/containerd/containerd.sock"),
            (RuntimeKind.CRIO, "/var/run/crio/crio.sock"),
            (RuntimeKind.DOCKER, "/var/run/docker.sock"),
        )
    )
    chosen = decide_runtime(RuntimeEvidence(candidates=candidates, kubelet_endpoint=endpoint), RuntimeSettings())
    assert isinstance(chosen, ChosenRuntime)
    assert chosen.kind is kind


@pytest.mark.parametrize(
    ("kind", "version", "knows"),
    [
        (RuntimeKind.CONTAINERD, "1.6.20", False),
        (RuntimeKind.CONTAINERD, "1.7.0", True),
        (RuntimeKind.DOCKER, "20.10.24", False),
        (RuntimeKind.DOCKER, "25.0.1", True),
        (RuntimeKind.CRIO, "1.23.9", False),
        (RuntimeKind.CONTAINERD, "", True),
    ],
)
def test_a_release_knows_cdi_or_is_too_old(kind: RuntimeKind, version: str, knows: bool) -> None:
    runtime = ChosenRuntime(kind=kind, flavour=RuntimeFlavour.PLAIN, socket="/s", config_file="/c", version=version)
    assert runtime.knows_cdi is knows
