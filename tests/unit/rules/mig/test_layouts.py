"""Files of MIG layouts in the format that MIG managers share."""

import pytest
from msgspec.structs import replace

from nodeagent.rules.mig.layouts import DeviceFilter, LayoutRule, read_layouts
from tests.support.gpus import gpu_uuid, make_gpu

EXAMPLE = """
version: v1
mig-configs:
  whole:
    - devices: all
      mig-enabled: false
  uncut:
    - devices: all
      mig-enabled: true
      mig-devices: {}
  sevenths:
    - device-filter: ["0x20B010DE", "0x20b110de"]
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.5gb": 7
    - device-filter: "0x233010DE:0x16C110DE"
      devices: all
      mig-enabled: true
      mig-devices: {1g.10gb: 7}
  teaching:
    - devices: [0, 2]
      mig-enabled: true
      mig-devices: {1c.3g.40gb: 3, 1g.10gb+me: 1, 2g.20gb: 1, 4g.40gb: 0}
    - devices: [1]
      mig-enabled: false
      mig-devices: {}
  media:
    - devices: all
      mig-enabled: true
      mig-devices:
        1g.24gb+me.all: 1
        1g.24gb-me: 2
        1g.24gb+gfx: 1
"""


def test_an_example_of_everything_is_read() -> None:
    """Filters, indexes, all forms of profiles, MIG on without devices."""
    read = read_layouts(EXAMPLE, "layouts.yaml")
    assert read.problems == ()
    assert dict(read.layouts) == {
        "whole": (LayoutRule(enabled=False),),
        "uncut": (LayoutRule(enabled=True),),
        "sevenths": (
            LayoutRule(
                enabled=True,
                filters=(DeviceFilter(device_id=0x20B010DE), DeviceFilter(device_id=0x20B110DE)),
                profiles={"1g.5gb": 7},
            ),
            LayoutRule(
                enabled=True,
                filters=(DeviceFilter(device_id=0x233010DE, subsystem_id=0x16C110DE),),
                profiles={"1g.10gb": 7},
            ),
        ),
        "teaching": (
            LayoutRule(enabled=True, indexes=(0, 2), profiles={"1c.3g.40gb": 3, "1g.10gb+me": 1, "2g.20gb": 1}),
            LayoutRule(enabled=False, indexes=(1,)),
        ),
        "media": (LayoutRule(enabled=True, profiles={"1g.24gb+me.all": 1, "1g.24gb-me": 2, "1g.24gb+gfx": 1}),),
    }


def test_json_is_read_too() -> None:
    """The format is one of values, not of indentation."""
    text = '{"version": "v1", "mig-configs": {"a": [{"devices": "all", "mig-enabled": false}]}}'
    assert dict(read_layouts(text, "a.json").layouts) == {"a": (LayoutRule(enabled=False),)}


HEAD = "version: v1\nmig-configs:\n  a:\n"
ENTRY = HEAD + "    - devices: all\n      mig-enabled: true\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "f:1: '' is no file of layouts; write `version: v1` and mig-configs"),
        ("- a", "f:1: a list of 1 is no file of layouts; write `version: v1` and mig-configs"),
        ("{", "f:2: not YAML at column 1: while parsing a flow node did not find expected node content"),
        ("mig-configs: {}", "f:1: version: it is not v1, the one format there is; write `version: v1`"),
        ("version: v2\nmig-configs: {}", "f:1: version: it is not v1, the one format there is; write `version: v1`"),
        ("version: v1", "f:1: mig-configs: it is no mapping from names to layouts; add one"),
        ("version: v1\nmig-configs: [1]", "f:2: mig-configs: it is no mapping from names to layouts; add one"),
        (
            "version: v1\nmig-config: {}\nmig-configs: {}",
            (
                "f:2: mig-config: nobody knows this key; take it out, known are version, mig-configs;"
                " did you mean 'mig-configs'?"
            ),
        ),
        (HEAD + "    devices: all", "f:4: mig-configs.a: a mapping of 1 is no list of entries; begin each with a dash"),
        (
            HEAD + "    - all",
            "f:4: mig-configs.a[0]: 'all' is no entry; write devices, device-filter, mig-enabled, mig-devices",
        ),
        (
            HEAD + "    - mig-enabled: false",
            "f:4: mig-configs.a[0].devices: it is missing; write all, or indexes such as [0, 1]",
        ),
        (
            HEAD + "    - {mig-enabled: false, devices: 3}",
            "f:4: mig-configs.a[0].devices: it is '3'; write all, or indexes such as [0, 1]",
        ),
        (
            HEAD + "    - {mig-enabled: false, devices: [GPU-1]}",
            "f:4: mig-configs.a[0].devices: it is a list of 1; write all, or indexes such as [0, 1]",
        ),
        (HEAD + "    - devices: all", "f:4: mig-configs.a[0].mig-enabled: it is missing; write true or false"),
        (
            HEAD + "    - {devices: all, mig-enabled: perhaps}",
            "f:4: mig-configs.a[0].mig-enabled: it is 'perhaps'; write true or false",
        ),
        (
            HEAD + "    - {devices: all, mig-enabled: false, mig-devices: {1g.5gb: 7}}",
            "f:4: mig-configs.a[0].mig-devices: there are none with mig-enabled: false; take them out",
        ),
        (
            ENTRY + "      device-filter: A100",
            "f:6: mig-configs.a[0].device-filter: 'A100' fits no GPU; write device and vendor such as 0x233010DE",
        ),
        (
            ENTRY + "      device-filter: [[x]]",
            "f:6: mig-configs.a[0].device-filter: a list of 1 fits no GPU; write device and vendor such as 0x233010DE",
        ),
        (
            ENTRY + "      mig-devices: [1g.5gb]",
            (
                "f:6: mig-configs.a[0].mig-devices: a list of 1 is no mapping; write a count for each profile,"
                " such as 1g.10gb: 7"
            ),
        ),
        (
            ENTRY + "      mig-devices: {1g.5gb: -1}",
            "f:6: mig-configs.a[0].mig-devices.1g.5gb: '-1' is no count; write a whole number from 0 to 999",
        ),
        (
            ENTRY + "      mig-devices: {1g: 1}",
            (
                "f:6: mig-configs.a[0].mig-devices.1g: '1g' is no MIG profile; write a MIG profile such as 1g.10gb,"
                " 1g.10gb+me, 2g.48gb+gfx, 1g.24gb-me or 1c.3g.40gb"
            ),
        ),
        (
            ENTRY + "      mig-devices: {1g.5gb: 0}",
            "f:6: mig-configs.a[0].mig-devices: every count is 0; leave mig-devices empty for no MIG devices",
        ),
        (
            ENTRY + "      mig-device: {}",
            (
                "f:6: mig-configs.a[0].mig-device: nobody knows this key; take it out, known are devices,"
                " device-filter, mig-enabled, mig-devices; did you mean 'mig-devices'?"
            ),
        ),
    ],
)
def test_a_fault_is_told_with_file_line_key_and_remedy(text: str, problem: str) -> None:
    read = read_layouts(text, "f")
    assert [str(one) for one in read.problems] == [problem]
    assert "a" not in read.layouts


def test_one_bad_layout_does_not_take_the_others_along() -> None:
    """Every fault of the file is told at once."""
    text = HEAD + "    - devices: all\n  b:\n    - {devices: all, mig-enabled: false}\n  c: x\n"
    read = read_layouts(text, "f")
    assert [(problem.origin.line, problem.path) for problem in read.problems] == [
        (4, "mig-configs.a[0].mig-enabled"),
        (7, "mig-configs.c"),
    ]
    assert list(read.layouts) == ["b"]


def test_an_empty_value_is_no_mig_devices() -> None:
    """As files have it that are made by templates."""
    read = read_layouts(ENTRY + "      mig-devices:\n", "f")
    assert read.layouts["a"] == (LayoutRule(enabled=True),)


def test_two_spellings_of_a_profile_are_one() -> None:
    """Their counts add up."""
    read = read_layouts(ENTRY + "      mig-devices: {1g.10gb+me: 1, 1g.10gb.me: 1}", "f")
    assert read.layouts["a"][0].profiles == {"1g.10gb+me": 2}


def test_a_part_covers_what_all_its_conditions_mean() -> None:
    """Index, model, and the selectors of the agent's own configuration."""
    gpu = make_gpu(3)
    of_board = replace(gpu, pci=replace(gpu.pci, subsystem_id=0x16C110DE))
    covers = LayoutRule(enabled=True).covers
    assert covers(gpu)
    assert [LayoutRule(enabled=True, indexes=(index,)).covers(gpu) for index in (2, 3)] == [False, True]
    h100, a100 = DeviceFilter(device_id=0x233010DE), DeviceFilter(device_id=0x20B010DE)
    assert LayoutRule(enabled=True, filters=(a100, h100)).covers(gpu)
    assert not LayoutRule(enabled=True, filters=(a100,)).covers(gpu)
    board = DeviceFilter(device_id=0x233010DE, subsystem_id=0x16C110DE)
    assert [LayoutRule(enabled=True, filters=(board,)).covers(one) for one in (gpu, of_board)] == [False, True]
    assert LayoutRule(enabled=True, selectors=("9", gpu_uuid(3))).covers(gpu)
    assert not LayoutRule(enabled=True, selectors=("9",)).covers(gpu)
