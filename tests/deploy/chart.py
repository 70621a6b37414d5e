"""What the chart renders, as objects by kind and name."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.config.load import load_settings
from nodeagent.config.schema import Settings
from tests.deploy.helm import CHART, KUBERNETES, MANIFEST, NAMESPACE, helm_path, render_chart, run_helm

needs_helm = pytest.mark.skipif(not helm_path().exists(), reason="Helm is not built: python -m tests.deploy.helm build")

Object = dict[str, Any]


def read_objects(text: str) -> dict[tuple[str, str], Object]:
    documents = [document for document in yaml.safe_load_all(text) if document]
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def read_manifest() -> dict[tuple[str, str], Object]:
    return read_objects(MANIFEST.read_text())


def render_objects(*words: str) -> dict[tuple[str, str], Object]:
    done = render_chart(*words)
    assert done.returncode == 0, done.stderr
    return read_objects(done.stdout)


def pod_of(objects: dict[tuple[str, str], Object]) -> Object:
    pod: Object = objects["DaemonSet", "nodeagent"]["spec"]["template"]["spec"]
    return pod


def settings_of(objects: dict[tuple[str, str], Object], directory: Path) -> Settings:
    file = directory / "config.yaml"
    file.write_text(objects["ConfigMap", "nodeagent"]["data"]["config.yaml"])
    return load_settings(file, environ={"NODE_NAME": "a-node"}).settings


def say_notes(directory: Path, nodes: list[dict[str, str]], *words: str) -> str:
    """What Helm says after an installation in a cluster whose nodes have these labels, rendered as an object."""
    chart = shutil.copytree(CHART, directory / "chart", dirs_exist_ok=True)
    notes = (CHART / "templates/NOTES.txt").read_text()
    asked = '(lookup "v1" "Node" "" "")'
    assert notes.count(asked) == 1
    text = notes.replace(asked, '(.Files.Get "nodes.yaml" | fromYaml)')
    items = [{"metadata": {"labels": labels}} for labels in nodes]
    (chart / "nodes.yaml").write_text(yaml.safe_dump({"items": items}))
    (chart / "templates/NOTES.txt").unlink()
    document = 'kind: ConfigMap\nmetadata: {name: notes}\ndata: {text: {{ include "notes" . | toJson }}}\n'
    (chart / "templates/notes.yaml").write_text(f'{{{{- define "notes" }}}}\n{text}{{{{- end }}}}\n{document}')
    flags = ("-n", NAMESPACE, "--kube-version", KUBERNETES, "-s", "templates/notes.yaml")
    done = run_helm("template", "nodeagent", str(chart), *flags, *words)
    assert done.returncode == 0, done.stderr
    said: str = read_objects(done.stdout)["ConfigMap", "notes"]["data"]["text"]
    return said
