"""What the agent may not have loaded when it registers its devices: pods wait for that, and for nothing of this."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nodeagent
from nodeagent.app.sides.container import CDI_MODULES, RUNTIME_MODULES
from tests.bench.around.node import bench_node, find_free_port

LATE = (
    "aiohttp",
    "google.protobuf.text_format",
    "grpclib.server",
    "html",
    "http.client",
    "http.server",
    "kubernetes_asyncio",
    "nodeagent.components.cdi.component",
    "nodeagent.components.cluster.component",
    "nodeagent.components.devices",
    "nodeagent.components.exporter",
    "nodeagent.components.fractions.component",
    "nodeagent.components.labeler",
    "nodeagent.components.runtime.component",
    "nodeagent.components.slices",
    "nodeagent.components.web",
    "nodeagent.components.wishes",
    "nodeagent.edge.container_runtime",
    "nodeagent.edge.host.devices.host_scan",
    "nodeagent.edge.http.access",
    "nodeagent.edge.http.server",
    "nodeagent.edge.kube.client",
    "nodeagent.edge.kube.slices",
    "nodeagent.edge.kubelet.registration",
    "nodeagent.edge.kubelet.registry_session",
    "nodeagent_sim",
    "nodeagent.rules.devices",
    "prometheus_client",
    "pynvml",
    "shutil",
    "tomlkit",
    "tomllib",
)
"""Modules, with all below them, that are loaded after the first `Register`, if at all."""

NEEDED = ("nodeagent.components.deviceplugin.component", "nodeagent.components.health.component")
"""Proof that the list was taken where it should be."""

AGENT = """
import os, sys
place = sys.argv[1]

def note(event, arguments):
    is_register = event == "socket.connect" and str(arguments[1]).endswith("device-plugins/kubelet.sock")
    if is_register and not os.path.exists(place):
        with open(place + ".new", "w") as file:
            file.write("\\n".join(sys.modules))
        os.rename(place + ".new", place)

sys.addaudithook(note)
from nodeagent.app import late
late.PATIENCE_SECONDS = 600.0  # on a busy machine a registration takes longer than people want to wait for the page
from nodeagent.cli.main import Streams, run_command_line
sys.exit(run_command_line(sys.argv[2:], Streams(sys.stdout, sys.stderr)))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """The agent's modules at the moment it dials the kubelet; with API credentials and parts, so that all exist."""
    place = tmp_path_factory.mktemp("start") / "modules"
    with bench_node() as node:
        wishes = ("--set", "kubernetes.enabled=auto", "--set", "kubernetes.kubeconfig=/nowhere/kubeconfig")
        parts = ("--set", "fractions.enabled=true", "--set", 'doors.rules=[{"gpus": ["7"], "door": "fractions"}]')
        words = ["run", *node.list_settings(find_free_port()), *wishes, *parts]
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(place), *words],
            # A measurement of coverage would load modules of its own into it.
            env={name: value for name, value in os.environ.items() if not name.startswith("COV")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            node.kubelet.wait("registered")
        finally:
            agent.terminate()
            agent.wait(30)
    return frozenset(Path(place).read_text().split())


@pytest.mark.parametrize("module", LATE)
def test_what_pods_do_not_wait_for_is_loaded_after_register(loaded: frozenset[str], module: str) -> None:
    """A module of the late set that gets in before `Register` would make every pod of a restarted node wait for it."""
    assert sorted(name for name in loaded if name == module or name.startswith(f"{module}.")) == []


OFF = (
    "nodeagent.app.sides.shim",
    "nodeagent.components.cdi.keep_shim",
    "nodeagent.components.cdi.plan_shim",
    "nodeagent.edge.host.shim",
    "nodeagent.model.shim",
)
"""What nobody has asked for is not loaded at all, now or later."""


def test_what_is_off_is_loaded_by_nobody() -> None:
    """The parts around the runtime shim do without it."""
    names = ["nodeagent.app.agent", *CDI_MODULES, *RUNTIME_MODULES]
    script = f"import sys, importlib; [importlib.import_module(each) for each in {names}]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True, text=True)
    loaded = done.stdout.split()
    assert "nodeagent.components.cdi.component" in loaded
    assert [name for name in loaded if name in OFF] == []


@pytest.mark.parametrize("module", NEEDED)
def test_the_look_was_taken_at_the_right_moment(loaded: frozenset[str], module: str) -> None:
    """What the registration needs is there by then."""
    assert module in loaded


def test_nothing_slow_to_make_is_made_before_register(loaded: frozenset[str]) -> None:
    """A dataclass takes 0.6 ms to be made, fifty times as long as a msgspec struct; a start would meet dozens."""
    root = Path(nodeagent.__file__).parents[1]
    places = {name: root / name.replace(".", "/") for name in loaded if name.split(".")[0] == "nodeagent"}
    files = {name: place.with_suffix(".py") for name, place in places.items()}
    sources = {name: file.read_text() for name, file in files.items() if file.exists()}
    assert sorted(name for name, source in sources.items() if "\n@dataclass(" in source) == []
    assert len(sources) > 100
