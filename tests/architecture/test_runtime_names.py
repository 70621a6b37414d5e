"""What is known of a container runtime stands in its record: elsewhere its name is not needed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import nodeagent
from nodeagent.components.runtime.planners import PLANNERS
from nodeagent.config.sections.containers import RuntimeSettings
from nodeagent.model.runtime import RuntimeFlavour, RuntimeKind
from nodeagent.model.runtimes import RUNTIMES

ROOT = Path(nodeagent.__file__).parent
NAME = re.compile(r"containerd(?![a-z])|CONTAINERD|Containerd|(?i:cri-?o\b|crio|docker|podman)")

ALLOWED = {
    "model/runtime.py": "the names themselves",
    "model/runtimes/": "the records, a file each",
    "config/sections/containers.py": "the words of `runtime.kind`; a type cannot be computed",
    "config/imports/gpu_operator.py": "settings of another program, by its names",
    "config/imports/gpu_manager.py": "options of another program, by their names",
    "cli/commands/outputs.py": "help says whose program is started on the side",
    "edge/container_runtime/cri.py": "containerd's configuration in its answer",
    "edge/container_runtime/config_files.py": "what a missing import does to containerd",
    "edge/container_runtime/detect.py": "asks Docker, which speaks no CRI",
    "edge/container_runtime/docker.py": "the protocol of Docker",
    "edge/container_runtime/trial.py": "starts containerd on the side",
    "rules/kubernetes_versions.py": "the runtimes that later kubelets take no longer",
    "components/runtime/containerd_config.py": "how containerd's releases read their files",
    "components/runtime/containerd_template.py": "what MicroK8s makes of its template for containerd",
    "components/runtime/plan_containerd.py": "its plan",
    "components/runtime/plan_crio.py": "its plan",
    "components/runtime/plan_docker.py": "its plan",
    "components/runtime/plan_podman.py": "its plan",
    "components/runtime/planners.py": "who plans for which",
    "components/runtime/prove.py": "proofs with containerd",
    "components/runtime/trial.py": "containerd's tables for a proof",
}
"""Where runtimes are named beside their records, and why."""


def find_mentions(source: str) -> Iterator[str]:
    """Names and texts of the code that name a runtime; what only people read in passing is none."""
    tree = ast.parse(source)
    prose = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in prose:
                words = text
            case (
                ast.Name(id=words) | ast.Attribute(attr=words) | ast.FunctionDef(name=words) | ast.ClassDef(name=words)
            ):
                pass
            case _:
                continue
        if NAME.search(words):
            yield words


@pytest.mark.long
def test_runtimes_are_named_in_their_records() -> None:
    """A new mention elsewhere is a fact that belongs into the record; a reason that is gone leaves the list."""
    found = {
        path.relative_to(ROOT).as_posix(): list(find_mentions(path.read_text()))
        for path in sorted(ROOT.rglob("*.py"))
        if not path.stem.endswith("_pb2")
    }
    mentions = {path: words for path, words in found.items() if words}
    assert {path: words for path, words in mentions.items() if not path.startswith(tuple(ALLOWED))} == {}
    assert {place for place in ALLOWED if not any(path.startswith(place) for path in mentions)} == set()


def test_the_look_would_see_a_mention() -> None:
    """Of every form; `ContainerDevices` and docstrings are none."""
    source = "'''containerd'''\nclass ContainerDevices: ...\nif kind is RuntimeKind.CRIO: stop('/run/docker.sock')\n"
    assert sorted(find_mentions(source)) == ["/run/docker.sock", "CRIO"]


def test_every_runtime_has_a_record_a_planner_and_a_word_in_the_settings() -> None:
    """Whoever adds one is told what is missing."""
    known = set(RuntimeKind) - {RuntimeKind.UNKNOWN}
    assert set(RUNTIMES) == set(PLANNERS) == known
    words = get_args(RuntimeSettings.__annotations__["kind"])
    assert set(words) == {"auto", *(record.setting for record in RUNTIMES.values())}
    places = [place for record in RUNTIMES.values() for place in record.places]
    assert {place.flavour for place in places} == set(RuntimeFlavour)
    assert all(record.places[0].flavour is RuntimeFlavour.PLAIN for record in RUNTIMES.values())
