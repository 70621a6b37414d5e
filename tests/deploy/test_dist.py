"""What is handed out is complete, small, and free to run and pass on."""

import json
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from tests.deploy.dist import (
    BUILT,
    PROGRAM_LIMITS,
    ROOT,
    WHEEL_LIMIT_BYTES,
    Part,
    build,
    find_licence,
    find_unfree,
    judge_wheel,
    parse_pins,
    read_parts,
    render_bill,
)
from tests.support.programs.native import MACHINES, PROGRAMS

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")


def describe(**fields: str) -> Message:
    message = Message()
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    return message


@pytest.mark.long
def test_wheel_is_small_complete_and_the_same_twice(tmp_path: Path) -> None:
    """It carries the systemd unit and nothing that only developers need."""
    first, second = tmp_path / "first", tmp_path / "second"
    (wheel, again) = (build(place, "1700000000")[0] for place in (first, second))
    assert wheel.suffix == ".whl"
    assert wheel.read_bytes() == again.read_bytes()
    assert [problem for problem in judge_wheel(wheel) if "make native" not in problem] == []
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("/lib/systemd/system/nodeagent.service") for name in names)
    assert any(name.endswith("/lib/tmpfiles.d/nodeagent.conf") for name in names)
    assert {"nodeagent_sim/command.py", "nodeagent_sim/gpus/profiles/t4.yaml"} < set(names)
    assert not [name for name in names if name.startswith("tests/")]


def test_wheel_without_the_programs_in_c_or_too_large_is_refused(tmp_path: Path) -> None:
    """Each missing one is named with its remedy; their own size is not the package's."""
    wheel = tmp_path / "a.whl"
    names = [f"{BUILT}{machine}/{name}" for machine in MACHINES for name in PROGRAMS]
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in names:
            archive.writestr(name, bytes(PROGRAM_LIMITS.get(name.rpartition("/")[2], WHEEL_LIMIT_BYTES)))
    assert judge_wheel(wheel) == []
    name = next(each for each in names if each.endswith("nodeagent-oci-shim"))
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(name, bytes(PROGRAM_LIMITS["nodeagent-oci-shim"] + 1))
    assert [each for each in judge_wheel(wheel) if "make native" not in each] == [
        f"{name} has 307201 bytes, allowed are 307200"
    ]
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("nodeagent/x.py", bytes(WHEEL_LIMIT_BYTES))
    *missing, large = judge_wheel(wheel)
    assert missing == [f"a.whl lacks {name}: `make native`" for name in names]
    assert "beside the programs in C" in large


def test_every_library_we_install_may_be_passed_on() -> None:
    """A licence that nobody has looked at fails by its name."""
    pins = parse_pins((ROOT / "requirements/runtime.txt").read_text())
    parts = read_parts(pins)
    assert {"anyio", "aiohttp", "msgspec"} <= {part.name for part in parts if part.installed}
    assert find_unfree(parts) == []
    assert find_unfree([Part("some", "1", "GPL-3.0-only")]) == ["some 1: GPL-3.0-only"]
    assert find_unfree([Part("some", "1", "MIT AND Nonfree")]) == ["some 1: MIT AND Nonfree"]
    assert find_unfree([Part("some", "1", "", installed=False)]) == []


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ({"License_Expression": "Apache-2.0 AND MIT"}, "Apache-2.0 AND MIT"),
        ({"License": "MIT License"}, "MIT"),
        ({"License": "see file", "Classifier": "License :: OSI Approved :: BSD License"}, "BSD-3-Clause"),
        ({"License": "Secret\nwith a long text"}, "Secret"),
        ({}, "unknown"),
    ],
)
def test_licence_is_found_however_it_is_said(fields: dict[str, str], licence: str) -> None:
    """Packages say it in three ways, some in none."""
    assert find_licence(describe(**fields)) == licence


def test_bill_of_materials_names_every_pinned_library() -> None:
    """With name and version as scanners look them up, and the same twice."""
    pins = parse_pins("a==1.0 \\\n    --hash=sha256:0\nb-c==2.1 ; python_version < '3.13' \\\n    --hash=sha256:0\n")
    assert pins == {"a": "1.0", "b-c": "2.1"}
    parts = [Part("a", "1.0", "MIT"), Part("b-c", "2.1", "", installed=False)]
    bill = json.loads(render_bill(parts))
    assert [each["purl"] for each in bill["components"]] == ["pkg:pypi/a@1.0", "pkg:pypi/b-c@2.1"]
    assert render_bill(parts) == render_bill(parts)
