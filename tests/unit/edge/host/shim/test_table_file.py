"""The runtime shim's table as bytes, and that the header of the program says the same."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from nodeagent.edge.host.errors import ShimTableUnfit
from nodeagent.edge.host.shim import table_file
from nodeagent.edge.host.shim.table_file import render_table, write_on_missing, write_table
from nodeagent.model.shim import (
    Capability,
    ShimDevice,
    ShimEnv,
    ShimGroup,
    ShimHook,
    ShimMount,
    ShimNode,
    ShimPolicy,
    ShimTable,
)
from nodeagent.model.shim_names import SHIM_PLACE
from tests.support.programs.native import NATIVE

HEADER = (NATIVE / "include" / "shim_table.h").read_text(encoding="utf-8")
NODE = ShimNode(wanted_by=Capability.ALWAYS, path="/dev/nvidia0", host_path="/h/dev/nvidia0", mode=0o660, gid=44)
TABLE = ShimTable(
    policy=ShimPolicy(swarm=("DOCKER_RESOURCE_GPU",), debug="/var/log/shim.log"),
    cuda="13.0",
    driver="580.65.06",
    fresh=(("/sys/module/nvidia/version", "580.65.06"),),
    devices=(
        ShimDevice(
            kind="gpu",
            names=("0", "GPU-1"),
            legacy_names=("07:00.0",),
            edits=((NODE, ShimGroup(wanted_by=Capability.GRAPHICS, gid=44)),),
            arch="9.0",
            brand="tesla",
        ),
        ShimDevice(
            kind="extra",
            names=("common",),
            edits=(
                (
                    ShimEnv(wanted_by=Capability.ALWAYS, name="A", value="b=c"),
                    ShimMount(wanted_by=Capability.COMPUTE, path="/c", host_path="/h", options=("ro", "rbind")),
                    ShimHook(wanted_by=Capability.COMPUTE, stage="createContainer", path="/p", args=("p", "x")),
                ),
            ),
        ),
        ShimDevice(kind="cdi", names=("nvidia.com/gpu=0",), edits=((NODE,),)),
    ),
)
LINES = """\
set accept_environment 1
set accept_mounts 0
set disable_require 0
set ignore_imex 0
set mode auto
set default_kind nvidia.com/gpu
set supported 7f
set debug /var/log/shim.log
runtime runc
runtime crun
swarm DOCKER_RESOURCE_GPU
prefix cdi.k8s.io/
version cuda 13.0
version driver 580.65.06
fresh /sys/module/nvidia/version 580.65.06
edits 0
node 80 /dev/nvidia0 /h/dev/nvidia0 rwm 660 44
gid 8 44
edits 1
env 80 A=b=c
mount 1 /c /h ro,rbind
hook 1 createContainer /p p x
edits 2
node 80 /dev/nvidia0 /h/dev/nvidia0 rwm 660 44
device gpu 0 9.0 tesla 0 GPU-1 ~07:00.0
device extra 1 - - common
device cdi 2 - - nvidia.com/gpu=0
"""


def read_words(name: str) -> tuple[str, ...]:
    found = re.search(rf"#define {name}((?:.*\\\n)*.*)", HEADER)
    assert found
    return tuple(re.findall(r'"([^"]*)"', found[1]))


def test_lines_are_as_the_header_says() -> None:
    """The example with blanks for tabs and `-` for an empty field."""
    told = render_table(TABLE).decode().replace("\t\t\t", "\t-\t-\t").replace("\t", " ")
    assert told == LINES


def test_header_and_description_are_equal() -> None:
    """Numbers, words and the capabilities' bits."""
    strings = dict(re.findall(r'#define SHIM_(\w+) "([^"]*)"$', HEADER, re.MULTILINE))
    assert strings == {
        "TABLE_NAME": table_file.NAME,
        "TABLE_FILE": table_file.TABLE_FILE,
        "ON_MISSING_FILE": table_file.ON_MISSING_FILE,
        "PLACE": SHIM_PLACE,
    }
    assert f'#define SHIM_DIRECTORY "{table_file.DIRECTORY.parent}/" SHIM_PLACE\n' in HEADER
    assert f"#define SHIM_TABLE_VERSION {table_file.VERSION}\n" in HEADER
    numbers = {name: int(value) for name, value in re.findall(r"SHIM_(\w+) = (\d+),", HEADER)}
    assert numbers.pop("SEAL_LIMIT") > len(table_file.NAME) + 64 + 22
    limits = {f"{name}_LIMIT": getattr(table_file, f"{name}_LIMIT") for name in ("TABLE", "LINES", "FIELDS")}
    assert {name: numbers[name] for name in limits} == limits
    bits = {name: int(value, 16) for name, value in re.findall(r"SHIM_(\w+) = (0x[0-9a-f]+),", HEADER)}
    assert bits == {each.name: each.value for each in Capability}
    assert read_words("SHIM_EXTRAS") == table_file.EXTRAS
    keys = tuple(line.split()[1] for line in LINES.splitlines() if line.startswith("set "))
    assert read_words("SHIM_SETTINGS") == keys


def test_table_is_sealed_and_for_root_alone(tmp_path: Path) -> None:
    """The first line has what the reader checks the rest by."""
    write_table(tmp_path, TABLE)
    path = tmp_path / "table"
    head, _, body = path.read_bytes().partition(b"\n")
    assert body == render_table(TABLE)
    assert head == f"nodeagent-shim-table 1 {len(body)} {hashlib.sha256(body).hexdigest()}".encode()
    write_on_missing(tmp_path, "pass")
    assert (tmp_path / "on_missing").read_bytes() == b"pass\n"
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cuda": "13\t0"}, "control character"),
        ({"devices": (ShimDevice(kind="gpu", names=tuple(map(str, range(5000)))),)}, "5005 fields"),
        ({"fresh": (("/a", "b"),) * 70000}, "lines"),
        ({"fresh": (("/a", "b" * 5_000_000),)}, "bytes"),
    ],
)
def test_what_the_shim_would_refuse_is_not_written(fields: dict[str, Any], words: str, tmp_path: Path) -> None:
    """The reader's bounds are the writer's."""
    with pytest.raises(ShimTableUnfit, match=words):
        write_table(tmp_path, ShimTable(**fields))
    assert list(tmp_path.iterdir()) == []
