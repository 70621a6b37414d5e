"""The library under the compiler's sanitizers: threads that race through its first use, and through its limit."""

import shutil
import subprocess

import pytest

from nodeagent.edge.host.vgpu.limits_file import DeviceLimit, Limits, create_limits
from nodeagent.edge.host.vgpu.shared_file import create_shared
from nodeagent.edge.host.vgpu.usage_file import create_usage
from tests.component.vgpu.build import build_program, build_sanitized_library
from tests.component.vgpu.limited import list_environ
from tests.component.vgpu.place import UUIDS, Place
from tests.fakes.cuda.driver import FakeDriver

LIMIT = 1 << 20
LIMITS = Limits((DeviceLimit(UUIDS[0], memory_bytes=LIMIT, core_percent=50),))
SANITIZERS = {
    "address,undefined": ("libasan.so", "libubsan.so"),
    "thread": ("libtsan.so",),
}
FLAGS = ("-fno-sanitize-recover=all", "-Wno-tsan")  # the fence is for the writer in another process
OPTIONS = "halt_on_error=1:abort_on_error=1:detect_leaks=0:report_signal_unsafe=0:exitcode=66"
pytestmark = [
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]


def find_runtime(name: str) -> str:
    done = subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    "program", [("first_use", "8", "4096"), ("race", "4", "300", "65536"), ("spin", "cuLaunchKernel", "100", "300")]
)
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_nothing_is_found(place: Place, driver: FakeDriver, sanitizer: str, program: tuple[str, ...]) -> None:
    """The sanitizer's own libraries come first, as they ask for."""
    create_limits(place.limits_path, LIMITS)
    create_usage(place.usage_path)
    run_watched(place, driver, sanitizer, program)


@pytest.mark.parametrize("program", [("race", "4", "300", "65536"), ("spin", "cuLaunchKernel", "100", "300")])
@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_nothing_is_found_where_a_claim_is_shared(
    place: Place, driver: FakeDriver, sanitizer: str, program: tuple[str, ...]
) -> None:
    """What all containers of a claim have together is kept another way."""
    create_limits(place.limits_path, LIMITS)
    create_shared(place.path / "shared")
    (place.path / "own").mkdir()
    run_watched(place, driver, sanitizer, program)


def run_watched(place: Place, driver: FakeDriver, sanitizer: str, program: tuple[str, ...]) -> None:
    library = build_sanitized_library(f"-fsanitize={sanitizer}", *FLAGS)
    preload = ":".join([*map(find_runtime, SANITIZERS[sanitizer]), str(library)])
    environ = list_environ(place, driver, LD_PRELOAD=preload)
    environ |= {f"{name}_OPTIONS": OPTIONS for name in ("ASAN", "UBSAN", "TSAN")}
    name, *words = program
    done = subprocess.run([build_program(name), *words], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert driver.read().most[0] > 0 or name == "spin"


@pytest.mark.parametrize("sanitizer", ["address", "thread", "undefined"])
def test_programs_under_a_sanitizer_of_their_own_start(place: Place, driver: FakeDriver, sanitizer: str) -> None:
    """It looks for its functions while it starts, by the library's dlsym, and must find the C library's."""
    place.create(LIMIT)
    runtime = {"address": "asan", "thread": "tsan", "undefined": "ubsan"}[sanitizer]
    program = build_program("first_use", f"-fsanitize={sanitizer}", f"-static-lib{runtime}")
    environ = list_environ(place, driver, ASAN_OPTIONS="detect_leaks=0")
    done = subprocess.run([program, "8", str(LIMIT // 7)], env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("7\n", "")


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="wants valgrind")
def test_valgrind_finds_nothing(place: Place, driver: FakeDriver) -> None:
    """In the library as it is handed out."""
    place.create(LIMIT)
    command = ["valgrind", "--quiet", "--error-exitcode=9", str(build_program("race")), "2", "300", "65536"]
    done = subprocess.run(command, env=list_environ(place, driver), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert place.read().sum_used(0) == driver.read().sum_used() == 0
