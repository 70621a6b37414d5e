"""The file formats that C and Python share are the same on both sides, as the compiler sees them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from nodeagent.edge.host.vgpu import layout, limits_file, usage_file
from tests.support.programs.native import NATIVE

HEADER = NATIVE / "include" / "vgpu_files.h"
CONSTANTS = {
    "VGPU_LIMITS_MAGIC": layout.LIMITS_MAGIC,
    "VGPU_USAGE_MAGIC": layout.USAGE_MAGIC,
    "VGPU_VERSION": layout.VERSION,
    "VGPU_DEVICES": layout.DEVICES,
    "VGPU_PROCESSES": layout.PROCESSES,
    "VGPU_CHECKSUM_START": layout.compute_checksum(),
    "VGPU_OWNER_HELD": layout.OWNER_HELD << 62,
    "VGPU_OWNER_RECLAIMED": layout.OWNER_RECLAIMED << 62,
    "VGPU_OWNER_PID_SHIFT": layout.PID_SHIFT,
    "VGPU_OWNER_PID_MASK": layout.PID_MASK,
    "VGPU_OWNER_START_MASK": layout.START_MASK,
    "sizeof(struct vgpu_limits)": layout.LIMITS_BYTES,
    "sizeof(struct vgpu_usage)": layout.USAGE_BYTES,
    "VGPU_PASS": limits_file.FailMode.PASS,
    "VGPU_REFUSE": limits_file.FailMode.REFUSE,
    "VGPU_LIMIT_MEMORY": limits_file._Flag.MEMORY,
    "VGPU_LIMIT_CORES": limits_file._Flag.CORES,
    "VGPU_SOFT": limits_file._Flag.SOFT,
    "VGPU_MIG": limits_file._Flag.MIG,
    **{f"VGPU_{each.name}": each.value for each in (*usage_file.Status, *usage_file.Reason)},
}
pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="the formats' other side is C"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]


def ask_the_compiler(place: Path, expressions: list[str]) -> list[int]:
    lines = "".join(f'    printf("%llu\\n", (unsigned long long)({each}));\n' for each in expressions)
    source = place / "layout.c"
    source.write_text(f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{\n{lines}}}\n')
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", place / "layout", source], check=True)
    done = subprocess.run([place / "layout"], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def test_offsets_sizes_and_constants_are_the_same(tmp_path: Path) -> None:
    """Of every structure and every field."""
    wanted = dict(CONSTANTS)
    for record in layout.RECORDS:
        wanted[f"sizeof(struct {record.name})"] = record.size
        for field, offset in record.offsets.items():
            spare = re.fullmatch(r"more(\d+)", field)
            name = f"more[{spare[1]}]" if spare else field
            wanted[f"offsetof(struct {record.name}, {name})"] = offset
    assert dict(zip(wanted, ask_the_compiler(tmp_path, list(wanted)), strict=True)) == wanted


def test_no_field_of_the_header_is_forgotten() -> None:
    """What C has, Python names, and the other way round."""
    text = HEADER.read_text()
    for record in layout.RECORDS:
        found = re.search(rf"^struct {record.name} \{{(.*?)^\}};", text, re.MULTILINE | re.DOTALL)
        assert found, record.name
        names = re.findall(r"(\w+)(?:\[\w+\])?;", found[1])
        assert list(dict.fromkeys(re.sub(r"^more\d+$", "more", name) for name in record.offsets)) == names
