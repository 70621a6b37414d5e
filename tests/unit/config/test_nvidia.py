"""Whole files of NVIDIA's device plugin."""

import re
from pathlib import Path

import pytest

from nodeagent.config.nvidia import COUNTERPARTS
from nodeagent.config.schema import Settings
from nodeagent.config.sources import walk_knobs
from tests.unit.config.helpers import load_text, problems_of

WHOLE_FILE = """\
version: v1
flags:
  migStrategy: single
  failOnInitError: true
  mpsRoot: ""
  nvidiaDriverRoot: /run/nvidia/driver
  nvidiaDevRoot: /
  gdrcopyEnabled: false
  gdsEnabled: true
  mofedEnabled: false
  useNodeFeatureAPI: true
  deviceDiscoveryStrategy: auto
  plugin:
    passDeviceSpecs: true
    deviceListStrategy: [envvar, cdi-cri]
    deviceIDStrategy: index
    cdiAnnotationPrefix: x.io/
    nvidiaCTKPath: /usr/bin/nvidia-ctk
    containerDriverRoot: /driver-root
    sharedDevicesAllocationPolicy: packed
  gfd:
    oneshot: false
    noTimestamp: false
    sleepInterval: 60s
    outputFile: /etc/kubernetes/node-feature-discovery/features.d/gfd
    machineTypeFile: /x/product_name
resources:
  gpus: [ {pattern: "*", name: gpu} ]
  mig:  [ {pattern: "1g.*", name: small} ]
sharing:
  timeSlicing:
    renameByDefault: false
    failRequestsGreaterThanOne: true
    resources:
    - name: nvidia.com/gpu
      replicas: 4
      rename: ""
      devices: all
    - {name: mig-1g.5gb, replicas: 2, devices: [0, "1:0", GPU-01234567-89ab-cdef-0123-456789abcdef]}
    - {name: gpu, replicas: 3, devices: 2, models: ["NVIDIA A100*"]}
  mps:
imex:
  channelIDs: [0]
  required: false
"""


def test_whole_file_is_read_as_ours(tmp_path: Path) -> None:
    """Sections as they are, flags as their counterparts, the rest named in notices."""
    loaded = load_text(tmp_path, WHOLE_FILE)
    settings = loaded.settings
    assert settings.device_plugin.mig_strategy == "single"
    assert settings.device_plugin.device_list_strategy == ("envvar", "cdi-cri")
    assert settings.device_plugin.mps_root == Settings().device_plugin.mps_root
    assert settings.device_plugin.imex_channel_ids == (0,)
    assert settings.driver.root == Path("/run/nvidia/driver")
    assert settings.labels.machine_type_file == Path("/x/product_name")
    assert [pattern.name for pattern in settings.resources.mig] == ["small"]
    time_slicing = settings.sharing.timeSlicing
    assert time_slicing is not None
    assert time_slicing.failRequestsGreaterThanOne
    assert [entry.replicas for entry in time_slicing.resources] == [4, 2, 3]
    assert [entry.name.rpartition("/")[2] for entry in time_slicing.resources] == ["gpu", "mig-1g.5gb", "gpu"]
    assert [entry.devices for entry in time_slicing.resources] == [
        "all",
        ("0", "1:0", "GPU-01234567-89ab-cdef-0123-456789abcdef"),
        2,
    ]
    assert str(loaded.origin_of("device_plugin.mig_strategy")).endswith("config.yaml:3")
    not_needed = [notice for notice in loaded.notices if "not needed" in notice]
    assert len(not_needed) == 9
    assert all(re.match(r"\S+config\.yaml:\d+: flags\.", notice) for notice in not_needed)


def test_empty_sections_of_theirs_are_fine(tmp_path: Path) -> None:
    """Keys without values are what their defaults look like."""
    assert load_text(tmp_path, "version:\nflags:\nimex:\n").settings == Settings()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: v2\n", "config.yaml:1: version: only version v1"),
        ("version: [v1]\n", "config.yaml:1: version: only version v1"),
        (
            "flags:\n  migStrateg: none\n",
            "config.yaml:2: flags.migStrateg: unknown key; did you mean 'flags.migStrategy'?",
        ),
        ("flags: {plugin: 5}\n", "config.yaml:1: flags.plugin: unknown key"),
        ("flags: 5\n", "config.yaml:1: flags: unknown key"),
        ("flags: {migStrategy: x}\n", "config.yaml:1: device_plugin.mig_strategy: value 'x' is refused"),
        (
            "flags: {migStrategy: none}\ndevice_plugin: {mig_strategy: none}\n",
            "config.yaml:1: flags.migStrategy: device_plugin.mig_strategy is given too; keep one of the two",
        ),
    ],
)
def test_wrong_entries_of_theirs_are_named(tmp_path: Path, text: str, expected: str) -> None:
    """Each names file, line and key, and whose word is meant."""
    (line,) = problems_of(tmp_path, text)
    assert line.startswith(expected)


def test_every_counterpart_is_a_setting() -> None:
    """The table points at settings that exist."""
    assert set(COUNTERPARTS.values()) <= {".".join(path) for path, _ in walk_knobs(Settings)}


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ("{name: gpu, replicas: 1}", "resources[0].replicas: value '1' is refused; give a whole number from 2"),
        ("{name: GPU, replicas: 2}", "resources[0].name: value 'GPU' is refused; give a resource name"),
        (f"{{name: {'g' * 53}, replicas: 2}}", "resources[0].name: value"),
        ("{name: foo.com/x, replicas: 2}", "resources[0].name: domain 'foo.com' is not offered by this agent"),
        ("{name: gpu, replicas: 2, rename: foo.com/x}", "resources[0].rename: domain 'foo.com' is not offered"),
        ("{name: gpu, replicas: 2, devices: 0}", "resources[0].devices: value '0' is refused"),
        ("{name: gpu, replicas: 2, devices: some}", "resources[0].devices: value 'some' is refused"),
        ("{name: gpu, replicas: 2, devices: {a: 1}}", "resources[0].devices: value a mapping of 1 is refused"),
        ("{name: gpu, replicas: 2, devices: [GPU-1]}", "resources[0].devices[0]: value 'GPU-1' is refused"),
        ("{name: gpu, replicas: 2, devices: []}", "resources[0].devices: value a list of 0 is refused"),
        ("{name: gpu, Replicas: 2}", "resources[0].Replicas: unknown key; did you mean 'replicas'?"),
    ],
)
def test_wrong_sharing_entry_is_named(tmp_path: Path, entry: str, wanted: str) -> None:
    """Each rule of theirs is checked, at the entry that breaks it."""
    lines = problems_of(tmp_path, f"sharing:\n  timeSlicing:\n    resources:\n    - {entry}\n")
    assert lines[0].startswith(f"config.yaml:4: sharing.timeSlicing.{wanted}")


def test_sharing_without_entries_is_refused(tmp_path: Path) -> None:
    """A sharing section that shares nothing is a slip."""
    assert "at least 1" in problems_of(tmp_path, "sharing: {timeSlicing: {resources: []}}")[0]
    assert "the key is missing" in problems_of(tmp_path, "sharing: {timeSlicing: {}}")[0]
