"""The parser of the linker cache and the patchers of runtime configurations, on damaged files by the thousand.

2,000 cases each for every change, 100,000 each with `make nightly`; a failure names the seed and repeats with it.
"""

import json
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import pytest

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.plan import RuntimePlan, Wanted, apply_to_tree
from nodeagent.components.runtime.plan_containerd import plan_containerd
from nodeagent.components.runtime.plan_crio import plan_crio
from nodeagent.components.runtime.plan_docker import parse_daemon_json, plan_docker
from nodeagent.components.runtime.plan_podman import plan_podman
from nodeagent.components.runtime.toml_edit import ConfigUneditable, ConfigUnparsable, parse_toml
from nodeagent.components.runtime.withdraw import compare, withdraw
from nodeagent.edge.host.driver.ldcache import parse_library_cache
from nodeagent.edge.host.errors import LibraryCacheInvalid
from nodeagent.model.runtime import ConfigFile, ConfigTree, EditedFile, RuntimeFlavour, RuntimeKind
from tests.support.texts.mutations import list_mutations
from tests.unit.edge.host.tree import encode_new_cache, encode_old_cache

CI_CASES, CHUNK = 2_000, 10_000
CASES = [
    pytest.param(CI_CASES, 1, id="ci"),
    *(
        pytest.param(CHUNK, seed, id=f"night-{seed}", marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])
        for seed in range(2, 12)
    ),
]
CACHES = (
    encode_new_cache([(0x303, "libcuda.so.1", "/usr/lib/libcuda.so.1", 0)]),
    encode_old_cache([(0x3, "libcuda.so.1", "/usr/lib/libcuda.so.1")]),
    encode_new_cache([(0x303, f"lib{n}.so", f"/usr/lib/lib{n}.so", 0) for n in range(20)]),
)
CRI = b"io.containerd.grpc.v1.cri"
CONTAINERD = tuple(
    text.replace(b"VERSION", version).replace(b"CRI", section)
    for version, section in ((b"2", b'"%b"' % CRI), (b"3", b"'io.containerd.cri.v1.runtime'"), (b"1", b"cri"))
    for text in (
        b"""# by hand
version = VERSION
imports = ['conf.d/*.toml']
[plugins.CRI] # why
  enable_cdi = false
  [plugins.CRI.containerd]
    default_runtime_name = 'runc'
    [plugins.CRI.containerd.runtimes.runc]
      runtime_type = 'io.containerd.runc.v2'
      [plugins.CRI.containerd.runtimes.runc.options]
        SystemdCgroup = true
""",
        b"version = VERSION\n[grpc]\naddress = '/s'\n[plugins]\n[plugins.CRI.registry.mirrors.'x.y']\nendpoint = []\n",
        b"version = VERSION\nplugins.CRI.enable_cdi = false\nplugins.CRI.containerd = { runtimes = { } }\n[[list]]\n",
    )
)
CRIO = (
    b'[crio.runtime]\ndefault_runtime = "crun" # ours\n[crio.runtime.runtimes.crun]\nruntime_path = "/usr/bin/crun"\n',
    b"[crio]\n[crio.image]\npause_image = 'p'\n",
)
PODMAN = (b'[engine]\nruntime = "crun" # ours\n[engine.runtimes]\nnvidia = ["/x"]\n', b"[containers]\n")
DOCKER = (
    b'{\n  "features": {"buildkit": true},\n  "runtimes": {"crun": {"path": "/c"}},\n  "debug": false\n}\n',
    b"{}",
    b'{"features": {}}',
)
WORDS = (
    *(b"[plugins]", b"[plugins.cri]", b'[plugins."%b"]' % CRI, b"[[plugins]]", b"[a.b]", b"enable_cdi = true", b'"""'),
    *(b"version = 3", b"version = 2", b"imports = []", b"'''", b"=", b"[", b"{", b"}", b"]", b"# x", b"\\", b'"', b","),
    *(b"x = {y = 1}", b"plugins = 1", b"a.b.c = 1", b"\xef\xbb\xbf", b"\x00", b"null", b'"features"', b'"cdi": true'),
    *(b'"runtimes"', b"[crio.runtime.runtimes.nvidia]", b"[crio.runtime]", b"1e999", b"0x", b"inf", b"1979-05-27"),
)
WANTED = (Wanted(wrapper="/usr/bin/w"), Wanted(wrapper="/usr/bin/w", names=("/n",), default=True))


def read_cache(content: bytes) -> None:
    """Entries that name something, or the one error."""
    with suppress(LibraryCacheInvalid):
        for library in parse_library_cache(content):
            assert library.name
            assert library.path


Planner = Callable[[ChosenRuntime, ConfigTree, Wanted], RuntimePlan]


def plan(planner: Planner, kind: RuntimeKind, version: str, content: bytes) -> None:
    """For a class and for a shim: a plan that is valid and done once, a problem, or one of two errors; the way back."""
    for wanted in WANTED:
        plan_one(planner, kind, version, content, wanted)


def plan_one(planner: Planner, kind: RuntimeKind, version: str, content: bytes, wanted: Wanted) -> None:
    runtime = ChosenRuntime(
        kind=kind, flavour=RuntimeFlavour.PLAIN, socket="/s", config_file="/etc/x/config", version=version
    )
    path = "/etc/x/config.json" if kind is RuntimeKind.DOCKER else "/etc/x/config"
    tree = ConfigTree(files=(ConfigFile(path=path, content=content),))
    with suppress(ConfigUnparsable, ConfigUneditable):
        planned = planner(runtime, tree, wanted)
        for change in planned.changes:
            after = change.after or b""
            (json if kind is RuntimeKind.DOCKER else tomllib).loads(after.decode())
        if planned.changes:
            assert planner(runtime, apply_to_tree(tree, planned.changes), wanted).changes == ()
        for change in planned.changes:
            edited = EditedFile(
                path=change.path, before=change.before, ours=change.after or b"", now=change.after or b""
            )
            parse = parse_daemon_json if kind is RuntimeKind.DOCKER else parse_toml
            assert parse(path, withdraw(edited)) == parse(path, change.before)


def take_out(content: bytes) -> None:
    """Whatever others made of a file of ours, what is left is what the comparison says, or the file stays."""
    before, ours = (
        CONTAINERD[0],
        CONTAINERD[0].replace(b"enable_cdi = false", b"enable_cdi = true") + b"[ours]\nx = 1\n",
    )
    with suppress(ConfigUnparsable, ConfigUneditable):
        left = withdraw(EditedFile(path="/c", before=before, ours=ours, now=content))
        parsed = [parse_toml("/c", each) for each in (before, ours, content)]
        assert parse_toml("/c", left) == compare(*parsed)


PATCHERS: Sequence[tuple[Sequence[bytes], Callable[[bytes], None]]] = (
    *(
        (CONTAINERD, partial(plan, plan_containerd, RuntimeKind.CONTAINERD, each))
        for each in ("1.6.1", "1.7.1", "2.1.0")
    ),
    (CRIO, partial(plan, plan_crio, RuntimeKind.CRIO, "1.33.0")),
    (PODMAN, partial(plan, plan_podman, RuntimeKind.PODMAN, "")),
    (DOCKER, partial(plan, plan_docker, RuntimeKind.DOCKER, "27.0")),
    (CONTAINERD[:1], take_out),
)


def fuzz(seeds: Sequence[bytes], check: Callable[[bytes], None], *, count: int, seed: int) -> None:
    for number, content in enumerate(list_mutations(seeds, WORDS, count=count, seed=seed)):
        try:
            check(content)
        except Exception as error:  # noqa: BLE001  # whatever it is, which case it was must be told
            pytest.fail(f"seed {seed}, case {number}: {content!r} gives {error!r}")


@pytest.mark.parametrize(("cases", "seed"), CASES)
def test_no_damaged_linker_cache_does_harm(cases: int, seed: int) -> None:
    """A damaged cache gives entries that name something, or the one error."""
    fuzz(CACHES, read_cache, count=cases, seed=seed)


@pytest.mark.long
@pytest.mark.parametrize(("cases", "seed"), CASES)
def test_no_damaged_configuration_makes_a_patcher_do_harm(cases: int, seed: int) -> None:
    """Every patcher gives a valid file that is done once and undone wholly, or says why it does not."""
    share, left = divmod(cases, len(PATCHERS))
    for number, (seeds, check) in enumerate(PATCHERS):
        fuzz(seeds, check, count=share + (number < left), seed=seed * 100 + number)
