"""Each wall of docs/architecture.md, chapter 2, stands where it is said to: an import planted through it is found."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nodeagent

ROOT = Path(nodeagent.__file__).parents[1]

LINES = "a line may import anything to its right"
COMPONENTS = "components never import one another"
EXTENDER = "the extender is a program of its own: no component of the node's is in it"
RULES = "rules know settings and the vocabulary, nothing else"
EDGES = "edges meet only in edge.host and edge.grpc"
SIDES = "each module of edge.nvml is the agent's, the worker's, or knows neither"
NATIVE = "no native call runs in the agent's process"
C = "nothing imports the room of the programs in C"
WITHOUT = "the agent does without the simulator"
UPWARDS = "the simulator is built upwards: GPUs, kubelet and MPS daemons, the cluster, the node, the command"
TOUCHES = "simulated GPUs and daemons touch nothing outside of the process"
VOCABULARY = "simulated GPUs and the stand-in kubelet know nothing of the agent's parts"
WORKER = "the worker process carries nothing of the agent's"

PLANTED: tuple[tuple[str, str, str], ...] = (
    (LINES, "nodeagent.core.life.backoff", "nodeagent.model.values"),
    (LINES, "nodeagent.model.wording", "nodeagent.core.clock"),
    (LINES, "nodeagent.model.labels", "nodeagent.edge.kube.errors"),
    (LINES, "nodeagent.edge.kube.errors", "nodeagent.config.live"),
    (LINES, "nodeagent.config.live", "nodeagent.rules.ids"),
    (LINES, "nodeagent.rules.ids", "nodeagent.components.cdi.spec"),
    (LINES, "nodeagent.components.web.verdict", "nodeagent.app.plan"),
    (LINES, "nodeagent.app.errors", "nodeagent.cli.version"),
    (COMPONENTS, "nodeagent.components.labeler.values", "nodeagent.components.exporter.series.rates"),
    (COMPONENTS, "nodeagent.components.exporter.series.rates", "nodeagent.components.web.verdict"),
    (RULES, "nodeagent.rules.mig.profiles", "nodeagent.core.clock"),
    (LINES, "nodeagent.components.web.verdict", "nodeagent.extender.rank"),
    (LINES, "nodeagent.app.errors", "nodeagent.extender.rank"),
    (EXTENDER, "nodeagent.extender.rank", "nodeagent.components.offering.decide"),
    (EXTENDER, "nodeagent.extender.messages", "nodeagent.app.errors"),
    (EXTENDER, "nodeagent.extender.gpu_pod", "nodeagent.cli.version"),
    (RULES, "nodeagent.rules.selectors", "nodeagent.edge.host.files.pseudo_file"),
    (RULES, "nodeagent.rules.cdi_names", "anyio"),
    (EDGES, "nodeagent.edge.kube.errors", "nodeagent.edge.kubelet.errors"),
    (EDGES, "nodeagent.edge.host.files.pseudo_file", "nodeagent.edge.nvml.errors"),
    (WITHOUT, "nodeagent.app.hardware", "nodeagent_sim.node"),
    (WITHOUT, "nodeagent.cli.agent.settings", "nodeagent_sim.gpus.profile"),
    (WITHOUT, "nodeagent.model.wording", "nodeagent_sim.gpus.hardware"),
    (UPWARDS, "nodeagent_sim.gpus.world", "nodeagent_sim.kubelet.pods"),
    (UPWARDS, "nodeagent_sim.cluster", "nodeagent_sim.command"),
    (TOUCHES, "nodeagent_sim.gpus.world", "nodeagent.edge.kubelet.errors"),
    (TOUCHES, "nodeagent_sim.mps", "nodeagent.edge.mps.host"),
    (VOCABULARY, "nodeagent_sim.gpus.sample", "nodeagent.rules.ids"),
    (VOCABULARY, "nodeagent_sim.kubelet.pods", "nodeagent.config.schema"),
    (C, "nodeagent_sim.node", "nodeagent.native"),
    (SIDES, "nodeagent.edge.nvml.worker.main", "nodeagent.edge.nvml.agent.suspects"),
    (SIDES, "nodeagent.edge.nvml.errors", "nodeagent.edge.nvml.worker.mig"),
    (NATIVE, "nodeagent.edge.nvml.agent.usage", "pynvml"),
    (NATIVE, "nodeagent.edge.nvml.agent.sampling", "nodeagent.edge.nvml.worker.main"),
    (C, "nodeagent.edge.host.vgpu.layout", "nodeagent.native"),
    (WORKER, "nodeagent.edge.nvml.worker.sample", "nodeagent.model.wording"),
    (WORKER, "nodeagent.edge.nvml.worker.mig", "structlog"),
)
"""The contract, and an import that it forbids."""


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the linter says of a copy of the package with all of them planted, contract by contract."""
    copy = tmp_path_factory.mktemp("planted")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for name in ("nodeagent", "nodeagent_sim"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for _, place, name in PLANTED:
        with (copy / place.replace(".", "/")).with_suffix(".py").open("a") as file:
            file.write(f"\nimport {name}\n")
    unnamed = copy / "nodeagent" / "edge" / "nvml" / "unnamed.py"
    unnamed.write_text("")
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=copy,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    _, _, broken = done.stdout.partition("Broken contracts")
    names = dict.fromkeys(name for name, _, _ in PLANTED)
    places = sorted((broken.find(f"\n{name}\n"), name) for name in names)
    ends = [place for place, _ in places[1:]] + [len(broken)]
    return {name: broken[place:end] if place >= 0 else "" for (place, name), end in zip(places, ends, strict=True)}


@pytest.mark.parametrize(("contract", "place", "name"), PLANTED)
def test_planted_import_is_found(findings: dict[str, str], contract: str, place: str, name: str) -> None:
    """The contract that forbids the import names it."""
    assert f"{place} -> {name}" in findings[contract]


def test_module_without_a_side_is_found(findings: dict[str, str]) -> None:
    """Whoever adds a module beside the GPU worker says whose it is."""
    assert "unnamed" in findings[SIDES]
