"""Whatever way a program has to the driver's functions, it comes to the library's, and from there to the driver."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.component.vgpu.build import build_library, build_program, build_small_library
from tests.component.vgpu.cuda_talk import LATEST, OUT, call_driver
from tests.component.vgpu.limited import limit, list_environ
from tests.component.vgpu.place import Place
from tests.fakes.cuda.driver import SONAME, FakeDriver, build_driver

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]

LIMIT = 1 << 20
OUT_OF_MEMORY, NOT_INITIALIZED = 2, 3
WAYS = ["linked", "handle", "path", "global", "next", "wide", "itself", "versioned", "address", "first", "namespace"]


def take(environ: dict[str, str], way: str, *sizes: int, inside: bool = False) -> subprocess.CompletedProcess[str]:
    """What a program says that goes this way, `inside` a library of its own that looks into its own files first."""
    flags = ["-Wl,--no-as-needed", str(build_driver())] if way == "linked" or (way == "next" and inside) else []
    flags += ["-DLINKED"] if way == "linked" else []
    library = build_small_library("ways", *flags) if inside else Path("-")
    command: list[str | Path] = [build_program("ways", *([] if inside else flags)), library, way, *map(str, sizes)]
    environ = {**environ, "DRIVER": str(build_driver())}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_leads_to_the_limit(place: Place, driver: FakeDriver, way: str, *, inside: bool) -> None:
    """The same program is not held where the library is not there."""
    place.create(LIMIT)
    done = take(list_environ(place, driver), way, LIMIT + 1, LIMIT, 1, inside=inside)
    assert (done.stdout, done.stderr) == (f"{OUT_OF_MEMORY} 0 {OUT_OF_MEMORY} ", "")
    assert driver.read().most[0] == LIMIT
    done = take(driver.environ(), way, LIMIT + 1, inside=inside)
    assert (done.stdout, done.stderr) == ("0 ", "")


@pytest.mark.parametrize(
    ("name", "whose"), [(None, "own"), ("libcuda.so.1", "program's"), ("libnvidia-ml.so.1", "program's")]
)
def test_a_library_that_has_nothing_to_do_with_the_driver_looks_into_its_own_files_first(
    place: Place, driver: FakeDriver, name: str | None, whose: str
) -> None:
    """As it was opened for; one that asks for the driver would find it past this library."""
    place.create(LIMIT)
    inside = build_small_library("deep", "-DINSIDE", *([f'-DREFERS="{name}"'] if name else []))
    command = [build_program("deep", "-rdynamic"), inside]
    for environ, wanted in ((driver.environ(), "own"), (list_environ(place, driver), whose)):
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        assert done.stdout == f"{wanted}\n"


@pytest.mark.parametrize("way", ["linked", "handle", "address"])
def test_another_library_of_this_kind_in_front(place: Place, driver: FakeDriver, way: str) -> None:
    """Both see the call; this one also where that one was given the driver's function by this one's dlsym."""
    place.create(LIMIT)
    other = build_small_library("other_front")
    done = take(list_environ(place, driver, LD_PRELOAD=f"{other}:{build_library()}"), way, LIMIT + 1, LIMIT, 1)
    assert done.stdout == f"{OUT_OF_MEMORY} 0 {OUT_OF_MEMORY} "
    assert done.stderr == ("" if way == "address" else "seen\n" * 3)


@pytest.mark.parametrize("way", ["linked", "handle", "address"])
def test_another_library_of_this_kind_behind(place: Place, driver: FakeDriver, way: str) -> None:
    place.create(LIMIT)
    other = build_small_library("other_front")
    done = take(list_environ(place, driver, LD_PRELOAD=f"{build_library()}:{other}"), way, LIMIT + 1, LIMIT, 1)
    assert done.stdout == f"{OUT_OF_MEMORY} 0 {OUT_OF_MEMORY} "


def test_a_program_without_a_driver_finds_none(place: Place) -> None:
    """Though functions of those names are there, and the loader says so as ever."""
    place.create(LIMIT)
    (place.path / SONAME).touch()  # in front of the one that this machine may have, and no library
    environ = place.environ(LD_PRELOAD=str(build_library()), LD_LIBRARY_PATH=str(place.path))
    done = take(environ, "global", 1)
    assert "undefined symbol: cu" in done.stdout
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("library", "names"),
    [
        (SONAME, ["cuMemAlloc_v2"]),
        (SONAME, ["cuNobody"]),
        (SONAME, ["cuGetProcAddress_v2_ptsz", "cuMemAlloc_v2"]),
        ("libm.so.6", ["cuInit", "nvmlDeviceGetMemoryInfo", "dlsym", "cos"]),
    ],
)
def test_what_the_library_asks_the_loader_no_program_hears_of(
    place: Place, driver: FakeDriver, library: str, names: list[str]
) -> None:
    """A driver lacks some of what there are hooks for, and that is no error of the program's question; its own is."""
    place.create(LIMIT)
    command = [str(build_program("errors")), library, *names]
    with_library, without = (
        subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
        for environ in (list_environ(place, driver), driver.environ())
    )
    assert with_library == without
    assert len(without.split()) == len(names)


def test_a_new_program_is_limited_too(place: Place, driver: FakeDriver) -> None:
    """The shell knows nothing of it; what it starts is."""
    place.create(LIMIT)
    environ = list_environ(place, driver, PATH=os.environ["PATH"])
    command = ["sh", "-c", f"(exec {build_program('ways')} - handle {LIMIT + 1} {LIMIT})"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == f"{OUT_OF_MEMORY} 0 "


def test_a_child_shares_the_limit_and_has_nothing_of_its_parents(place: Place, driver: FakeDriver) -> None:
    """One of a parent that has not started the driver; after that a child cannot use it, and takes nothing along."""
    place.create(LIMIT)
    with limit(place, driver) as one, call_driver(driver, list_environ(place, driver)) as other:
        assert one.call("cuMemAlloc_v2", OUT, 1000)[0] == 0
        assert other.ask("fork") == "child"
        other.start()
        assert other.call("cuMemAlloc_v2", OUT, LIMIT - 999)[0] == OUT_OF_MEMORY
        assert other.call("cuMemAlloc_v2", OUT, LIMIT - 1000)[0] == 0
        other.say("end")
        assert other.hear() == "parent"
        other.start()
        code, at = other.call("cuMemAlloc_v2", OUT, 500)
        assert code == 0
        assert other.ask("fork") == "child"
        assert other.call("cuMemFree_v2", at) == (NOT_INITIALIZED,)
        assert other.call("cuMemAlloc_v2", OUT, 1)[0] == NOT_INITIALIZED
        assert place.read().sum_used(0) == driver.read().sum_used() == 1500


@pytest.mark.long
def test_threads_that_are_all_the_first(place: Place, driver: FakeDriver) -> None:
    """Each is led to the same place, and one of them too many is refused."""
    place.create(LIMIT)
    command = [str(build_program("first_use")), "16", str(LIMIT // 15)]
    for _ in range(20):
        done = subprocess.run(command, env=list_environ(place, driver), capture_output=True, text=True, check=True)
        assert done.stdout == "15\n"


HOOKED = [
    "cuInit",
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemFree",
    "cuMemGetInfo",
    "cuDeviceTotalMem",
    "cuMemAllocManaged",
]


@pytest.mark.parametrize("version", ["2000:0", "3010:0", "3020:1", "6000:0", "11030:2", LATEST])
def test_a_base_name_leads_to_the_hook_of_the_driver_s_choice(place: Place, driver: FakeDriver, version: str) -> None:
    """Of the same symbol; what has no hook leads to the driver's own."""
    place.create(LIMIT)
    with call_driver(driver) as plain, limit(place, driver) as one:
        for base in [*HOOKED, "cuCtxGetCurrent", "cuNobody"]:
            where = plain.where(version, base)
            wanted = where.replace("libcuda.so.1", "libnodeagent-vgpu.so") if base in HOOKED else where
            assert one.where(version, base) == wanted


def test_what_the_driver_has_no_symbol_for_is_known_by_name_and_version(place: Place, tmp_path: Path) -> None:
    """Up to the versions of CUDA that the library knows: what a later one means by a name nobody can say yet."""
    place.create(LIMIT)
    with limit(place, FakeDriver(tmp_path, version=15000, unnamed="cuMemAlloc")) as one:
        assert one.where("3010:0", "cuMemAlloc") == "libnodeagent-vgpu.so cuMemAlloc"
        assert one.where("12080:0", "cuMemAlloc") == "libnodeagent-vgpu.so cuMemAlloc_v2"
        assert one.where("15000:0", "cuMemAlloc").startswith("libcuda.so.1 ")
        assert one.where("15000:0", "cuMemFree") == "libnodeagent-vgpu.so cuMemFree_v2"
