"""Everything of the agent that reads YAML survives YAML made to kill it; in processes of their own, which may die."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from nodeagent.components.cdi.registry import parse_spec
from nodeagent.config.imports.recognise import NotRecognised, import_text
from nodeagent.config.tree import Origin
from nodeagent.config.yaml_tree import parse_yaml
from nodeagent.edge.container_runtime.kubelet_endpoint import parse_kubelet_config
from nodeagent.edge.http.errors import HttpError
from nodeagent.edge.http.web_config import read_web_config
from nodeagent.edge.kube.kubeconfig.child import read_kubeconfig
from nodeagent.edge.kube.kubeconfig.words import Question
from nodeagent.model.cdi import SpecContent
from nodeagent.model.errors import NodeagentError
from nodeagent_sim.gpus.profile import load_profile
from tests.support.texts.hostile_yaml import HOSTILE

pytestmark = [pytest.mark.slow, pytest.mark.may_block("other processes do the work")]


READERS: Mapping[str, Callable[[Path], object]] = {
    "specification": lambda path: parse_spec(SpecContent(path="/etc/cdi/x.yaml", content=path.read_bytes())),
    "configuration": lambda path: parse_yaml(path.read_text(), lambda line: Origin("file", "f", line)),
    "import": lambda path: import_text("f", path.read_text()),
    "web": read_web_config,
    "kubeconfig": lambda path: read_kubeconfig(Question(str(path), str(path.parent))),
    "profile": lambda path: load_profile(str(path)),
    "kubelet": lambda path: parse_kubelet_config(path.read_bytes()),
}


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS)
def test_hostile_yaml_kills_no_reader(reader: str, tmp_path: Path) -> None:
    """Each text is read or refused, in the same process as the ones before it."""
    for name, text in HOSTILE.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "tests.component.test_hostile_yaml", reader, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    assert (done.returncode, done.stdout.split(",")) == (0, sorted(HOSTILE)), done.stderr


def read_all(reader: str, directory: Path) -> str:
    """Names of the texts that were read or refused as they should be."""
    survived = []
    for path in sorted(directory.iterdir()):
        with suppress(NodeagentError, HttpError, NotRecognised):
            READERS[reader](path)
        survived.append(path.name)
    return ",".join(survived)


if __name__ == "__main__":
    sys.stdout.write(read_all(sys.argv[1], Path(sys.argv[2])))
