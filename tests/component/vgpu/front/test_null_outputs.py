"""Outputs of hooked entry points may be NULL where the driver allows that: its answer is what the program gets."""

import re
import shutil
from collections.abc import Iterator

import pytest

from tests.component.vgpu.build import VGPU
from tests.component.vgpu.cuda_talk import OUT, call_driver
from tests.component.vgpu.limited import list_environ
from tests.component.vgpu.place import Place
from tests.fakes.cuda.driver import NOTHING_WRITTEN, FakeDriver

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

LIMIT = 1 << 30
INSIDE = {"cuGetProcAddress_v2_ptsz"}
"""What the fake driver lacks."""
OUTPUT = re.compile(r"^(?!.*\bconst\b).*\*")


def list_signatures() -> dict[str, list[str]]:
    """The parameters of each function that stands before one of the CUDA driver's."""
    text = " ".join(path.read_text() for path in sorted(VGPU.rglob("*.h")))
    shape = re.search(r"#define LAUNCH_SHAPE (.*)", text)
    assert shape
    text = text.replace("LAUNCH_SHAPE,", f"{shape[1]},")
    found = re.findall(r"HOOK CUresult (cu\w+)\(([^)]*)\);", text)
    return {name: [] if arguments == "void" else arguments.split(",") for name, arguments in found}


SIGNATURES = list_signatures()


def list_calls() -> Iterator[tuple[str, tuple[int | str, ...]]]:
    """Each with one output NULL, and with all of them; the other outputs are there, and the handles are of nothing."""
    for symbol, parameters in SIGNATURES.items():
        outputs = [at for at, each in enumerate(parameters) if OUTPUT.match(each)]
        for missing in {*((at,) for at in outputs), tuple(outputs)} - {()}:
            arguments: list[int | str] = [0 if "CU" in each else 1 for each in parameters]
            for at in outputs:
                arguments[at] = 0 if at in missing else OUT
            yield symbol, tuple(arguments)


CALLS = [call for call in list_calls() if call[0] not in INSIDE]


def test_every_hook_has_its_parameters_here() -> None:
    exports = set(re.findall(r"\b(cu\w+);", (VGPU / "front/exports.map").read_text()))
    assert set(SIGNATURES) == exports
    assert len({symbol for symbol, _ in CALLS}) >= 40


@pytest.mark.parametrize(("symbol", "arguments"), CALLS, ids=lambda each: each if isinstance(each, str) else None)
@pytest.mark.parametrize("fault", [None, f"{NOTHING_WRITTEN}@2"])
def test_a_missing_output_is_the_drivers_affair(
    place: Place, driver: FakeDriver, symbol: str, arguments: tuple[int | str, ...], fault: str | None
) -> None:
    """With the library in front as without; by the fault the driver allows more than any that is known."""
    place.create(LIMIT)
    if fault:
        driver = FakeDriver(place.path, fail={symbol: fault if symbol in AT_START else str(NOTHING_WRITTEN)})
    answers = []
    for environ in ({}, list_environ(place, driver)):
        with call_driver(driver, environ) as one:
            one.start()
            said = one.ask(" ".join(map(str, ["call", "dlsym", symbol, *arguments])))
            assert said, f"{symbol}{arguments} ended the program"
            # What is written may differ, as a part differs from the whole.
            answers.append(said.split()[0])
            assert one.call("cuCtxGetCurrent", OUT)[0] == 0
    assert answers[0] == answers[1]


AT_START = {"cuInit", "cuDevicePrimaryCtxRetain"}
"""Called once before the call that is looked at."""
