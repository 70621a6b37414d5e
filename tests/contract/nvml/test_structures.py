"""What the NVML worker reads and writes lies in memory as NVIDIA declares it, in four versions of its header."""

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.contract.nvml.headers import REASON, VERSIONS, are_there, list_types
from tests.contract.nvml.layouts import Layout, measure_ctypes, measure_header, read_constants
from tests.contract.nvml.worker_calls import list_constants, list_own_layouts, list_structures
from tests.fakes.nvml import abi

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="the header is C"),
    pytest.mark.skipif(not are_there(), reason=REASON),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

OTHER_TYPES = {
    "c_nvmlProcessInfo_v3_t": "nvmlProcessInfo_t",
    "c_nvmlGridLicensableFeature_v4_t": "nvmlGridLicensableFeature_t",
    "c_nvmlGridLicensableFeatures_v4_t": "nvmlGridLicensableFeatures_t",
}
"""Structures whose newest version has no number in NVIDIA's own name."""
OTHER_NAMES = {("12.2.140", "c_nvmlGpuFabricInfo_t", "cliqueId"): "partitionId"}
"""What an older header calls a member that was renamed since."""
NEWER = {("12.2.140", "c_nvmlFieldValue_t", "value.usVal"), ("12.4.127", "c_nvmlFieldValue_t", "value.usVal")}
"""Choices of a union that came after a header."""
PAST_THE_BINDING = {
    "c_nvmlUnrepairableMemory_v1_t": "the worker has its own, see read_unrepairable: pynvml's begins with a version",
}
"""Structures of functions that the worker calls without pynvml."""
WRONG_IN_THE_BINDING = {
    ("c_nvmlGpuFabricInfo_t", "state"): "a byte and a gap: the worker takes the byte",
    ("c_nvmlGpuFabricInfo_v2_t", "state"): "likewise",
    ("c_nvmlGpuFabricInfo_v3_t", "state"): "likewise",
    ("c_nvmlGpmMetricsGet_t", "-"): "its array ends it, and pynvml's has room for the metrics of newer libraries",
}
"""Where pynvml differs from NVIDIA's header, and why the worker reads it right all the same."""
OWN_LAYOUTS = {
    "fields._ITEM[0]": ("nvmlFieldValue_t", "fieldId scopeId timestamp latencyUsec valueType nvmlReturn value"),
    "gpm._METRIC[0]": ("nvmlGpmMetric_t", "metricId nvmlReturn value"),
    **{
        f"fields._VALUES[{kind}]": ("nvmlValue_t", member)
        for kind, member in enumerate(("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal"))
    },
}
"""The worker's own layouts: the structure of the header, and the members in order."""

versions = pytest.mark.parametrize("version", VERSIONS)


def name_type(structure: str) -> str:
    """NVIDIA's name for a structure of pynvml's."""
    name = structure.removeprefix("c_")
    return OTHER_TYPES.get(structure) or (name if name.endswith("_t") else f"{name}_t")


def measure(version: str, structures: dict[str, Any], scratch: Path) -> tuple[dict[str, Layout], dict[str, Layout]]:
    """Pynvml's and the header's layouts of those structures that this header has."""
    types = {name: name_type(name) for name in structures if name_type(name) in list_types(version)}
    ours = {
        name: {
            OTHER_NAMES.get((version, name, path), path): place
            for path, place in measure_ctypes(structures[name]).items()
            if (version, name, path) not in NEWER
        }
        for name in types
    }
    return ours, measure_header(version, types, ours, scratch)


@versions
def test_every_structure_of_the_worker_is_that_of_the_header(version: str, tmp_path: Path) -> None:
    """Size, place and kind of each member; what is allowed to differ is listed, and does differ."""
    wanted = {name: one for name, one in list_structures().items() if name not in PAST_THE_BINDING}
    ours, theirs = measure(version, wanted, tmp_path)
    differing = {
        (name, path): (place, theirs[name][path])
        for name, layout in ours.items()
        for path, place in layout.items()
        if without_sign(place) != without_sign(theirs[name][path])
    }
    assert {place: both for place, both in differing.items() if place not in WRONG_IN_THE_BINDING} == {}
    assert len(ours) > 20


def without_sign(place: tuple[int, int, str]) -> tuple[int, int, str]:
    """A byte is text for some headers and a number for others."""
    start, size, _ = place
    return (start, size, "byte") if size == 1 else place


def test_every_structure_of_the_worker_is_in_the_newest_header() -> None:
    """None is left out of the comparison because its name was not found."""
    newest = list_types(VERSIONS[-1])
    assert [name for name in list_structures() if name_type(name) not in newest] == list(PAST_THE_BINDING)


def test_what_is_allowed_to_differ_does(tmp_path: Path) -> None:
    found: set[tuple[str, str]] = set()
    for version in VERSIONS:
        ours, theirs = measure(version, list_structures(), tmp_path)
        found |= {(name, path) for name in ours for path in ours[name] if ours[name][path] != theirs[name].get(path)}
    assert set(WRONG_IN_THE_BINDING) - found == set()


@versions
def test_the_state_of_a_fabric_is_the_lowest_byte(version: str, tmp_path: Path) -> None:
    """The worker cuts the rest off."""
    names = [name for name, path in WRONG_IN_THE_BINDING if path == "state"]
    ours, theirs = measure(version, {name: list_structures()[name] for name in names}, tmp_path)
    places = {(ours[name]["state"][0], *theirs[name]["state"][:2]) for name in ours}
    assert places <= {(24, 24, 1), (28, 28, 1)}
    assert places


@versions
def test_the_binding_has_room_for_the_metrics_of_the_library(version: str, tmp_path: Path) -> None:
    """A library that writes its whole structure stays within ours."""
    ours, theirs = measure(version, {"c_nvmlGpmMetricsGet_t": list_structures()["c_nvmlGpmMetricsGet_t"]}, tmp_path)
    assert ours["c_nvmlGpmMetricsGet_t"]["-"][1] >= theirs["c_nvmlGpmMetricsGet_t"]["-"][1] > 0


def test_the_flag_of_a_memory_beyond_repair_is_the_whole_structure(tmp_path: Path) -> None:
    name = "nvmlUnrepairableMemoryStatus_v1_t"
    found = measure_header(VERSIONS[-1], {name: name}, {name: ["bUnrepairableMemory"]}, tmp_path)
    assert found[name] == {"-": (0, 4, "whole"), "bUnrepairableMemory": (0, 4, "unsigned")}


@versions
def test_every_layout_of_the_worker_s_own_is_that_of_the_header(version: str, tmp_path: Path) -> None:
    """Formats of `struct`, which take the place of a structure where making one takes too long."""
    assert set(list_own_layouts()) == set(OWN_LAYOUTS)
    for key, layout in list_own_layouts().items():
        name, text = OWN_LAYOUTS[key]
        members = [member for member in text.split() if (version, "c_nvmlFieldValue_t", f"value.{member}") not in NEWER]
        found = measure_header(version, {name: name}, {name: members}, tmp_path)[name]
        places = measure_format(layout.format)
        assert layout.size == found["-"][1], key
        assert [place for place in places if place[1]][: len(members)] == [found[member][:2] for member in members], key


def measure_format(text: str) -> list[tuple[int, int]]:
    """Begin and size of each value in a format such as `=IId24x`."""
    order, codes = text[0], text[1:]
    assert order == "="
    places: list[tuple[int, int]] = []
    for at, code in enumerate(codes):
        if code.isalpha() and code != "x":
            count = codes[:at][len(codes[:at].rstrip("0123456789")) :]
            size = struct.calcsize(f"={count}{code}")
            places.append((struct.calcsize(f"={codes[:at].removesuffix(count)}"), size))
    return places


@versions
def test_every_constant_of_the_worker_is_that_of_the_header(version: str, tmp_path: Path) -> None:
    """Enumerators, and the versions of structures, in which their size stands."""
    theirs = read_constants(version, list_constants(), tmp_path)
    assert {name: list_constants()[name] for name in theirs if name not in COUNTS} == {
        name: value for name, value in theirs.items() if name not in COUNTS
    }
    assert len(theirs) > 10


COUNTS = {"NVML_NVLINK_MAX_LINKS", "NVML_GPU_INSTANCE_PROFILE_COUNT", "NVML_COMPUTE_INSTANCE_PROFILE_COUNT"}
"""How many there are at most; they grow, and the worker asks until the library knows no more."""


def test_the_fake_lies_in_memory_as_nvidia_declares_it(tmp_path: Path) -> None:
    """Its header is made from pynvml's structures, so it would repeat each mistake of theirs."""
    version = VERSIONS[-1]
    (tmp_path / "generated.h").write_text(abi.render_header())
    structures = {name: abi.get_structure(name) for name in abi.NVML_STRUCTURES}
    types = {name: name_type(name) for name in structures if name_type(name) in list_types(version)}
    paths = {name: list(measure_ctypes(structures[name])) for name in types}
    fakes = {name: abi.name_in_c(name) for name in types}
    theirs = measure_header(version, types, paths, tmp_path)
    ours = measure_header(version, fakes, paths, tmp_path, header=tmp_path / "generated.h")
    assert {name: with_bytes(layout) for name, layout in ours.items()} == {
        name: with_bytes(layout) for name, layout in theirs.items()
    }
    assert sorted(set(structures) - set(types)) == ["c_metricInfo_t"]


def with_bytes(layout: Layout) -> Layout:
    return {path: without_sign(place) for path, place in layout.items()}
