"""The labels of every simulated node, as committed under tests/golden/labels.

Run with UPDATE_GOLDEN=1 to write them anew, and read the difference before committing it.
"""

import os
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.labeler.plan import render_features
from nodeagent.components.labeler.render import LabelFacts, render_labels
from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import LabelsSettings
from nodeagent.config.sections.plugin import DevicePluginSettings
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Inventory
from nodeagent.model.labels import NodeFacts, VendorFunction, VgpuGuest
from nodeagent_sim.gpus.profile import list_profiles, load_profile
from nodeagent_sim.gpus.source import SimulatedGpus

GOLDEN = Path(__file__).parents[3] / "golden" / "labels"
VARIANTS: dict[str, Settings] = {
    "": Settings(),
    "-single": Settings(device_plugin=DevicePluginSettings(mig_strategy="single")),
    "-mixed": Settings(device_plugin=DevicePluginSettings(mig_strategy="mixed")),
    "-per-model": Settings(labels=LabelsSettings(per_model=True)),
}
CASES = [
    *list_profiles(),
    "a100-80gb-mig-single",
    "a100-80gb-mig-mixed",
    "dgx-a100-single",
    "mixed-per-model",
]


def render_case(profile: str, settings: Settings) -> str:
    spec = load_profile(profile)
    gpus = SimulatedGpus(spec, node_name="node-1", seed=1)
    readout = anyio.run(gpus.read_inventory)
    picture = LabelFacts(
        facts=NodeFacts(
            machine_type="Made-up Server (rev. 1)",
            kernel_release="6.8.0-51-generic",
            os_id="ubuntu",
            os_version_id="24.04",
            functions=tuple(VendorFunction(address=seat.address, pci_class="0302") for seat in spec.seats),
            vgpu=VgpuGuest(),
        ),
        driver=DriverState(phase=DriverPhase.READY, driver_version=spec.driver.version, cuda_version=spec.driver.cuda),
        inventory=Inventory(generation=1, gpus=readout.gpus),
    )
    rendered = render_labels(picture, settings, {})
    assert rendered.illegal == ()
    return render_features(rendered.labels)


@pytest.mark.parametrize("case", CASES)
def test_labels_of_a_node_are_the_committed_ones(case: str) -> None:
    """No label of any known node changes unnoticed."""
    variant = next((each for each in VARIANTS if each and case.endswith(each) and case != "mixed"), "")
    text = render_case(case.removesuffix(variant), VARIANTS[variant])
    path = GOLDEN / f"{case}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_no_golden_file_is_left_over() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.txt")) == sorted(CASES)


def test_no_label_needs_more_than_one_look() -> None:
    """Rendering the same node twice gives the same labels, in the same order."""
    settings = replace(Settings(), labels=LabelsSettings(per_model=True))
    assert render_case("mixed", settings) == render_case("mixed", settings)
