"""Detection and the whole edge against a CRI socket that really answers."""

import json
import os
import socket
from pathlib import Path

import anyio
import pytest

from nodeagent.edge.container_runtime.cri import CriAnswer, ask_runtime, list_containers
from nodeagent.edge.container_runtime.detect import RuntimeDetector, read_peer_pid
from nodeagent.edge.container_runtime.docker import ask_docker
from nodeagent.edge.container_runtime.errors import RuntimeSilent
from nodeagent.edge.container_runtime.kubelet_endpoint import parse_kubelet_endpoint
from nodeagent.model.fractions import ContainerState, PodContainer
from nodeagent.model.runtime import RuntimeFlavour, RuntimeKind
from tests.component.container_runtime.host import make_detector
from tests.fakes.cri import FakeCri

DOCKER_TELLS = {
    "ServerVersion": "28.2.1",
    "CDISpecDirs": ["/etc/cdi"],
    "DefaultRuntime": "runc",
    "Runtimes": {"runc": {}, "nvidia": {"path": "/shim"}},
}
EFFECTIVE = {
    "enableCDI": True,
    "containerd": {
        "defaultRuntimeName": "runc",
        "runtimes": {"runc": {"options": 1}, "nvidia": {"options": {"BinaryName": "/shim"}}},
    },
}


async def test_a_runtime_says_who_it_is_and_what_is_in_force(host: Path) -> None:
    """Version, the loaded configuration, and its handlers."""
    fake = FakeCri(config=EFFECTIVE)
    async with fake.serving(host / "s"):
        answer = await ask_runtime(str(host / "s"))
    assert answer == CriAnswer(
        name="containerd",
        version="v2.1.4",
        cdi_enabled=True,
        handlers=("runc", "nvidia"),
        programs={"nvidia": "/shim"},
        default_handler="runc",
        is_ready=True,
    )
    assert fake.was_verbose


@pytest.mark.parametrize(("config", "is_on"), [({"cdiSpecDirs": ["/etc/cdi"]}, True), ({"cdiSpecDirs": None}, None)])
async def test_a_containerd_without_a_switch_names_its_directories(
    host: Path, config: dict[str, object], is_on: bool | None
) -> None:
    """From 2.4 on CDI cannot be switched off, and the answer has no word for it."""
    async with FakeCri(version="v2.4.2", config=config).serving(host / "s"):
        assert (await ask_runtime(str(host / "s"))).cdi_enabled is is_on


@pytest.mark.parametrize("config", [None, "no JSON", "[1]", '{"containerd": 1}'])
async def test_what_a_runtime_does_not_tell_is_unknown(host: Path, config: str | None) -> None:
    """CRI-O has another text there; neither that nor nothing is taken for a no."""
    async with FakeCri("cri-o", "1.33.0", config=config).serving(host / "s"):
        answer = await ask_runtime(str(host / "s"))
    assert (answer.cdi_enabled, answer.handlers) == (None, None)


async def test_handlers_of_the_answer_count_first(host: Path) -> None:
    """What the runtime lists itself is what it would run."""
    async with FakeCri(handlers=("", "runc"), config=EFFECTIVE).serving(host / "s"):
        assert (await ask_runtime(str(host / "s"))).handlers == ("", "runc")


@pytest.mark.parametrize(
    ("fault", "said"), [("hangs", "nothing within 0.2 s"), ("refuses", "unimplemented"), ("garbled", "does not end")]
)
async def test_a_runtime_that_does_not_answer_is_an_error_in_time(host: Path, fault: str, said: str) -> None:
    """Silence, refusal and nonsense are told apart."""
    fake = FakeCri()
    fake.hangs, fake.refuses = fault == "hangs", fault == "refuses"
    fake.raw_status = b"\x0a\x05ab" if fault == "garbled" else None
    async with fake.serving(host / "s"):
        with pytest.raises(RuntimeSilent, match=said):
            await ask_runtime(str(host / "s"), timeout_seconds=0.2 if fault == "hangs" else 10.0)


async def test_nobody_at_the_socket_is_an_error(host: Path) -> None:
    """Whether it is missing or left over."""
    with pytest.raises(RuntimeSilent):
        await ask_runtime(str(host / "missing"))


@pytest.mark.parametrize(
    ("number", "state"), [(0, "created"), (1, "running"), (2, "exited"), (3, "unknown"), (7, "unknown")]
)
async def test_containers_are_known_by_what_the_kubelet_wrote_on_them(host: Path, number: int, state: str) -> None:
    """One that no kubelet has made belongs to no pod."""
    fake = FakeCri()
    fake.container_state = number
    fake.containers = {
        "c0ffee": {
            "io.kubernetes.container.name": "main",
            "io.kubernetes.pod.name": "train-0",
            "io.kubernetes.pod.namespace": "ml",
            "io.kubernetes.pod.uid": "u-1",
        },
        "beef": {"made-by": "hand"},
    }
    async with fake.serving(host / "s"):
        listed = await list_containers(str(host / "s"))
    assert listed == (
        PodContainer(
            id="c0ffee", pod_uid="u-1", name="main", state=ContainerState(state), namespace="ml", pod="train-0"
        ),
        PodContainer(id="beef", pod_uid="", name="", state=ContainerState(state)),
    )


async def test_containers_that_cannot_be_listed_are_an_error(host: Path) -> None:
    fake = FakeCri()
    fake.raw_containers = b"\x0a\x05ab"
    async with fake.serving(host / "s"):
        with pytest.raises(RuntimeSilent, match="does not end"):
            await list_containers(str(host / "s"))
    with pytest.raises(RuntimeSilent):
        await list_containers(str(host / "missing"))


async def test_every_runtime_of_the_node_is_seen(host: Path) -> None:
    """With its process behind the socket, its version without the v, and the kubelet's own endpoint."""
    pid = os.getpid()
    detector = make_detector(host)
    for name, command, comm in (
        (str(pid), b"containerd\0--config\0/x.toml\0", "containerd"),
        ("7", b"kubelet\0", "kubelet"),
    ):
        (host / "proc" / name).mkdir()
        (host / "proc" / name / "cmdline").write_bytes(command)
        (host / "proc" / name / "comm").write_text(f"{comm}\n")
    (host / "proc" / str(pid) / "exe").symlink_to("/usr/bin/containerd (deleted)")
    (host / "proc/7/cmdline").write_bytes(
        b"kubelet\0--container-runtime-endpoint=unix:///run/k3s/containerd/containerd.sock\0"
    )
    (host / "usr/bin/nvidia-container-runtime").write_text("")
    async with (
        FakeCri(config=EFFECTIVE).serving(host / "run/containerd/containerd.sock"),
        FakeCri(version="2.0.0-k3s1").serving(host / "run/k3s/containerd/containerd.sock"),
    ):
        evidence = await detector.read_evidence()
    plain, k3s = evidence.candidates
    assert (plain.kind, plain.version, plain.cdi_in_force, plain.pid) == (RuntimeKind.CONTAINERD, "2.1.4", True, pid)
    assert (plain.executable, plain.arguments) == ("/usr/bin/containerd", ("containerd", "--config", "/x.toml"))
    assert (plain.programs, plain.default_handler) == ({"nvidia": "/shim"}, "runc")
    assert k3s.flavour is RuntimeFlavour.K3S
    assert evidence.kubelet_endpoint == "/run/k3s/containerd/containerd.sock"
    assert evidence.wrapper == "/usr/bin/nvidia-container-runtime"


@pytest.mark.parametrize(
    ("command", "program"), [(b"/usr/bin/containerd\0", "/usr/bin/containerd"), (b"containerd\0", ""), (b"", "")]
)
async def test_a_program_that_may_not_be_seen_is_told_by_its_command_line(
    host: Path, command: bytes, program: str
) -> None:
    """Few capabilities do not let an agent look behind another's process; a bare name leads nowhere."""
    process = host / "proc" / str(os.getpid())
    process.mkdir(parents=True)
    (process / "cmdline").write_bytes(command)
    async with FakeCri().serving(host / "run/containerd/containerd.sock"):
        (candidate,) = (await make_detector(host).read_evidence()).candidates
    assert candidate.executable == program


async def test_a_runtime_without_daemon_is_looked_for_where_the_settings_name_it(host: Path) -> None:
    """By its program; on a node whose kubelet another one serves it is nobody's rival."""
    (host / "usr/bin/podman").write_text("")
    assert (await make_detector(host).read_evidence()).candidates == ()
    (found,) = (await RuntimeDetector(host_root=host, command="podman").read_evidence()).candidates
    assert (found.kind, found.answers, found.executable) == (RuntimeKind.PODMAN, True, "/usr/bin/podman")
    (host / "usr/bin/podman").unlink()
    assert (await RuntimeDetector(host_root=host, command="podman").read_evidence()).candidates == ()


async def test_rke2_is_told_from_k3s_by_its_data(host: Path) -> None:
    """They share the socket's path."""
    (host / "var/lib/rancher/rke2").mkdir(parents=True)
    async with FakeCri().serving(host / "run/k3s/containerd/containerd.sock"):
        (candidate,) = (await make_detector(host).read_evidence()).candidates
    assert candidate.flavour is RuntimeFlavour.RKE2


@pytest.mark.parametrize(
    ("place", "flavour"),
    [
        ("var/snap/microk8s/common/run/containerd.sock", RuntimeFlavour.MICROK8S),
        ("run/k0s/containerd.sock", RuntimeFlavour.K0S),
        ("run/k3s/containerd/containerd.sock", RuntimeFlavour.K3S),
        ("run/containerd/containerd.sock", RuntimeFlavour.PLAIN),
    ],
)
async def test_each_distribution_is_known_by_its_socket(host: Path, place: str, flavour: RuntimeFlavour) -> None:
    """Whoever starts containerd also decides where its configuration is and how it is restarted."""
    (host / place).parent.mkdir(parents=True, exist_ok=True)
    async with FakeCri(version="1.7.22").serving(host / place):
        (candidate,) = (await make_detector(host).read_evidence()).candidates
    assert (candidate.flavour, candidate.answers, candidate.version) == (flavour, True, "1.7.22")


async def test_the_socket_that_the_kubelet_was_told_of_is_looked_at(host: Path) -> None:
    """Wherever it is; the adapter in front of Docker and a socket that is not there are no runtimes."""
    process = host / "proc/7"
    detector = make_detector(host)
    process.mkdir(parents=True)
    (process / "comm").write_text("kubelet\n")
    usual = host / "run/containerd/containerd.sock"
    async with FakeCri().serving(usual), FakeCri().serving(host / "run/own.sock"):
        for endpoint, sockets in (
            ("/run/own.sock", ["/run/own.sock", "/run/containerd/containerd.sock"]),
            ("/run/cri-dockerd.sock", ["/run/containerd/containerd.sock"]),
            ("/run/containerd/containerd.sock", ["/run/containerd/containerd.sock"]),
            ("/run/gone.sock", ["/run/containerd/containerd.sock"]),
        ):
            (process / "cmdline").write_bytes(f"kubelet\0--container-runtime-endpoint=unix://{endpoint}\0".encode())
            evidence = await detector.read_evidence()
            assert evidence.kubelet_endpoint == endpoint
            assert [each.socket for each in evidence.candidates] == sockets


async def test_a_left_over_socket_is_a_candidate_that_does_not_answer(host: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(host / "run/containerd/containerd.sock"))
    (candidate,) = (await make_detector(host).read_evidence()).candidates
    assert not candidate.answers
    assert candidate.problem


@pytest.mark.parametrize(
    ("name", "kind"),
    [("x.sock", RuntimeKind.CONTAINERD), ("crio2.sock", RuntimeKind.CRIO), ("docker2.sock", RuntimeKind.DOCKER)],
)
async def test_a_configured_socket_is_looked_at_besides(host: Path, name: str, kind: RuntimeKind) -> None:
    """Even one that is not there yet."""
    (candidate,) = (await make_detector(host, Path(f"/{name}")).read_evidence()).candidates
    assert (candidate.kind, candidate.answers) == (kind, False)


async def test_docker_is_asked_in_its_own_way(host: Path) -> None:
    """Over HTTP on its socket; before it knew CDI it does not tell."""
    answers = [
        json.dumps(DOCKER_TELLS).encode(),
        b'{"x": 1}',
        b"[",
        b"[]",
    ]

    async def answer(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            body = answers.pop(0)
            await stream.send(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    path = str(host / "docker.sock")
    listener = await anyio.create_unix_listener(path)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        told = await anyio.to_thread.run_sync(ask_docker, path)
        assert told == CriAnswer(
            name="docker",
            version="28.2.1",
            cdi_enabled=True,
            handlers=("runc", "nvidia"),
            programs={"nvidia": "/shim"},
            default_handler="runc",
        )
        assert (await anyio.to_thread.run_sync(ask_docker, path)).cdi_enabled is None
        with pytest.raises(RuntimeSilent):
            await anyio.to_thread.run_sync(ask_docker, path)
        assert (await anyio.to_thread.run_sync(ask_docker, path)).version == ""
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("arguments", "endpoint"),
    [
        (("kubelet", "--container-runtime-endpoint", "unix:///x.sock"), "/x.sock"),
        (("kubelet", "--container-runtime-endpoint=/y.sock"), "/y.sock"),
        (("kubelet", "--container-runtime-endpoint"), ""),
        (("kubelet",), ""),
    ],
)
def test_the_kubelets_endpoint_is_in_its_command_line(arguments: tuple[str, ...], endpoint: str) -> None:
    """In either spelling; without it, it is not known."""
    assert parse_kubelet_endpoint(arguments) == endpoint


def test_nobody_listening_has_no_pid(host: Path) -> None:
    """A missing socket has no process."""
    assert read_peer_pid(host / "missing") is None
