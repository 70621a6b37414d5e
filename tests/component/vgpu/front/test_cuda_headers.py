"""Declared as CUDA declares it, in both versions, and nothing that allocates or launches is forgotten."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.component.vgpu.build import VGPU
from tests.component.vgpu.cuda_packages import PACKAGES, REASON, Package, are_there

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.skipif(not are_there(), reason=REASON),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

OLD_TOO = "-D__CUDA_API_VERSION_INTERNAL"
"""With this, CUDA's header declares every variant of a function under its own name."""
NOWHERE = {"cuGetProcAddress_v2_ptsz"}
"""Of the driver's, but in no header: programs come to it by a macro."""
SUSPECT = re.compile(
    r"Alloc|Create|Import|Open|Register|Launch|Load|Retain|Bind|MapArray|Attach|Detach|Multicast|Instantiate|LinkComplete"
    r"|ExecUpdate|Reserve|SetParams"
)
UNHANDLED = {
    r"cuMemAllocHost(_v2)?|cuMemHostAlloc|cuMemHostRegister(_v2)?": "the host's memory",
    r"cuIpcOpenMemHandle(_v2)?|cuImportExternalMemory|cuMemImportFromShareableHandle|cuMemPoolImport\w+"
    r"|cuLogicalEndpointImport": "another process has it, and pays",
    r"cuModuleLoad\w*|cuModuleGetLoadingMode|cuLibraryLoad\w+|cuLink\w+": "nobody says what code takes",
    r"cuFuncLoad|cuFuncIsLoaded": "likewise",
    r"cuMemAddressReserve|cuLogicalEndpointIdReserve": "numbers, and no memory behind them",
    r"cuMulticast\w+|cuLogicalEndpoint(Bind\w+|Create)": "joins memory that is charged where it is made",
    r"cuMemMapArrayAsync(_ptsz)?": "joins memory that is charged as long as its handle is there",
    r"cuGraphAddMemAllocNode|cuGraph\w*SetParams(_v2)?|cuGraphExecUpdate(_v2)?|cuGraphMemAllocNodeGetParams"
    r"|cuGraphCreate|cuGraphConditionalHandleCreate": "charged when the graph is launched, by what the driver reserves",
    r"cuLaunchHostFunc\w*": "runs on the host",
    r"cuStreamCreate\w*|cuEventCreate|cuTex\w+Create|cuSurfObjectCreate|cuUserObject\w+|cuGraphRetainUserObject"
    r"|cuImportExternalSemaphore|cuIpcOpenEventHandle": "as good as no device memory",
    r"cuGreenCtxCreate|cuGreenCtxStreamCreate": "part of a context that is charged",
    r"cuCtxAttach|cuCtxDetach": "a count that CUDA gave up in version 4; what such a context has stays charged",
    r"cu\w*Register\w*(Callback|Notification)": "a function of the program's",
    r"cuStreamAttachMemAsync(_ptsz)?": "of managed memory, which is charged already",
    r"cuMemGetAllocation\w+|cuTensorMapSetAllocationClass": "only a question, or a number",
}

packages = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.version))


def list_declared(package: Package) -> set[str]:
    command = ["cc", "-E", OLD_TOO, str(package.include / "cuda.h")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(re.findall(r"\bCUresult\s+(cu\w+)\s*\(", done.stdout))


def list_called() -> list[str]:
    return re.findall(r"^    DRIVER\((\w+),", (VGPU / "front/driver.h").read_text(), re.MULTILINE)


def list_hooks() -> dict[str, tuple[str, int, bool] | None]:
    """By symbol: base name, version and whether per thread; None for those of which only the address is known."""
    text = (VGPU / "front/hooks.c").read_text()
    by_address = dict.fromkeys(re.findall(r"^    ADDRESS\((\w+)\)", text, re.MULTILINE))
    rows = re.findall(r"^    CUDA\((\w+), (\w+), (\d+), (\d)\)", text, re.MULTILINE)
    return {**by_address, **{symbol: (base, int(since), each == "1") for symbol, base, since, each in rows}}


@packages
def test_declarations_are_those_of_cuda(package: Package, tmp_path: Path) -> None:
    """Of what is called, of what is stood before, and of the structures in them."""
    declared = list_declared(package)
    includes = [path.relative_to(VGPU) for path in sorted(VGPU.rglob("*.h")) if "HOOK CUresult" in path.read_text()]
    lines = ["#include <cuda.h>", '#include "front/driver.h"', *(f'#include "{name}"' for name in includes)]
    asked = [name for name in list_called() if name in declared]
    lines += [
        f'_Static_assert(__builtin_types_compatible_p(__typeof__(&{name}), {name}_type), "{name}");' for name in asked
    ]
    source = tmp_path / "declarations.c"
    source.write_text("\n".join(lines) + "\n")
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-attributes", "-DVGPU_WITH_CUDA_HEADER", OLD_TOO]
    command = ["cc", *flags, f"-I{package.include}", f"-I{VGPU}", "-c", "-o", str(tmp_path / "o"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(asked) > 70


def test_every_name_is_one_that_cuda_has() -> None:
    declared = set.union(*map(list_declared, PACKAGES)) | NOWHERE
    assert {*list_called(), *list_hooks()} - declared == set()


@packages
def test_constants_are_those_of_cuda(package: Package, tmp_path: Path) -> None:
    text = (VGPU / "front/cuda_types.h").read_text()
    found = re.findall(r"(CU(?:DA)?_[A-Z0-9_]+)(?: =)? (\d+|0x[0-9a-f]+)\b", text)
    assert len(found) > 8
    source = tmp_path / "constants.c"
    lines = [f'_Static_assert({name} == {value}, "{name}");' for name, value in found]
    source.write_text("\n".join(["#include <cuda.h>", *lines]) + "\n")
    subprocess.run(["cc", f"-I{package.include}", "-c", "-o", tmp_path / "o", source], check=True)


@packages
def test_every_variant_of_a_hooked_name_is_known(package: Package) -> None:
    """A base name that led to a variant nobody knows here would get the hook of another ABI."""
    text = (package.include / "cudaTypedefs.h").read_text()
    variants = re.findall(r"\(CUDAAPI \*PFN_(\w+?)_v(\d+)(_pt[sd][sz])?\)", text)
    hooks = list_hooks()
    known = {row for row in hooks.values() if row}
    bases = {row[0] for row in known}
    found = {(base, int(version), bool(per_thread)) for base, version, per_thread in variants if base in bases}
    assert found - known == set()
    assert len(found) > 40


@packages
def test_what_is_not_handled_has_a_reason(package: Package) -> None:
    """Each entry point that sounds as if it allocated or launched."""
    hooks = list_hooks()
    suspects = [name for name in sorted(list_declared(package)) if SUSPECT.search(name) and name not in hooks]
    assert [name for name in suspects if not any(re.fullmatch(each, name) for each in UNHANDLED)] == []
    unused = [each for each in UNHANDLED if not any(re.fullmatch(each, name) for name in suspects)]
    assert unused == []
