"""The image, built by an engine from `deploy/Dockerfile` and run as the chart's DaemonSet.

Other scenarios take an image that is made without an engine; that the two are the same, file by file, is held here.
"""

import hashlib
import io
import json
import os
import secrets
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import pytest

from tests.deploy.dist import build as build_distribution
from tests.deploy.dist import judge_wheel
from tests.fakes.nvml.control import FakeNvml
from tests.integration.cluster.control import Cluster
from tests.integration.cluster.making.images import ARCHITECTURES
from tests.integration.cluster.pods import Pods, render_pod
from tests.integration.cluster.processes import wait_until
from tests.integration.deployment import EPOCH, REPOSITORY, Deployment, deployed
from tests.integration.host_driver import WORKER_ENVIRONMENT, installed_driver
from tests.integration.machine.emulation import Emulation, NotEmulated, emulated_aarch64
from tests.integration.machine.engine import Engine, open_engine, serve_index
from tests.integration.machine.image import lay_context, make_image, render_config, write_archive
from tests.integration.machine.roots import (
    make_debian,
    make_foreign_debian,
    make_foreign_wheelhouse,
    make_wheelhouse,
)

pytestmark = pytest.mark.timeout(900)
GPU = "nvidia.com/gpu"
CDI_ON, CDI_OFF = "enable_cdi = true", "enable_cdi = false"
PATIENCE_SECONDS = 60.0
EMULATED_SECONDS = 1500.0
KERNELS = ("dev", "proc", "sys", "run", "tmp")
"""What a container finds there is not the image's."""
UNLIKE = {"etc/hosts", "var/cache/ldconfig/aux-cache"}
"""The place of a mount of the engine's, and numbers of files on the disk of whoever built it."""


@dataclass(frozen=True, slots=True)
class Built:
    """The image as an engine made it."""

    reference: str
    said: dict[str, Any]
    """By the engine."""
    archive: Path

    @property
    def tag(self) -> str:
        return self.reference.rpartition(":")[2]


@pytest.fixture(scope="module")
def wheel_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` writes, the programs of every processor in it; nobody asks for it but those who build images."""
    if shutil.which("podman") is None:
        pytest.skip("no engine to build the image with: apt-get install podman")
    directory = tmp_path_factory.mktemp("image") / "dist"
    directory.mkdir()
    wheel, _ = build_distribution(directory, EPOCH)
    assert judge_wheel(wheel) == []
    return directory


@pytest.fixture(scope="module")
def built(wheel_directory: Path) -> Built:
    """Built once for all; the engine and all that it kept are gone by then."""
    place, reference = wheel_directory.parent, f"{REPOSITORY}:{secrets.token_hex(6)}"
    architecture = ARCHITECTURES[os.uname().machine]
    with open_engine() as engine, serve_index(make_wheelhouse()) as index:
        engine.import_base(make_debian(), architecture)
        engine.build(_lay(place / "context", wheel_directory), reference, f"--build-arg=PIP_INDEX_URL={index}")
        engine.save(reference, place / "image.tar")
        return Built(reference, engine.inspect(reference), place / "image.tar")


def _lay(place: Path, wheel_directory: Path) -> Path:
    place.mkdir()
    return lay_context(place, wheel_directory)


def test_an_engine_makes_the_same_image_as_the_other_scenarios_use(built: Built, wheel_directory: Path) -> None:
    """Each file, with its rights and owner, and all that a container is told: what is tried is what is shipped."""
    stand_in = make_image(wheel_directory)
    archive = wheel_directory.parent / "stand-in.tar"
    write_archive(stand_in, "localhost/stand-in:1", archive)
    ours, theirs = read_image(built.archive), read_image(archive)
    archive.unlink()
    assert sorted(path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path)) == []
    told = render_config(stand_in.stage)
    assert {name: built.said["Config"][name] for name in told} == told


def test_nothing_of_its_building_is_left_in_the_image(built: Built) -> None:
    """No wheel, installer, list of packages, index of a mirror or program of another processor."""
    files = read_image(built.archive)
    assert "opt/nodeagent/bin/nodeagent" in files
    folders = [path for path in files if path.startswith(("build", "var/lib/apt/lists/", "var/log/"))]
    assert folders == []
    names = {PurePosixPath(path).name for path in files}
    assert not {"pip", "pip3", "ensurepip", "machine-id", "pip.conf"} & names
    machines = {path.rpartition("/")[2] for path in files if path.rpartition("/")[0].endswith("native/built")}
    assert machines == {os.uname().machine}
    assert "127.0.0.1" not in json.dumps(built.said)


def read_image(archive: Path) -> dict[str, tuple[object, ...]]:
    """Every file of an image that a container sees, with what tells it from another; layers laid over one another."""
    found: dict[str, tuple[object, ...]] = {}
    with tarfile.open(archive) as outer:
        for layer in _list_layers(outer):
            with tarfile.open(fileobj=layer) as content:
                for member in content:
                    _lay_over(found, content, member)
    hidden = tuple(f"{name}/" for name in KERNELS)
    return {
        path: is_so for path, is_so in found.items() if not path.startswith(hidden) and path not in {*KERNELS, *UNLIKE}
    }


def _list_layers(outer: tarfile.TarFile) -> Iterator[IO[bytes]]:
    """Of an archive as engines write them, or as Docker once did."""
    names = outer.getnames()
    if "manifest.json" in names:
        (manifest,) = json.load(_read(outer, "manifest.json"))
        yield from (_read(outer, name) for name in manifest["Layers"])
        return
    (entry,) = json.load(_read(outer, "index.json"))["manifests"]
    for layer in json.load(_read(outer, _blob(entry)))["layers"]:
        yield io.BytesIO(_read(outer, _blob(layer)).read())


def _blob(entry: dict[str, str]) -> str:
    return f"blobs/{entry['digest'].replace(':', '/')}"


def _read(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    assert found is not None
    return found


def _lay_over(found: dict[str, tuple[object, ...]], content: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name).as_posix().strip("/")
    name = path.rpartition("/")[2]
    if name.startswith(".wh."):
        gone = path.removesuffix(name) + name.removeprefix(".wh.")
        for each in [each for each in found if each == gone or each.startswith(f"{gone}/")]:
            del found[each]
        return
    # Which of two names of one file comes first is chance.
    file = content.extractfile(member) if member.isreg() or member.islnk() else None
    inside = hashlib.sha256(file.read()).hexdigest() if file is not None else member.linkname
    kind = "file" if file is not None else member.type
    found[path] = (kind, member.mode & 0o7777, member.uid, member.gid, inside)


@pytest.fixture
def imported(node: Cluster, built: Built) -> Iterator[Built]:
    """The node's containerd has the image, and no other has."""
    node.images("import", "--local", str(built.archive))
    yield built
    node.images("remove", built.reference)


@pytest.fixture
def without_cdi(node: Cluster) -> Iterator[Path]:
    """A containerd that takes no CDI devices; its configuration, which must be as it was when all is taken back."""
    config = node.layout.config("containerd")
    before = config.read_text()
    assert CDI_ON in before
    config.write_text(before.replace(CDI_ON, CDI_OFF))
    node.restart_containerd()
    yield config
    config.write_text(before)
    find_drop_in(config).unlink(missing_ok=True)
    node.restart_containerd()


def find_drop_in(config: Path) -> Path:
    """What the agent writes beside it."""
    return config.parent / "conf.d/zz-nodeagent.toml"


@pytest.fixture
def driver(node: Cluster) -> Iterator[FakeNvml]:
    with installed_driver(node.layout) as fake:
        yield fake


@pytest.fixture
def deployment(node: Cluster, driver: FakeNvml, imported: Built) -> Iterator[Deployment]:
    """Nothing of ours but the engine's image, and what it takes to install it."""
    with deployed(node, imported.tag) as made:
        yield made


def read_codes(deployment: Deployment) -> list[str]:
    """Codes of the agent's conditions."""
    said = json.loads(deployment.exec("sh", "-c", "nodeagent status --json || true"))
    return [each["code"] for each in said["conditions"]]


def wait_codes(deployment: Deployment, codes: list[str]) -> None:
    def probe() -> str | None:
        return None if (found := read_codes(deployment)) == codes else f"conditions {found}"

    wait_until(f"the conditions {codes}", probe, timeout_seconds=PATIENCE_SECONDS)


def test_the_engines_image_as_daemonset_brings_a_runtime_to_cdi_and_gives_it_back(
    without_cdi: Path, deployment: Deployment, node: Cluster, pods: Pods
) -> None:
    """From its pod it asks containerd, proves a change on the side and writes it; after the restart pods have GPUs.

    Who then takes the agent away finds the configuration as it was, byte for byte.
    """
    before, drop_in = without_cdi.read_bytes(), find_drop_in(without_cdi)
    # Its pod sees the kubelets of other test runs on this machine too.
    runtime = {"manage": True, "socket": str(node.layout.containerd_socket)}
    deployment.install({"driver": {"worker_environment": WORKER_ENVIRONMENT}, "runtime": runtime})
    pod = deployment.wait_ready()
    assert pod["spec"]["containers"][0]["image"] == deployment_image(deployment)
    wait_codes(deployment, ["runtime-restart-needed"])
    assert CDI_ON in drop_in.read_text()
    events = json.loads(deployment.exec("nodeagent", "events", "--json"))
    (configured,) = find_facts(events, "RuntimeConfigured")
    assert configured.get("unproved", "") == "", "containerd was started on the side, in the host's root"

    node.restart_containerd()
    wait_codes(deployment, [])
    pods.run(render_pod("worker", limits={GPU: 2}))
    seen = pods.exec("worker", "ls", "/dev", "/usr/lib/x86_64-linux-gnu").split()
    assert len([name for name in seen if name.removeprefix("nvidia").isdigit()]) == 2
    assert {"nvidiactl", "libcuda.so.1"} <= {*seen}
    pods.delete("worker")

    deployment.helm(
        "upgrade", "nodeagent", str(deployment.chart), "--reset-then-reuse-values", "--set", "uninstall=true"
    )
    deployment.kubectl("rollout", "status", "daemonset/nodeagent", "--timeout=60s")
    told = deployment.kubectl("logs", "daemonset/nodeagent", "--container", "uninstall")
    assert without_cdi.read_bytes() == before, told
    assert not drop_in.exists(), told


def deployment_image(deployment: Deployment) -> str:
    return f"{REPOSITORY}:{deployment.tag}"


def find_facts(events: Any, kind: str) -> list[dict[str, Any]]:
    return [each["value"] for each in events if each["type"] == kind]


@pytest.fixture(scope="module")
def emulation() -> Iterator[Emulation]:
    """Where programs for aarch64 run; a machine whose kernel has no such place says so."""
    try:
        with emulated_aarch64() as place:
            yield place
    except NotEmulated as error:
        pytest.skip(str(error))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_the_image_is_built_for_aarch64_too(emulation: Emulation, wheel_directory: Path, tmp_path: Path) -> None:
    """Under emulation from an aarch64 Debian; the agent in it starts, with the programs of that processor alone."""
    reference = f"{REPOSITORY}:{secrets.token_hex(6)}"
    wheels, debian = make_foreign_wheelhouse("aarch64"), make_foreign_debian("arm64", emulation.enter)
    with open_engine(emulation) as engine, serve_index(wheels) as index:
        engine.import_base(debian, "arm64")
        words = ("--platform=linux/arm64", f"--build-arg=PIP_INDEX_URL={index}")
        context = _lay(tmp_path / "context", wheel_directory)
        engine.build(context, reference, *words, timeout_seconds=EMULATED_SECONDS)
        assert engine.inspect(reference)["Architecture"] == "arm64"
        root = engine.run("image", "mount", reference)
        assert run_in(engine, root, "opt/nodeagent/bin/nodeagent", "--version").startswith("nodeagent ")
        say_machine = "import platform; print(platform.machine())"
        assert run_in(engine, root, "opt/nodeagent/bin/python", "-c", say_machine) == "aarch64\n"
        find = ("find", "/opt/nodeagent/lib", "-path", "*/native/built/*", "-type", "d", "-printf", "%f\n")
        assert run_in(engine, root, *find) == "aarch64\n"


def run_in(engine: Engine, root: str, *command: str) -> str:
    """What a program of the image prints."""
    done = subprocess.run(
        engine.enter("chroot", root, *command), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
