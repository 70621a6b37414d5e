"""A newer CUDA that an image brings: it comes first where the driver may be used by it, and nowhere else."""

import os
import struct

import pytest

from nodeagent.edge.host.driver.ldcache import parse_library_cache
from tests.component.cdi.bundle import Bundle, needs_compiler, needs_root
from tests.support.files.driver_tree import encode_library

pytestmark = [pytest.mark.slow, needs_compiler]
COMPAT = "usr/local/cuda/compat"
COMPAT_FILE = "etc/ld.so.conf.d/00-compat-nodeagent.conf"
OWNER = b"NVIDIA Corporation\0"


def encode_compat(note: bytes | None, alignment: int = 4) -> bytes:
    """A library of a forward compatibility package, with the note in which newer ones say what they work with."""
    names = b"\0.note.cuda.fwd_compatibility\0"
    if note is None:
        return encode_library("libcuda.so.1")
    names_at, note_at = 64, 64 + len(names)
    sections_at = note_at + len(note)
    identity = b"\x7fELF\2\1\1" + bytes(9)
    header = identity + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, sections_at, 0, 64, 0, 0, 64, 3, 1)
    rows = [(0, 0, 0), (0, names_at, len(names)), (1, note_at, len(note))]
    sections = b"".join(
        struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, at, size, 0, 0, alignment, 0) for name, at, size in rows
    )
    return header + names + note + sections


def encode_note(text: str, owner: bytes = OWNER, alignment: int = 4) -> bytes:
    return struct.pack("<III", len(owner), len(text), 1) + owner + bytes(-len(owner) % alignment) + text.encode()


DRIVERS = encode_note('{"Format": 1, "CUDA Version": "13.0", "Driver": [535, "550", 570], "Device": []}')


@pytest.mark.parametrize(
    ("version", "driver", "note", "used"),
    [
        ("580.65.06", "570.172.08", None, True),
        ("580.65.06", "580.15", None, False),
        ("550.54.15", "570.172.08", None, False),
        ("580.65.06", "570.172.08", DRIVERS, True),
        ("580.65.06", "550.163.01", DRIVERS, True),
        ("580.65.06", "560.35.03", DRIVERS, False),
        ("570.26", "570.172.08", DRIVERS, False),
        ("570.211.01", "570.172.08", DRIVERS, True),
        ("580.65.06", "570.172.08", encode_note('{"Driver": "570"}'), False),
        ("580.65.06", "570.172.08", encode_note('{"Driver": [570'), True),
        ("580.65.06", "570.172.08", encode_note('{"Driver": [535'), False),
        ("580.65.06", "570.172.08", encode_note('{"Driver": [570]}', b"Somebody\0"), False),
        ("580.65.06", "570.172.08", struct.pack("<III", 19, 0xFFFFFFFF, 1) + OWNER, False),
    ],
)
def test_a_newer_cuda_of_the_image_comes_first_where_it_may(
    bundle: Bundle, version: str, driver: str, note: bytes | None, used: bool
) -> None:
    """By its note, or where it has none by its major version; what an earlier start left is taken back."""
    library = bundle.root / COMPAT / f"libcuda.so.{version}"
    library.parent.mkdir(parents=True)
    library.write_bytes(encode_compat(note))
    configuration = bundle.root / COMPAT_FILE
    for _ in range(2):
        assert bundle.run("enable-cuda-compat", f"--host-driver-version={driver}") == (0, "")
        assert configuration.exists() is used
        configuration.parent.mkdir(parents=True, exist_ok=True)
        configuration.write_text("/from/before\n")
    assert bundle.run("enable-cuda-compat", f"--host-driver-version={driver}") == (0, "")
    assert not used or configuration.read_text() == f"/{COMPAT}\n"


@pytest.mark.parametrize("alignment", [1, 4, 8])
@pytest.mark.parametrize("driver", ["570.1", "560.1"])
def test_the_note_is_read_by_the_alignment_of_its_section(bundle: Bundle, alignment: int, driver: str) -> None:
    """Its text begins behind the owner's name, filled up to that."""
    (bundle.root / COMPAT).mkdir(parents=True)
    note = encode_note('{"Driver": [570]}', alignment=alignment)
    (bundle.root / COMPAT / "libcuda.so.580.65.06").write_bytes(encode_compat(note, alignment))
    assert bundle.run("enable-cuda-compat", f"--host-driver-version={driver}") == (0, "")
    assert (bundle.root / COMPAT_FILE).exists() is (driver == "570.1")


def test_an_image_with_two_or_with_nothing_of_the_kind_is_left_alone(bundle: Bundle) -> None:
    """Which one would be meant is not known."""
    ask = ("enable-cuda-compat", "--host-driver-version=535.1.2")
    assert bundle.run(*ask) == (0, "")
    (bundle.root / COMPAT).mkdir(parents=True)
    for name in ("libcuda.so.580.65.06", "libcuda.so.570.26", "libcuda.so.1"):
        (bundle.root / COMPAT / name).write_bytes(encode_compat(None))
    assert bundle.run(*ask) == (0, "")
    assert not (bundle.root / "etc/ld.so.conf.d").exists()
    (bundle.root / COMPAT / "libcuda.so.570.26").unlink()
    assert bundle.run(*ask) == (0, "")
    assert (bundle.root / COMPAT_FILE).exists()


def test_no_library_of_an_image_does_harm(bundle: Bundle) -> None:
    """Cut off anywhere, or with any number changed: it is used or not, and the container starts."""
    library = bundle.root / COMPAT / "libcuda.so.580.65.06"
    library.parent.mkdir(parents=True)
    whole = encode_compat(DRIVERS)
    cut = [whole[:length] for length in range(0, len(whole), 13)]
    at = (*range(40, 64, 2), *range(len(whole) - 128, len(whole), 8))
    for content in [*cut, *(whole[:each] + b"\xff\xff\xff\xff" + whole[each + 4 :] for each in at)]:
        library.write_bytes(content)
        assert bundle.run("enable-cuda-compat", "--host-driver-version=570.1") == (0, "")
    library.unlink()
    os.mkfifo(library)
    assert bundle.run("enable-cuda-compat", "--host-driver-version=570.1") == (0, "")


@needs_root
def test_the_cache_has_the_images_newer_cuda_in_front(bundle: Bundle) -> None:
    """The first entry of a name is what the dynamic linker takes."""
    for directory, name in ((COMPAT, "libcuda.so.580.65.06"), ("opt/nv", "libcuda.so.570.26")):
        (bundle.root / directory).mkdir(parents=True)
        (bundle.root / directory / name).write_bytes(encode_library("libcuda.so.1"))
    assert bundle.run("enable-cuda-compat", "--host-driver-version=570.26") == (0, "")
    assert bundle.run("update-ldcache", "--folder=/opt/nv") == (0, "")
    cache = parse_library_cache((bundle.root / "etc/ld.so.cache").read_bytes())
    paths = [library.path for library in cache if library.name == "libcuda.so.1"]
    assert paths == [f"/{COMPAT}/libcuda.so.1", "/opt/nv/libcuda.so.1"]
