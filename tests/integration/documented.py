"""How every documented command is tried: where, after what, and what comes of it where that is not success.

A command is told apart by its first word. One that is not run here is named with the reason; a name that no page has
any more is an error, and so is a command that belongs nowhere.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from tests.support.texts.markdown import PAGES, Block, find_blocks


class Where(StrEnum):
    """What has to be there for a command to mean something."""

    MACHINE = "a machine under systemd, with a driver and a kubelet"
    CLUSTER = "the real cluster"
    NOWHERE = "not run"


NOT_RUN: Final[Mapping[str, str]] = {
    "make run": "runs until it is stopped; test_simulation runs what it runs",
    "make test": "it is what runs these tests",
    "curl -sN 'localhost:9400/api/v1/events?types=XidReported,DevicesAdvertised'": (
        "the machine has no curl; tests of the API ask for the same stream"
    ),
    **dict.fromkeys(
        (
            "kubectl --namespace nodeagent exec AGENT_POD -- nodeagent release --for 15m --reason 'driver upgrade'",
            "kubectl --namespace nodeagent exec AGENT_POD -- nodeagent release --for 15m --reason 'driver pod'",
            "kubectl --namespace nodeagent exec AGENT_POD -- nodeagent resume",
            "kubectl --namespace nodeagent delete pod DRIVER_POD",
            (
                "kubectl --namespace nodeagent wait pod --selector app.kubernetes.io/name=nodeagent-driver"
                " --field-selector spec.nodeName=NODE --for=condition=Ready --timeout=20m"
            ),
            (
                "kubectl --namespace nodeagent delete daemonset --selector app.kubernetes.io/name=nodeagent-driver"
                " --cascade=orphan"
            ),
            "kubectl --namespace gpu-operator scale deployment gpu-operator --replicas=0",
            "kubectl --namespace gpu-operator delete daemonset nvidia-driver-daemonset --cascade=orphan",
            "kubectl --namespace gpu-operator delete pod OPERATORS_DRIVER_POD",
            (
                "kubectl drain NODE --ignore-daemonsets --delete-emptydir-data"
                " --pod-selector 'app.kubernetes.io/component!=nvidia-driver'"
            ),
            "helm upgrade nodeagent deploy/chart --namespace nodeagent --reset-then-reuse-values --values driver.yaml",
        ),
        "no image of NVIDIA's driver is there to be run; tests/deploy has what the chart makes of it",
    ),
    **dict.fromkeys(
        (
            "nodeagent claims explain ml/train-0-gpu",
            "kubectl get resourceclaim -n ml train-0-gpu -o jsonpath='{.status.devices}'",
            "nodeagent fractions explain ml/train-0",
            "nodeagent fractions set ml/train-0 --cores 50 --memory 8GiB",
            (
                "kubectl get pod -n ml train-0 -o"
                """ jsonpath='{.status.conditions[?(@.type=="nodeagent.io/GPUFault")].message}'"""
            ),
        ),
        "no pod of that name runs anywhere; tests of the component have what the agent answers",
    ),
}

INSTALLING: Final = frozenset(
    f"docs/installation.md: {heading}"
    for heading in (
        "One machine, 1",
        "With pipx, 1",
        "As a Debian package, 1",
        "Leave, 1",
        "Leave, 2",
        "Leave, 3",
        "Leave, 4",
    )
)
"""Blocks that test_install follows, way by way."""

MOVING: Final = frozenset(
    f"docs/migration/{page}.md: Move {where}, 1"
    for page in ("gpu-manager", "hami", "dra-driver", "mig-parted")
    for where in ("a node", "back")
)
"""Blocks that test_migration follows, with a stand-in for who was there before."""

ENDLESS: Final = frozenset(
    {
        "nodeagent run",
        "nodeagent simulate",
        "nodeagent status --watch",
        "nodeagent events --follow",
        # Whose API server is not there (yet): it keeps trying, as it does beside one that is being restarted.
        "nodeagent extender --set kubernetes.kubeconfig=/etc/kubernetes/admin.conf",
    }
)
"""Run until they are stopped: after some seconds they must still be there."""

NO_RUNTIME: Final = "the machine has no container runtime, and the answer says so"
NO_CLUSTER: Final = "the machine is in no cluster"
NO_PCI: Final = "fake GPUs are on no PCI bus"
WELL: Final = "the GPU is well, there is nothing to clear"
NO_CUTTING: Final = "the agent of the machine cuts no GPUs"
NO_PART: Final = "the GPUs of the machine are given whole"
NOT_MISSED: Final = "the GPU is there, nobody misses it"
NO_CUDA: Final = "the fake driver of the machine has no CUDA library: the GPU could not be tested"
NO_SESSION: Final = "repairs are off, so there is no fault session"
NO_UPGRADES: Final = "the agent of the machine upgrades no driver"
NO_COUNTERPART: Final = "1 says that something in the file has no counterpart"

STATUS: Final[Mapping[str, tuple[int, str]]] = {
    "nodeagent claims explain ml/train-0-gpu": (2, NO_PART),
    "nodeagent doctor": (6, NO_PCI),
    "nodeagent doctor --bundle report.tar.gz": (6, NO_PCI),
    "nodeagent doctor --gpus simulated:dgx-h100": (1, "it warns of the runtime and the clock of the machine"),
    "nodeagent cluster publish": (2, NO_CLUSTER),
    "nodeagent cluster status": (2, NO_CLUSTER),
    "nodeagent cluster status --wait 10m": (2, NO_CLUSTER),
    "nodeagent cluster status -o name": (2, NO_CLUSTER),
    "nodeagent extender": (2, NO_CLUSTER),
    "nodeagent fractions explain ml/train-0": (2, NO_PART),
    "nodeagent fractions set ml/train-0 --cores 50 --memory 8GiB": (2, NO_PART),
    "nodeagent driver pause": (2, NO_UPGRADES),
    "nodeagent driver resume": (2, NO_UPGRADES),
    "nodeagent driver abort": (2, NO_UPGRADES),
    "nodeagent gpu clear 3 --reason 'board replaced'": (2, WELL),
    "nodeagent gpu clear GPU-UUID --reason 'replaced the riser'": (2, WELL),
    "nodeagent gpu forget 3": (2, NOT_MISSED),
    "nodeagent gpu forget GPU-UUID": (2, NOT_MISSED),
    "nodeagent gpu validate": (1, NO_CUDA),
    "nodeagent gpu prove 3": (4, NO_CUDA),
    "nodeagent gpu prove 3 --stage proof": (4, NO_CUDA),
    "nodeagent gpu prove 3 --stage soak --json": (4, NO_CUDA),
    "nodeagent gpu prove all --stage proof": (4, NO_CUDA),
    "nodeagent repairs explain 3": (2, NO_SESSION),
    "nodeagent repairs explain 12": (2, NO_SESSION),
    "nodeagent mig apply all-balanced --wait": (2, NO_CUTTING),
    "nodeagent mig apply all-balanced --json --wait 10m": (2, NO_CUTTING),
    "nodeagent mig assert all-1g.10gb": (1, "the GPUs of the machine are whole"),
    "nodeagent runtime detect": (1, NO_RUNTIME),
    "nodeagent runtime plan": (4, NO_RUNTIME),
    "nodeagent runtime plan --set runtime.legacy_class=true": (4, NO_RUNTIME),
    "nodeagent runtime configure --restart": (4, NO_RUNTIME),
    "nodeagent labels": (1, "the machine is in no cluster that could have the labels"),
    "nodeagent config import cluster-policy.yaml": (1, NO_COUNTERPART),
    "nodeagent config import --values cluster-policy.yaml": (1, NO_COUNTERPART),
    "nodeagent config import --check cluster-policy.yaml": (1, NO_COUNTERPART),
    "nodeagent config import --check gpu-manager.yaml": (1, NO_COUNTERPART),
    "nodeagent config import -o config.yaml gpu-manager.yaml extra-config.json": (1, NO_COUNTERPART),
    "nodeagent config import -o config.yaml values.yaml dcp-metrics-included.csv": (1, NO_COUNTERPART),
}
"""What is not success where it is tried: the code, and why. With pipes it is the last program's."""

_CLUSTER_WORDS: Final = frozenset({"kubectl", "helm"})
_MACHINE_WORDS: Final = frozenset({"nodeagent", "systemctl", "journalctl", "python3", ".venv/bin/nodeagent"})
_COMMENT: Final = re.compile(r"\s+# .*$")


def list_commands() -> list[tuple[Block, str]]:
    """Every command of every page but those of the ways to install and to move, without its comment."""
    followed = INSTALLING | MOVING
    blocks = [block for page in PAGES for block in find_blocks(page) if block.name not in followed]
    return [(block, _COMMENT.sub("", command)) for block in blocks for command in block.commands]


def find_place(command: str) -> Where | None:
    word = command.split(maxsplit=1)[0]
    if command in NOT_RUN:
        return Where.NOWHERE
    if word in _CLUSTER_WORDS:
        return Where.CLUSTER
    return Where.MACHINE if word in _MACHINE_WORDS else None


def is_endless(command: str) -> bool:
    """Whether it runs until it is stopped."""
    ends = ("--for", "--once", "fault", "help")
    start = re.match(r"nodeagent \w+( --watch| --follow)?", command)
    if command in ENDLESS:
        return True
    return start is not None and start[0] in ENDLESS and not any(word in command.split() for word in ends)
