"""`nodeagent devices` and `nodeagent devices discover`."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli.answers import asking
from nodeagent.cli.answers.answer import NoAgent
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.node.devices import describe_classes, tabulate_devices
from nodeagent.components.web.api.records import DeviceClassRecord, DeviceRecord
from nodeagent.config.schema import Settings
from nodeagent.model.devices import HostDevice, Standing
from nodeagent.model.ids import DeviceId
from tests.support.programs.command_line import run_here

pytestmark = pytest.mark.may_block("commands read files in their own short-lived loop")

KVM = HostDevice(id=DeviceId("DEV-kvm"), name="/dev/kvm", nodes=("/dev/kvm",))


class FakeAgent(NoAgent):
    """An agent that has one class."""

    def __init__(self, standing: Standing) -> None:
        device = HostDevice(id=KVM.id, name=KVM.name, nodes=KVM.nodes, standing=standing, reason="it is broken")
        record = DeviceRecord(device=device, holders=("a/b",), shares_held=1)
        self.classes = (DeviceClassRecord(resource="devices.nodeagent.io/kvm", replicas=2, devices=(record,)),)

    def read(self, path: str, kind: Any) -> Any:
        assert (path, kind) == ("/api/v1/devices", tuple[DeviceClassRecord, ...])
        return self.classes


def show(monkeypatch: pytest.MonkeyPatch, standing: Standing, *words: str) -> tuple[int, str, str]:
    agent = FakeAgent(standing)

    def find(_settings: Settings, _environ: Mapping[str, str]) -> FakeAgent:
        return agent

    monkeypatch.setattr(asking, "find_agent", find)
    return run_here("devices", *words)


def test_a_line_for_each_device_and_a_code_for_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = show(monkeypatch, Standing.HEALTHY)
    assert code == ExitCode.OK
    assert "1 of 2" in out
    code, out, _ = show(monkeypatch, Standing.UNHEALTHY)
    assert code == ExitCode.UNWELL
    assert "devices.nodeagent.io/kvm: /dev/kvm: it is broken" in out
    records = json.loads(show(monkeypatch, Standing.GONE, "--json")[1])
    assert records[0]["devices"][0]["device"]["standing"] == "gone"


def test_a_divisible_class_says_that_its_parts_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside how much of each device somebody has."""
    record = DeviceRecord(device=KVM, holders=("a/b",), cores_held=30)
    divided = DeviceClassRecord(resource="amd.com/gpu", replicas=1, devices=(record,), divisible=True)
    table = tabulate_devices((divided,))
    assert "30 of 100 cores" in table.rows[0]
    assert describe_classes((divided,)) == ["amd.com/gpu: parts are counted, not enforced"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_discover_proposes_what_the_host_has(tmp_path: Path) -> None:
    """Ready to paste; and pasted, the configuration has it."""
    (tmp_path / "dev").mkdir()
    os.mknod(tmp_path / "dev/kvm", stat.S_IFCHR | 0o600, os.makedev(10, 232))
    config = tmp_path / "config.yaml"
    config.write_text(f"node: {{host_root: {tmp_path}, sys_dir: {tmp_path}/sys}}\n")
    code, out, _ = run_here("devices", "discover", "--config", str(config))
    assert (code, out.splitlines()[-1]) == (ExitCode.OK, "    - use: kvm")
    config.write_text(config.read_text() + out)
    assert run_here("config", "check", "--config", str(config))[0] == ExitCode.OK
    assert "the configuration has it already" in run_here("devices", "discover", "--config", str(config))[1]
    assert [
        one["use"] for one in json.loads(run_here("devices", "discover", "--config", str(config), "--json")[1])
    ] == ["kvm"]
