"""The table of docs/labels.md has every label that is ever written, and no other."""

import re
from itertools import product
from pathlib import Path

import pytest

from nodeagent.components.labeler.plan import stamp
from nodeagent.components.labeler.render import LabelFacts, render_labels
from nodeagent.config.schema import Settings
from nodeagent.config.sections.devices import DevicesSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.model.devices import DeviceClassState, DeviceTable
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.health import HealthReport
from nodeagent.model.ids import ResourceName
from nodeagent.model.labels import NodeFacts, VendorFunction, VgpuGuest
from tests.support.devices import make_class
from tests.support.gpus import make_gpu
from tests.unit.components.labeler.harness import resources
from tests.unit.components.labeler.test_golden import GOLDEN

PAGE = Path(__file__).parents[4] / "docs" / "labels.md"
_ROW = re.compile(r"^\| `([a-z.]+/[^`]+)` \|", re.MULTILINE)
_CHOICE = re.compile(r"\{([^}]*)\}")
_NAME = re.compile(r"<\w+>")


def list_documented() -> list[str]:
    """The keys of the first table, with the choices in braces written out."""
    table = PAGE.read_text(encoding="utf-8").partition("| Label | Value | There when |")[2].partition("\n\n")[0]
    keys = []
    for row in _ROW.findall(table):
        parts = _CHOICE.split(row)
        choices = (part.split(",") if number % 2 else [part] for number, part in enumerate(parts))
        keys += ["".join(words) for words in product(*choices)]
    return keys


def list_written() -> set[str]:
    """The keys of all golden files, of a guest with health and one graphics GPU, and of MIG devices all alike."""
    lines = [line for path in GOLDEN.glob("*.txt") for line in path.read_text(encoding="utf-8").splitlines()]
    gpu = make_gpu(0)
    guest = LabelFacts(
        facts=NodeFacts(
            functions=(VendorFunction(address=gpu.pci.address, pci_class="0300"),),
            vgpu=VgpuGuest(present=True, host_driver_version="550.54.16", host_driver_branch="r550_40"),
        ),
        driver=DriverState(phase=DriverPhase.READY, driver_version="570.172.08"),
        inventory=Inventory(generation=1, gpus=(gpu,)),
        health=HealthReport(generation=1),
        devices=DeviceTable(classes=(DeviceClassState(resource=ResourceName("a.com/x")),)),
    )
    classes = DevicesSettings(classes=(make_class("a.com/x", nodes=["/dev/x"], label="x"),))
    labels = stamp(render_labels(guest, Settings(devices=classes), {}).labels, {}, 1.0)
    alike = resources(
        make_gpu(0, mig=["1g.10gb"]), under=Settings(device_plugin=DevicePluginSettings(mig_strategy="single"))
    )
    return {line.partition("=")[0] for line in lines} | labels.keys() | alike.keys()


def fits(key: str, documented: str) -> bool:
    parts = (re.escape(part) for part in _NAME.split(documented))
    return re.fullmatch(".+".join(parts), key) is not None


DOCUMENTED = list_documented()
WRITTEN = sorted(list_written())


@pytest.mark.parametrize("key", WRITTEN)
def test_every_label_that_is_written_is_documented_once(key: str) -> None:
    """Whoever adds a label adds its row."""
    exact = [each for each in DOCUMENTED if each == key]
    assert len(exact or [each for each in DOCUMENTED if fits(key, each)]) == 1


@pytest.mark.parametrize("documented", DOCUMENTED)
def test_every_documented_label_is_written_somewhere(documented: str) -> None:
    """No row outlives its label."""
    assert any(fits(key, documented) for key in WRITTEN)
