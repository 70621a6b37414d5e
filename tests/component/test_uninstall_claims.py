"""`nodeagent uninstall` beside claims whose pods run, and by the configuration that the node's label chose."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from nodeagent.app.node_label import NAME as LABEL_NAME
from nodeagent.app.node_label import SEAL
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.uninstall.steps import Step
from nodeagent.components.allocations.journal_format import encode_records
from nodeagent.components.allocations.ledger import Ledger, open_record
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.model.allocation import PodIdentity
from nodeagent.model.ids import GpuUuid
from nodeagent.model.journal import PreparedClaim, PreparedDevice
from nodeagent.rules.cdi_names import name_claim_file
from tests.component.test_uninstall import UsedNode, used

__all__ = ["used"]

POD_UID = "8d0c4b54-9d0e-4d9e-9b0f-4f1f5a1f0c11"


def prepare_claim(used: UsedNode, *pods: PodIdentity) -> Path:
    """A claim of a whole GPU that the agent has made ready for these pods; its specification."""
    device = PreparedDevice(requests=("gpu",), pool="node", device="gpu-0", uuid=GpuUuid("GPU-1"))
    claim = PreparedClaim(uid="77aa", namespace="ml", name="gpus", devices=(device,), since_seconds=1.0, pods=pods)
    opened = open_record(Ledger(claims={"77aa": claim}), "machine", "boot")
    (used.state / "allocations.journal").write_bytes(encode_records([opened], 0)[0])
    return used.write("cdi", name_claim_file("77aa"))


def run_pod(used: UsedNode, uid: str = POD_UID) -> Path:
    """A process of this pod, by its control group."""
    cgroup = used.write("proc/9", "cgroup")
    cgroup.write_text(f"0::/kubepods/besteffort/pod{uid}/{'c' * 64}\n")
    used.write("proc/9", "mountinfo").write_text("")
    return cgroup


def test_a_claim_of_whole_devices_keeps_its_specification_while_its_pod_runs(used: UsedNode) -> None:
    """A container of the pod may start again; the journal stays, too, as it says whose the claim is."""
    spec = prepare_claim(used, PodIdentity("ml", "train", POD_UID), PodIdentity("ml", "gone", "0" * 8))
    run_pod(used)
    for _ in range(2):
        code, out, _ = used.uninstall("--json")
        steps = {step["what"]: step for step in json.loads(out)["steps"]}
        assert code == ExitCode.OK, out
        assert steps[str(spec)]["step"] == Step.KEPT
        assert "claim ml/gpus is used by ml/train: such a pod ends when an agent" in steps[str(spec)]["detail"]
        assert steps[str(used.state / "allocations.journal")]["step"] == Step.KEPT
        kept = {str(spec), str(used.state / "allocations.journal"), str(used.root / "hooks/nodeagent-cdi-hook")}
        assert {str(path) for path in used.list_files()} - set(map(str, used.others)) >= kept
    run_pod(used, "0" * 8)
    code, out, _ = used.uninstall()
    assert code == ExitCode.OK, out
    assert not spec.exists()
    assert not used.state.exists()


def test_metadata_of_a_claim_stays_while_its_pod_runs(used: UsedNode) -> None:
    """The specification that stays has a mount of it; those of other claims go."""
    prepare_claim(used, PodIdentity("ml", "train", POD_UID))
    kept, gone = (used.write(f"state/claim-metadata/{uid}", "gpu.json") for uid in ("77aa", "88bb"))
    run_pod(used)
    code, out, _ = used.uninstall("--json", "--dry-run")
    assert (code, kept.exists(), gone.exists()) == (ExitCode.OK, True, True), out
    code, out, _ = used.uninstall("--json")
    steps = {step["what"]: step["step"] for step in json.loads(out)["steps"]}
    assert (code, kept.exists(), gone.exists()) == (ExitCode.OK, True, False), out
    assert (steps[str(kept.parent)], steps[str(gone.parent)]) == (Step.KEPT, Step.REMOVED)
    run_pod(used, "0" * 8)
    assert used.uninstall()[0] == ExitCode.OK
    assert not used.state.exists()


def test_receipts_stay_while_a_claim_has_a_mount_of_them(used: UsedNode) -> None:
    """As its specification does; those of whole devices go, as the runtime makes the folder anew."""
    prepare_claim(used, PodIdentity("ml", "train", POD_UID))
    kept, gone = (used.write(f"state/receipts/{name}", "gpus.json") for name in ("c-77aa", "a1-3e8"))
    run_pod(used)
    code, out, _ = used.uninstall("--json")
    steps = {step["what"]: step["step"] for step in json.loads(out)["steps"]}
    assert (code, kept.exists(), gone.exists()) == (ExitCode.OK, True, False), out
    assert (steps[str(kept.parent)], steps[str(gone.parent)]) == (Step.KEPT, Step.REMOVED)
    run_pod(used, "0" * 8)
    assert used.uninstall()[0] == ExitCode.OK
    assert not used.state.exists()


@pytest.mark.parametrize("uid", ["", POD_UID])
def test_a_claim_stays_where_nobody_can_say_whether_its_pod_runs(
    used: UsedNode, monkeypatch: pytest.MonkeyPatch, uid: str
) -> None:
    """A journal that names no pod, a command that sees no process, or none but its own pod's."""
    spec = prepare_claim(used, *([PodIdentity("ml", "train", uid)] if uid else []))
    if not uid:
        out = used.uninstall()[1]
        assert "ready for pods that the journal does not name" in out
    else:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "api.example")
        assert (
            "whether a pod of its claim runs is not seen from this pod"
            in used.uninstall("--set", "node.proc_dir=/proc")[1]
        )
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
        shutil.rmtree(used.root / "proc")
        assert "whether a pod of its claim runs is not to be seen" in used.uninstall()[1]
    assert spec.exists()


def test_a_node_is_left_by_the_configuration_that_its_label_chose(used: UsedNode, tmp_path: Path) -> None:
    """What an agent did by a named configuration is taken back by the same, not by the default one."""
    configs = tmp_path / "configs"
    configs.mkdir()
    elsewhere = used.root / "elsewhere"
    (configs / "plain").write_text("{}")
    (configs / "other").write_text(f"cdi: {{hook_dir: {elsewhere}}}\n")
    (tmp_path / "kubeconfig").write_text("{}")
    settings = yaml.safe_load(used.config.read_text())
    del settings["cdi"]["hook_dir"]
    settings["device_plugin"] = {"config_dir": str(configs), "default_config": "plain"}
    settings["kubernetes"] = {"kubeconfig": str(tmp_path / "kubeconfig")}
    used.config.write_text(yaml.safe_dump(settings))
    SealedFile(used.state / LABEL_NAME, *SEAL).write(b"other")
    program = used.write("elsewhere", "nodeagent-cdi-hook")
    out = used.uninstall()[1]
    assert not program.exists(), out
