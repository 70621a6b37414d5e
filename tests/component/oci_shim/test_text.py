"""`config.json` as text: what is not added or taken out stays, byte for byte."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.component.oci_shim.support import TABLE, Shim, make_spec
from tests.support.examples import examples

pytestmark = [
    pytest.mark.slow,
    pytest.mark.may_block("nothing here runs on an event loop"),
]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8).map("x{}".format), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = st.dictionaries(st.text(max_size=6).map("x{}".format), VALUES, max_size=4)


def is_subsequence(part: bytes, whole: bytes) -> bool:
    """Whether nothing but whole pieces was put between the bytes."""
    rest = iter(whole)
    return all(each in rest for each in part)


@pytest.mark.long
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    top=FIELDS,
    process=FIELDS,
    linux=st.none() | FIELDS,
    devices=st.none() | st.just([]) | st.just([{"path": "/dev/x"}]),
    mounts=st.none() | st.lists(st.fixed_dictionaries({"destination": st.text(max_size=5), "y": VALUES}), max_size=3),
    indent=st.none() | st.integers(0, 3),
    ascii_=st.booleans(),
)
def test_everything_else_stays(
    shim: Shim, top: Any, process: Any, linux: Any, devices: Any, mounts: Any, indent: int | None, ascii_: bool
) -> None:
    """Fields that nobody knows, their order, and how numbers and letters are written."""
    spec: dict[str, Any] = {
        **top,
        "process": {**process, "env": ["A=1", "NVIDIA_VISIBLE_DEVICES=none"]},
        "linux": linux,
    }
    if linux is not None and devices is not None:
        spec["linux"] = linux = {**linux, "devices": devices}
    if mounts is not None:
        spec["mounts"] = mounts
    text = json.dumps(spec, indent=indent, ensure_ascii=ascii_).encode("utf-8", "surrogatepass") + b"\n trailing }"
    done = shim.create(text)
    assert (done.status, done.said) == (7, "")
    assert done.text.endswith(b"\n trailing }")
    now = json.loads(done.text.decode("utf-8", "surrogatepass").removesuffix("\n trailing }"))
    assert list(now)[: len(spec)] == list(spec)
    assert {key: now[key] for key in top} == top
    assert {key: now["process"][key] for key in process} == process
    assert now["process"]["env"] == ["A=1", "NVIDIA_VISIBLE_DEVICES=void"]
    assert now["mounts"][: len(mounts or [])] == (mounts or [])
    assert len(now["mounts"]) == len(mounts or []) + 2
    assert now["linux"]["devices"][: len(devices or []) if linux is not None else 0] == (
        (devices or []) if linux else []
    )
    expected = text if linux is not None else text.replace(b'"linux": null', b'"linux": ')
    head, _, _ = expected.partition(b"NVIDIA_VISIBLE_DEVICES=none")
    gone = b'"NVIDIA_VISIBLE_DEVICES=none"'
    before = expected[: expected.index(gone)].rstrip().rstrip(b",")
    assert is_subsequence(before, done.text)
    assert is_subsequence(expected[expected.index(gone) + len(gone) :], done.text)
    assert head


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        (
            '{"process":{"env":["NVIDIA_VISIBLE_DEVICES=1"]},"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]}}',
            ["nvidia0"],
        ),
        ('{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]},"process":{"cwd":"/"}}', ["nvidia0"]),
        ('{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0"]},"process":null}', []),
        ('{"Process":{"ENV":["NVIDIA_VISIBLE_DEVICES=0"]}}', ["nvidia0"]),
        ('{"proce\\u0073s":{"env":["NVIDIA\\u005fVISIBLE_DEVICES=0"]}}', ["nvidia0"]),
        ('{"proce\u017fs":{"env":["NVIDIA_VISIBLE_DEVICES=0"]}}', ["nvidia0"]),
        ('{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0","A=\\ud800","B=\udcff"]},"x":1e400,"linux":null}', ["nvidia0"]),
    ],
)
def test_it_is_read_as_runc_reads_it(text: str, gpus: list[str], shim: Shim) -> None:
    """Keys twice or in another case, escapes, halves of pairs, bytes that are no UTF-8."""
    done = shim.create(text.encode("utf-8", "surrogateescape"))
    assert (done.status, done.said) == (7, "")
    assert [name for name in ("nvidia0", "nvidia1") if f'"/dev/{name}"'.encode() in done.text] == gpus
    assert b"1e400" in done.text or "1e400" not in text
    assert b"\xff" in done.text or "\udcff" not in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        '{"a":}',
        '{"a" 1}',
        '{"a":01}',
        '{"a":1.}',
        '{"a":"\\x"}',
        '{"a":"\\u12"}',
        '{"a":"\n"}',
        '{"a":tru}',
        "{,}",
        "\ufeff{}",
        '{"a":"',
        '{"a":+1}',
        '{"a":"\0"}',
        "[" * 10001 + "]" * 10001,
    ],
)
def test_what_is_no_json_is_refused(text: str, shim: Shim) -> None:
    """As runc would, where somebody may be asking for GPUs; the rest is the low-level runtime's to refuse."""
    asking = (
        f"{text}NVIDIA_VISIBLE_DEVICES" if not text.endswith("}") else text.replace("{", '{"NVIDIA_VISIBLE_DEVICES', 1)
    )
    done = shim.create(asking.encode())
    assert (done.status, done.called) == (1, ())
    assert "cannot understand" in done.said
    assert done.text == asking.encode()
    done = shim.create(text.encode())
    assert (done.status, done.said, done.text) == (7, "", text.encode())
    fine = '{"x":' + "[" * 9999 + "]" * 9999 + "}"
    assert shim.create(fine.encode()).status == 7


@pytest.mark.parametrize("field", ["mounts", "linux", "hooks", "process"])
def test_what_is_of_the_wrong_kind_is_refused(field: str, shim: Shim) -> None:
    """Rather than made right."""
    spec = make_spec("NVIDIA_VISIBLE_DEVICES=0") | {field: "x"}
    done = shim.create(spec)
    assert done.spec == spec
    assert (done.status, "of the wrong kind" in done.said) == ((7, False) if field == "process" else (1, True))


def test_a_new_file_takes_the_place_of_a_link(shim: Shim) -> None:
    """What the link led to stays as it was, and gives its mode."""
    real = shim.place / "real.json"
    text = json.dumps(make_spec("NVIDIA_VISIBLE_DEVICES=0"))
    real.write_text(text)
    real.chmod(0o640)
    shim.config.symlink_to("../real.json")
    assert shim.run("create", "-b", shim.bundle, "c").gpus == ["nvidia0"]
    assert not shim.config.is_symlink()
    assert shim.config.stat().st_mode & 0o777 == 0o640
    assert real.read_text() == text
    assert list(shim.bundle.iterdir()) == [shim.config]


@pytest.mark.long
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(place=st.integers(0, 3000), byte=st.integers(0, 255), cut=st.booleans(), env=st.text(max_size=20))
def test_sanitizers_find_nothing(
    checked_program: Path, tmp_path_factory: pytest.TempPathFactory, place: int, byte: int, cut: bool, env: str
) -> None:
    """Whatever a configuration has in it, it is refused in one line or passed on; and so is a damaged table."""
    shim = Shim(checked_program, tmp_path_factory.mktemp("fuzz"))
    name = env.replace("\0", "")
    spec = make_spec(f"NVIDIA_VISIBLE_DEVICES={name}", f"NVIDIA_REQUIRE_CUDA={name}", f"CUDA_VERSION={name}")
    text = bytearray(json.dumps(spec).encode())
    for content in (bytes(text), bytes(text[: place % len(text)]) if cut else _change(text, place, byte)):
        done = shim.create(content, ASAN_OPTIONS="detect_leaks=0")
        assert done.status in (1, 7), done.said
        assert done.status == 7 or done.said.startswith("nodeagent-oci-shim: "), done.said
    table = shim.table / "table"
    body = bytearray(table.read_bytes())
    table.write_bytes(_change(body, place, byte))
    done = shim.create(make_spec("NVIDIA_VISIBLE_DEVICES=0"), ASAN_OPTIONS="detect_leaks=0")
    assert done.status in (1, 7), done.said
    assert TABLE.devices


def _change(text: bytearray, place: int, byte: int) -> bytes:
    changed = bytearray(text)
    changed[place % len(changed)] = byte
    return bytes(changed)
