"""`containers`: what every container with a GPU finds besides."""

from pathlib import Path

import pytest

from nodeagent.config.compound import plain_section
from nodeagent.config.knobs import knobs_of
from nodeagent.config.load import decide_settings
from nodeagent.config.reload import decide_reload
from nodeagent.config.schema import Settings
from nodeagent.config.sections.containers import ContainersSettings, ExtraDevice
from nodeagent.config.sections.containers_rules import OWN_VARIABLES
from tests.unit.config.helpers import load_text, problems_of, tree_of

ZERO = Path("/dev/zero")


@pytest.mark.parametrize(
    ("written", "device"),
    [
        ("[/dev/zero]", ExtraDevice(host=ZERO)),
        ("/dev/zero", ExtraDevice(host=ZERO)),
        ("[{host: /dev/zero}]", ExtraDevice(host=ZERO)),
        (
            "[{host: /dev/zero, container: /dev/nought, permissions: r}]",
            ExtraDevice(host=ZERO, container=Path("/dev/nought"), permissions="r"),
        ),
    ],
)
def test_a_device_is_a_path_or_a_mapping(tmp_path: Path, written: str, device: ExtraDevice) -> None:
    """What `config show` prints is read as the same."""
    found = load_text(tmp_path, f"containers: {{extra_devices: {written}}}").settings.containers
    assert found.extra_devices == (device,)
    assert device.place == str(device.container or ZERO)
    again = decide_settings([tree_of(f"containers: {plain_section(found)}".replace("None", "null"))]).settings
    assert again.containers == found


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("[zero]", "containers.extra_devices[0]: value 'zero' is refused; give an absolute path"),
        ("[[/dev/zero]]", "containers.extra_devices[0]: value a list of 1 is refused; give"),
        ("[{container: /dev/a}]", "containers.extra_devices[0].host: the key is missing; give an absolute path"),
        ("[{host: /dev/a, permissions: x}]", "containers.extra_devices[0].permissions: value 'x' is refused"),
        ("[{host: /dev/a, mode: 4}]", "containers.extra_devices[0].mode: unknown key"),
    ],
)
def test_what_is_no_device_is_refused(tmp_path: Path, written: str, complaint: str) -> None:
    """By place and wanted form."""
    assert complaint in str(problems_of(tmp_path, f"containers: {{extra_devices: {written}}}"))


def test_the_settings_take_effect_on_a_reload(tmp_path: Path) -> None:
    """As those of the specifications do in which they are written."""
    text = "containers: {layout: usr_local_nvidia, extra_devices: [/dev/fuse], extra_environment: {POOL: a}}"
    plan = decide_reload(Settings(), load_text(tmp_path, text).settings)
    assert {change.path for change in plan.changed_reloadable} == {
        f"containers.{key}" for key in knobs_of(ContainersSettings)
    }
    assert not plan.changed_needs_restart


def test_the_agents_own_variables_are_those_that_it_sets(tmp_path: Path) -> None:
    """A variable for programs that use GPUs is the configuration's, though its name begins the same."""
    assert {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_IMEX_CHANNELS", "NVIDIA_CTK_LIBCUDA_DIR"} < OWN_VARIABLES
    text = "containers: {extra_environment: {NVIDIA_TF32_OVERRIDE: '0'}}"
    assert load_text(tmp_path, text).settings.containers.extra_environment == {"NVIDIA_TF32_OVERRIDE": "0"}
