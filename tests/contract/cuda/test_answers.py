"""What a CUDA driver's library answers where there is no GPU: the fake without a device, and NVIDIA's own."""

import re
import shutil
from pathlib import Path

import pytest

from tests.component.vgpu.build import VGPU, build_library
from tests.component.vgpu.front.test_cuda_headers import list_hooks
from tests.component.vgpu.place import Place
from tests.contract.cuda.entries import list_symbols
from tests.contract.libraries import Library
from tests.fakes import cuda

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="the fake is C"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

SUCCESS, INVALID_VALUE, NOT_INITIALIZED, NO_DEVICE, INVALID_HANDLE, NOT_FOUND = 0, 1, 3, 100, 400, 500
VERSIONS = {"fake": 13050, "535": 12020, "550": 12040}
FROM_THE_START = {"cuInit", "cuDriverGetVersion", "cuGetProcAddress", "cuGetProcAddress_v2"}
LOOKS_AT_ITS_ARGUMENT = {"cuThreadExchangeStreamCaptureMode"}
"""Functions by which NVIDIA's library ends a program that gives them nothing."""
NEWER = {
    "cuCtxCreate_v4",
    "cuCtxSynchronize_v2",
    "cuGetProcAddress_v2_ptsz",
    "cuMemGetDefaultMemPool",
    "cuMemGetMemPool",
}
"""Symbols that came after 550."""


def test_a_start_without_a_device_fails_each_time_it_is_tried(library: Library) -> None:
    """Flags are looked at first; nothing is initialised by it."""
    said = library.ask("start")["start"]
    assert said == [NOT_INITIALIZED, NO_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_INITIALIZED, NOT_INITIALIZED, -5]


def test_the_version_is_told_without_a_start(library: Library) -> None:
    assert library.ask("start")["version"] == [SUCCESS, INVALID_VALUE, VERSIONS[library.name]]


@pytest.mark.long
def test_nothing_succeeds_before_a_start(library: Library) -> None:
    """NVIDIA's library looks at some arguments first, and then calls them invalid; ours says what is wrong besides."""
    refusals = {NOT_INITIALIZED} if library.name == "fake" else {NOT_INITIALIZED, INVALID_VALUE, INVALID_HANDLE}
    said = {name: codes for name, codes in library.ask("before").items() if name not in FROM_THE_START}
    if library.name != "fake":
        assert {name for name, codes in said.items() if isinstance(codes, int)} == LOOKS_AT_ITS_ARGUMENT
        said = {name: codes for name, codes in said.items() if name not in LOOKS_AT_ITS_ARGUMENT}
    assert {name: codes for name, codes in said.items() if set(codes) - refusals} == {}
    assert len(said) > 90


def test_a_real_driver_has_every_symbol_but_the_newest(original: Library) -> None:
    """Those in front of which the library stands, those that it calls, and those of the fake."""
    assert set(list_symbols()) - set(original.ask("exports")) == NEWER


def test_a_symbol_that_the_driver_lacks_is_a_driver_that_was_not_started(original: Library, place: Place) -> None:
    """Called by the vGPU library's own address, for no program finds it in front of such a driver."""
    environ = {"HOOKS": str(build_library()), "NODEAGENT_VGPU_DIR": str(place.path)}
    assert original.ask("lacking", **environ) == dict.fromkeys(sorted(NEWER & set(list_hooks())), NOT_INITIALIZED)


@pytest.mark.long
def test_the_vgpu_library_answers_as_the_driver_does(original: Library, place: Place) -> None:
    """Starts, versions, odd questions, and each function with nothing for arguments: codes are the driver's own."""
    preload = {"LD_PRELOAD": str(build_library()), "NODEAGENT_VGPU_DIR": str(place.path)}
    for question in ("start", "odd", "before", "exports"):
        assert original.ask(question, **preload) == original.ask(question), question


def test_odd_questions_for_an_entry_point(library: Library) -> None:
    assert library.ask("odd") == {
        "flags": [SUCCESS] * 4 + [INVALID_VALUE] * 4,
        "no such name": [SUCCESS, 1, None],
        "an empty name": [SUCCESS, 1, None],
        "a symbol": [SUCCESS, 1, None],
        "a version to come": [SUCCESS, 0],
        "a version before all": [SUCCESS, 2, None],
        "no status": SUCCESS,
        "no name in the first form": [NOT_FOUND, None],
    }


def test_our_numbers_are_the_codes_of_these_names(original: Library) -> None:
    """In the fake and in the vGPU library; the words are NVIDIA's own, which no code of ours has."""
    names = {int(code): row[2] for code, row in original.ask("names").items() if row[:2] == [SUCCESS, SUCCESS]}
    assert len(names) > 90
    assert names[SUCCESS] == "CUDA_SUCCESS"
    library_s = re.findall(r"\b(CUDA_(?:ERROR_\w+|SUCCESS)) = (\d+)", (VGPU / "front/cuda_types.h").read_text())
    text = (Path(cuda.__path__[0]) / "src/fake.h").read_text().partition("enum {")[2].partition("}")[0]
    fakes = [(f"CUDA_ERROR_{name}", code) for name, code in re.findall(r"\b([A-Z_]+) = (\d+)", text)]
    wrong = [(name, code) for name, code in (*library_s, *fakes) if names.get(int(code)) not in (name, "CUDA_SUCCESS")]
    assert wrong == []
    assert len(library_s) > 4
    assert len(fakes) > 10
