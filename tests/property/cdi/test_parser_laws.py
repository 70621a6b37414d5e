"""Whatever lies on a node's disk, reading it does no harm: the linker cache, specifications, and our own writing."""

import json
import struct
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nodeagent.components.cdi.plan_specs import SpecOptions, plan_specs
from nodeagent.components.cdi.registry import parse_spec
from nodeagent.components.cdi.spec import find_spec_problems, render_spec
from nodeagent.edge.host.driver.ldcache import parse_library_cache
from nodeagent.edge.host.errors import LibraryCacheInvalid
from nodeagent.model.cdi import DriverFiles, DriverLibrary, DriverNode, SpecContent
from nodeagent.rules.cdi_names import PUBLIC_KINDS
from tests.support.samples import make_inventory
from tests.unit.edge.host.tree import encode_new_cache, encode_old_cache

CACHES = (
    encode_new_cache([(0x303, "libcuda.so.1", "/usr/lib/libcuda.so.1", 0)]),
    encode_old_cache([(0x3, "libcuda.so.1", "/usr/lib/libcuda.so.1")]),
)
EDGES = st.sampled_from([0, 1, 7, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
DAMAGE = st.lists(st.tuples(st.integers(0, 200), st.one_of(EDGES, st.integers(0, 0xFFFFFFFF))), max_size=6)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["cdiVersion", "kind", "devices", "name", "containerEdits", "mounts", "env", "hooks", "x"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=20,
)
PARTS = st.text(st.characters(codec="ascii", min_codepoint=33, exclude_characters="/"), min_size=1, max_size=10)


def damage_cache(cache: bytes, damage: list[tuple[int, int]], length: int) -> None:
    """Overwrite numbers in a good cache, cut it, and read it."""
    content = bytearray(cache)
    for at, value in damage:
        place = at % max(1, len(content) - 4)
        content[place : place + 4] = struct.pack("<I", value)
    with suppress(LibraryCacheInvalid):
        for library in parse_library_cache(bytes(content[: length or None])):
            assert library.name
            assert library.path


@given(st.sampled_from(CACHES), DAMAGE, st.integers(0, 200))
def test_no_linker_cache_does_harm(cache: bytes, damage: list[tuple[int, int]], length: int) -> None:
    """A damaged cache gives entries that name something, or the one error; thousands more are in test_fuzz.py."""
    damage_cache(cache, damage, length)


@given(JSON, st.sampled_from(["x.json", "x.yaml"]))
def test_no_document_does_harm(document: Any, name: str) -> None:
    """Any document is read as valid with its names, or as a problem."""
    reading = parse_spec(SpecContent(path=f"/etc/cdi/{name}", content=json.dumps(document).encode()))
    assert bool(reading.problem) != bool(reading.devices)
    assert isinstance(find_spec_problems(document), tuple)


@given(st.binary(max_size=200), st.sampled_from(["x.json", "x.yaml"]))
def test_no_bytes_do_harm(content: bytes, name: str) -> None:
    """Bytes that are no document are a problem."""
    assert parse_spec(SpecContent(path=f"/etc/cdi/{name}", content=content)).problem


@given(
    st.lists(st.tuples(PARTS, st.one_of(st.just(""), PARTS)), max_size=6, unique_by=lambda pair: pair[0]),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_what_we_write_is_valid_and_names_no_place_twice(names: list[tuple[str, str]], gpus: int, nodes: int) -> None:
    """Whatever the driver's files are called, however many nodes are missing."""
    libraries = tuple(
        DriverLibrary(path=f"/usr/lib/{name}", host_path=f"/usr/lib/{name}", soname=soname) for name, soname in names
    )
    found = tuple(DriverNode(path=f"/dev/nvidia{minor}", host_path=f"/dev/nvidia{minor}") for minor in range(nodes))
    plan = plan_specs(
        make_inventory(gpus), DriverFiles(libraries=libraries, nodes=found), SpecOptions(kinds=PUBLIC_KINDS)
    )
    assert len(plan.left_out) == max(0, gpus - nodes)
    for spec in plan.specs:
        assert find_spec_problems(json.loads(render_spec(spec))) == ()
        places = [mount.container_path for mount in spec.container_edits.mounts]
        assert len(places) == len(set(places))
