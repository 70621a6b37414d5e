"""What the chart renders, as objects by kind and name."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.config.load import load_settings
from nodeagent.config.schema import Settings
from tests.deploy.helm import MANIFEST, helm_path, render_chart

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
