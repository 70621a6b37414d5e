"""The limits file says what it was given, is changed in place, and is refused when it is not what it should be."""

import os
from pathlib import Path

import pytest

from nodeagent.edge.host.errors import FileNotWritten, FileTooLarge, FileUnreadable, VgpuFileInvalid
from nodeagent.edge.host.vgpu import layout
from nodeagent.edge.host.vgpu.limits_file import (
    DeviceLimit,
    FailMode,
    Limits,
    Measured,
    change_limits,
    create_limits,
    parse_limits,
    read_limits,
    render_limits,
    write_measured,
)

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")

FIRST = DeviceLimit("GPU-11111111-2222-3333-4444-555555555555", memory_bytes=8 << 30, core_percent=30, soft=True)
SECOND = DeviceLimit("MIG-99999999-2222-3333-4444-555555555555", context_bytes=300 << 20)
LIMITS = Limits((FIRST, SECOND), FailMode.REFUSE)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Also a limit of no bytes at all, which is not the same as none."""
    path = tmp_path / "limits"
    create_limits(path, LIMITS)
    assert read_limits(path) == LIMITS
    assert path.stat().st_mode & 0o777 == 0o644
    nothing = Limits((DeviceLimit(FIRST.uuid, memory_bytes=0),))
    assert parse_limits(render_limits(nothing)) == nothing


def test_a_change_stays_in_the_file_that_containers_have_mapped(tmp_path: Path) -> None:
    """Same inode, an even sequence that grew; a device may be added at the end."""
    path = tmp_path / "limits"
    create_limits(path, Limits((FIRST,)))
    before = path.stat().st_ino
    change_limits(path, LIMITS)
    change_limits(path, Limits((FIRST, SECOND)))
    assert (path.stat().st_ino, read_limits(path)) == (before, Limits((FIRST, SECOND)))
    assert layout.LIMITS_HEADER.unpack(path.read_bytes())["sequence"] == 4


def test_slots_stay_with_their_device(tmp_path: Path) -> None:
    """The ledger counts by slot."""
    path = tmp_path / "limits"
    create_limits(path, LIMITS)
    for other in ((SECOND, FIRST), (FIRST,), ()):
        with pytest.raises(VgpuFileInvalid, match="its slots are for other devices"):
            change_limits(path, Limits(other))
    assert read_limits(path) == LIMITS


def test_half_a_write_is_seen_and_made_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent may die between any two of its calls."""
    path = tmp_path / "limits"
    create_limits(path, LIMITS)
    real, left = os.pwrite, 2

    def write(descriptor: int, part: bytes, place: int) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")
        return real(descriptor, part, place)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write)
        with pytest.raises(FileNotWritten, match="write the limits in place: no space left"):
            change_limits(path, Limits((FIRST, SECOND)))
    with pytest.raises(VgpuFileInvalid, match="half written"):
        read_limits(path)
    change_limits(path, LIMITS)
    assert read_limits(path) == LIMITS


def test_write_cut_short_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than half a file that looks whole."""
    path = tmp_path / "limits"
    create_limits(path, LIMITS)
    monkeypatch.setattr(os, "pwrite", lambda descriptor, part, place: len(part) - 1)
    with pytest.raises(FileNotWritten):
        change_limits(path, LIMITS)


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [
        (0, b"other", "no limits file of version 1"),
        (8, b"\x02", "no limits file of version 1"),
        (32, b"\x01", "half written"),
        (70, b"\xff", "checksum"),
        (12, b"\x07", "checksum"),
    ],
)
def test_damage_is_named(tmp_path: Path, offset: int, value: bytes, reason: str) -> None:
    """Any byte of it."""
    path = tmp_path / "limits"
    content = bytearray(render_limits(LIMITS))
    content[offset : offset + len(value)] = value
    path.write_bytes(content)
    with pytest.raises(VgpuFileInvalid, match=reason):
        read_limits(path)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"slots": 17}, "17 devices"), ({"header_bytes": 65}, "not of the size"), ({"fail_mode": 9}, "not a valid")],
)
def test_what_cannot_be_is_refused_though_the_checksum_is_right(fields: dict[str, int], reason: str) -> None:
    """A file of another writer."""
    header = layout.LIMITS_HEADER.unpack(render_limits(LIMITS)) | fields
    slots = render_limits(LIMITS)[layout.LIMITS_HEADER.size : layout.MEASURED_AT]
    header["checksum"] = layout.compute_checksum(layout.LIMITS_HEADER.pack(**header)[:32], slots)
    with pytest.raises(ValueError, match=reason):
        parse_limits(layout.LIMITS_HEADER.pack(**header) + render_limits(LIMITS)[layout.LIMITS_HEADER.size :])


def test_file_of_another_size_or_kind_is_left_alone(tmp_path: Path) -> None:
    """Nothing is written into what is no limits file."""
    path = tmp_path / "limits"
    with pytest.raises(FileUnreadable):
        change_limits(path, LIMITS)
    path.write_bytes(b"short")
    for call in (lambda: read_limits(path), lambda: change_limits(path, LIMITS)):
        with pytest.raises(VgpuFileInvalid):
            call()
    path.write_bytes(bytes(layout.LIMITS_BYTES))
    with pytest.raises(VgpuFileInvalid, match="no limits file"):
        change_limits(path, LIMITS)
    assert path.read_bytes() == bytes(layout.LIMITS_BYTES)
    path.write_bytes(bytes(layout.LIMITS_BYTES + 1))
    with pytest.raises(FileTooLarge):
        read_limits(path)


@pytest.mark.parametrize(
    "device",
    [
        DeviceLimit("11111111-2222-3333-4444-555555555555"),
        DeviceLimit("GPU-1"),
        DeviceLimit(FIRST.uuid, memory_bytes=-1),
        DeviceLimit(FIRST.uuid, context_bytes=-1),
        DeviceLimit(FIRST.uuid, memory_bytes=1 << 60),
        DeviceLimit(FIRST.uuid, core_percent=0),
        DeviceLimit(FIRST.uuid, core_percent=101),
    ],
)
def test_limit_that_cannot_be_said_is_refused(device: DeviceLimit) -> None:
    with pytest.raises(ValueError):
        render_limits(Limits((device,)))


def test_too_many_devices_or_one_twice_are_refused() -> None:
    """A slot for each, and each one slot."""
    many = tuple(DeviceLimit(f"GPU-{number:08x}-2222-3333-4444-555555555555") for number in range(17))
    assert len(parse_limits(render_limits(Limits(many[:16]))).devices) == 16
    with pytest.raises(ValueError, match="16 is the most"):
        render_limits(Limits(many))
    with pytest.raises(ValueError, match="twice"):
        render_limits(Limits((FIRST, FIRST)))


def test_measurements_are_written_beside_the_limits(tmp_path: Path) -> None:
    """Neither is disturbed by the other; the number goes on after its last."""
    path = tmp_path / "limits"
    create_limits(path, LIMITS)
    write_measured(path, 1, Measured(number=(1 << 32) + 7, own=2500, total=9000))
    change_limits(path, Limits((FIRST, SECOND)))
    assert read_limits(path) == Limits((FIRST, SECOND))
    at = layout.MEASURED_AT + layout.MEASURED.size
    assert layout.MEASURED.unpack_from(path.read_bytes(), at) == (2500, 9000, 7)
    assert path.stat().st_size == layout.LIMITS_BYTES


@pytest.mark.parametrize(
    ("slot", "measured"),
    [(16, Measured(1, 0, 0)), (-1, Measured(1, 0, 0)), (0, Measured(1, 2, 1)), (0, Measured(1, 0, 10001))],
)
def test_measurement_that_cannot_be_is_refused(tmp_path: Path, slot: int, measured: Measured) -> None:
    create_limits(tmp_path / "limits", LIMITS)
    with pytest.raises(ValueError, match="cannot have"):
        write_measured(tmp_path / "limits", slot, measured)


def test_measurement_for_a_file_that_is_not_there_or_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured(1, 0, 0)
    with pytest.raises(FileUnreadable):
        write_measured(tmp_path / "limits", 0, measured)
    create_limits(tmp_path / "limits", LIMITS)

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(FileNotWritten, match="write a measurement"):
        write_measured(tmp_path / "limits", 0, measured)
