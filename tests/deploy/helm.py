"""Helm, built from its own source by Go, and the plain manifests that are rendered with it.

`python -m tests.deploy.helm build` builds the pinned version once; `write` renders deploy/nodeagent.yaml anew.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.files.cache import find_cache

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy/chart"
MANIFEST: Final = ROOT / "deploy/nodeagent.yaml"
VERSION: Final = "v3.18.6"
KUBERNETES: Final = "1.36.0"
NAMESPACE: Final = "nodeagent"

_HEAD: Final = """\
# nodeagent for a whole cluster, without Helm: `kubectl apply -f deploy/nodeagent.yaml`.
# Rendered from deploy/chart with its default values by `make manifests`; set `image` to where you keep yours.
---
apiVersion: v1
kind: Namespace
metadata:
  name: nodeagent
  labels:
    app.kubernetes.io/name: nodeagent
    # It mounts host directories, which no stricter level allows.
    pod-security.kubernetes.io/enforce: privileged
"""


def helm_path() -> Path:
    """Where the built program is kept."""
    return find_cache() / "helm" / VERSION / "helm"


def build_helm() -> None:
    """Build it unless that was done; Go checks every module against its checksum database."""
    path = helm_path()
    if path.exists():
        return
    environ = os.environ | {"GOBIN": str(path.parent)}
    subprocess.run(["go", "install", f"helm.sh/helm/v3/cmd/helm@{VERSION}"], check=True, env=environ)


def run_helm(*words: str) -> subprocess.CompletedProcess[str]:
    """One call, whose failure is the caller's to judge."""
    return subprocess.run([str(helm_path()), *words], capture_output=True, text=True, check=False)


def render_chart(*words: str) -> subprocess.CompletedProcess[str]:
    """The chart's objects, with these flags."""
    return run_helm("template", "nodeagent", str(CHART), "-n", NAMESPACE, "--kube-version", KUBERNETES, *words)


def render_manifest() -> str:
    """The plain manifests as they should be committed."""
    done = render_chart()
    if done.returncode:
        raise SystemExit(done.stderr)
    return _HEAD + done.stdout


def main(words: list[str]) -> int:
    """Build, and write where asked."""
    if shutil.which("go") is None and not helm_path().exists():
        sys.stderr.write("Go is needed to build Helm\n")
        return 4
    build_helm()
    if words == ["write"]:
        MANIFEST.write_text(render_manifest(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
