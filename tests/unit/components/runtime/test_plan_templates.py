"""Distributions that make containerd's configuration anew at every start: what is read, and what is written where."""

import pytest

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.plan import RuntimePlan, Wanted, apply_to_tree
from nodeagent.components.runtime.plan_containerd import plan_containerd
from nodeagent.components.runtime.planners import PLANNERS
from nodeagent.components.runtime.toml_edit import get, parse_toml
from nodeagent.model.runtime import ConfigFile, ConfigTree, RuntimeFlavour, RuntimeKind
from tests.unit.components.runtime.test_plan_containerd import V2, V3, make_off

ARGS = "/var/snap/microk8s/current/args"
TEMPLATE = f"{ARGS}/containerd-template.toml"
LOCK = "/var/snap/microk8s/current/var/lock/gpu"
# The keys of MicroK8s' own template that are about runtimes; its start script fills in what stands in braces.
MICROK8S = """# Use config version 2 to enable new configuration fields.
version = 2
oom_score = 0

[plugins."io.containerd.grpc.v1.cri"]

  stream_server_port = "0"

  [plugins."io.containerd.grpc.v1.cri".containerd]

    snapshotter = "${SNAPSHOTTER}"
    default_runtime_name = "${RUNTIME}"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "${RUNTIME_TYPE}"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia-container-runtime]
      runtime_type = "${RUNTIME_TYPE}"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia-container-runtime.options]
        BinaryName = "nvidia-container-runtime"

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "${SNAP_DATA}/opt/cni/bin"
"""
RUNTIMES = ("plugins", "io.containerd.grpc.v1.cri", "containerd", "runtimes")
DEFAULT = (*RUNTIMES[:-1], "default_runtime_name")
SHIM = Wanted(wrapper="/shim", names=())
RANCHER = "/var/lib/rancher/k3s/agent/etc/containerd"
K3S_MAIN = f"{RANCHER}/config.toml"


def make_runtime(flavour: RuntimeFlavour, path: str, version: str) -> ChosenRuntime:
    return ChosenRuntime(kind=RuntimeKind.CONTAINERD, flavour=flavour, socket="/s", config_file=path, version=version)


def make_tree(**files: str) -> ConfigTree:
    return ConfigTree(files=tuple(ConfigFile(path=path, content=text.encode()) for path, text in files.items()))


def plan(runtime: ChosenRuntime, tree: ConfigTree, wanted: Wanted) -> RuntimePlan:
    first = plan_containerd(runtime, tree, wanted)
    if first.changes:
        again = plan_containerd(runtime, apply_to_tree(tree, first.changes), wanted)
        assert (again.changes, again.problem) == ((), ""), "a plan must be done when it was carried out once"
    return first


@pytest.mark.parametrize(("lock", "default"), [(None, "runc"), (b"", "nvidia-container-runtime")])
@pytest.mark.parametrize("version", ["1.6.28", "1.7.35", "2.1.4"])
def test_microk8s_template_is_understood_and_edited_as_it_is(version: str, lock: bytes | None, default: str) -> None:
    """Our keys come into the template, its variables stay, and containerd's own view of it has them filled in."""
    runtime = make_runtime(RuntimeFlavour.MICROK8S, TEMPLATE, version)
    files = [ConfigFile(path=TEMPLATE, content=MICROK8S.encode())]
    # Its start script makes NVIDIA's runtime the default where this file is, which `microk8s enable gpu` makes.
    files += [ConfigFile(path=LOCK, content=lock)] if lock is not None else []
    tree = ConfigTree(files=tuple(files))
    wanted = Wanted(cdi=version != "1.6.28", wrapper="/shim", names=())
    found = plan(runtime, tree, wanted)
    assert found.problem == ""
    (change,) = found.changes
    assert change.path == TEMPLATE
    text = (change.after or b"").decode()
    added = [line for line in text.splitlines() if line.strip() and line not in MICROK8S.splitlines()]
    assert [line for line in MICROK8S.splitlines() if line.strip()] == [
        line for line in text.splitlines() if line.strip() and line not in added
    ]
    planned = PLANNERS[RuntimeKind.CONTAINERD].arrange(runtime, apply_to_tree(tree, found.changes))
    (seen,) = planned.files
    document = parse_toml(seen.path, seen.content)
    assert get(document, DEFAULT) == default
    assert get(document, (*RUNTIMES, "runc", "runtime_type")) == "io.containerd.runc.v2"
    assert get(document, (*RUNTIMES, "nvidia", "options", "BinaryName")) == "/shim"
    assert set(found.handlers) == {"runc", "nvidia-container-runtime", "nvidia"}


def test_microk8s_lock_is_looked_for() -> None:
    """Beside the template's own directory, wherever that is."""
    runtime = make_runtime(RuntimeFlavour.MICROK8S, TEMPLATE, "2.1.4")
    assert LOCK in PLANNERS[RuntimeKind.CONTAINERD].list_other_places(runtime)
    plain = make_runtime(RuntimeFlavour.PLAIN, "/etc/containerd/config.toml", "2.1.4")
    assert not [path for path in PLANNERS[RuntimeKind.CONTAINERD].list_other_places(plain) if path.endswith("gpu")]


def test_what_microk8s_template_imports_has_its_say() -> None:
    """The file is known by the path that the start script makes of the variable, and what it sets counts."""
    runtime = make_runtime(RuntimeFlavour.MICROK8S, TEMPLATE, "2.1.4")
    main = 'imports = ["${SNAP_DATA}/args/more/*.toml"]\n' + MICROK8S
    more = f"{ARGS}/more/own.toml"
    own = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n'
    tree = make_tree(**{TEMPLATE: main, more: f"version = 2\n{own}"})
    found = plan(runtime, tree, SHIM)
    assert found.problem == ""
    assert "kata" in found.handlers
    assert [change.path for change in found.changes] == [more], "the last file with the section"
    planned = PLANNERS[RuntimeKind.CONTAINERD].arrange(runtime, apply_to_tree(tree, found.changes))
    assert parse_toml(TEMPLATE, planned.files[0].content)["imports"] == [f"{ARGS}/more/*.toml"]


def test_a_default_runtime_that_is_wanted_takes_the_place_of_the_variable() -> None:
    """What a person has asked for counts, whatever the start script would have put there."""
    runtime = make_runtime(RuntimeFlavour.MICROK8S, TEMPLATE, "2.1.4")
    found = plan(runtime, make_tree(**{TEMPLATE: MICROK8S}), Wanted(wrapper="/shim", names=(), default=True))
    (change,) = found.changes
    assert b"${RUNTIME}" not in (change.after or b"")
    assert get(parse_toml(TEMPLATE, change.after), DEFAULT) == "nvidia"


@pytest.mark.parametrize(
    ("text", "directory"), [(V3, "config-v3.toml.d"), (V2, "config.toml.d")], ids=["version 3", "version 2"]
)
@pytest.mark.parametrize("flavour", [RuntimeFlavour.K3S, RuntimeFlavour.RKE2])
def test_k3s_gets_a_drop_in_where_what_it_generates_imports_one(
    flavour: RuntimeFlavour, text: str, directory: str
) -> None:
    """Its newer templates import a directory that lasts; the file that it generates is not touched."""
    main = f'imports = ["{RANCHER}/{directory}/*.toml"]\n{make_off(text)}'
    found = plan(make_runtime(flavour, K3S_MAIN, "2.1.4"), make_tree(**{K3S_MAIN: main}), SHIM)
    assert found.problem == ""
    (change,) = found.changes
    assert change.path == f"{RANCHER}/{directory}/zz-nodeagent.toml"
    assert parse_toml(change.path, change.after)["version"] == parse_toml(K3S_MAIN, main.encode())["version"]
    assert set(found.handlers) == {"runc", "nvidia"}


def test_k3s_before_is_left_to_write_its_own() -> None:
    """Whether it imports nothing, or something else, or its containerd replaces tables by those of imports."""
    imports = f'imports = ["{RANCHER}/config.toml.d/*.toml"]\n'
    for version, main in (
        ("2.1.4", make_off(V3)),
        ("2.1.4", f'imports = ["/etc/more/*.toml"]\n{make_off(V3)}'),
        ("1.7.35", imports + V2),
    ):
        found = plan(make_runtime(RuntimeFlavour.K3S, K3S_MAIN, version), make_tree(**{K3S_MAIN: main}), Wanted())
        assert (found.changes, "take the setting out of its template" in found.problem) == ((), True), version


@pytest.mark.parametrize(("version", "enabled"), [("1.7.35", False), ("2.1.4", True)])
def test_a_template_in_go_is_not_taken_for_a_configuration(version: str, enabled: bool) -> None:
    """It is no TOML that somebody would have to mend."""
    path = f"{RANCHER}/config-v3.toml.tmpl"
    found = plan(
        make_runtime(RuntimeFlavour.K3S, path, version), make_tree(**{path: '{{ template "base" . }}\n'}), Wanted()
    )
    assert found.changes == ()
    assert "leave `runtime.config_file` unset" in found.problem
    assert found.cdi_enabled is enabled
