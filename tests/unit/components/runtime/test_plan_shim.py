"""The runtime shim as the class of every runtime: ours whoever made the class, the default where that is wanted."""

import json
import tomllib
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.containerd_config import ContainerdConfig
from nodeagent.components.runtime.plan import RuntimePlan, Wanted, apply_to_tree
from nodeagent.components.runtime.plan_podman import plan_podman
from nodeagent.components.runtime.planners import PLANNERS
from nodeagent.components.runtime.toml_edit import ConfigUnparsable, get
from nodeagent.components.runtime.withdraw import withdraw
from nodeagent.model.runtime import ConfigFile, ConfigTree, EditedFile, RuntimeFlavour, RuntimeKind

SHIM, NAME = "/var/lib/nodeagent/nodeagent-oci-shim", "/usr/local/nvidia/toolkit/nvidia-container-runtime"
THEIRS = "/usr/bin/nvidia-container-runtime"
CLASS = Wanted(cdi=False, wrapper=SHIM, names=(NAME,))
DEFAULT = replace(CLASS, default=True)
FILES = {
    RuntimeKind.CONTAINERD: "/etc/containerd/config.toml",
    RuntimeKind.CRIO: "/etc/crio/crio.conf",
    RuntimeKind.DOCKER: "/etc/docker/daemon.json",
    RuntimeKind.PODMAN: "/etc/containers/containers.conf",
}
CONTAINERD = '[plugins."io.containerd.{plugin}".containerd]\n{default}'
ENTRY = (
    '[plugins."io.containerd.{plugin}".containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
    '[plugins."io.containerd.{plugin}".containerd.runtimes.nvidia.options]\n'
    'BinaryName = "{program}"\nSystemdCgroup = true\n'
    '[plugins."io.containerd.{plugin}".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
)
PODMAN = "[engine.runtimes]\nnvidia = [{}]\n"
PLUGINS = {2: "grpc.v1.cri", 3: "cri.v1.runtime"}
RELEASES = (("1.6.36", 2), ("1.7.28", 2), ("2.0.5", 2), ("2.1.4", 3), ("2.4.2", 3))


def find_plan(
    kind: RuntimeKind, version: str, content: str | None, wanted: Wanted = CLASS
) -> tuple[ConfigTree, RuntimePlan]:
    path = FILES[kind]
    tree = ConfigTree(files=(ConfigFile(path=path, content=content.encode() if content is not None else None),))
    runtime = ChosenRuntime(
        kind=kind, flavour=RuntimeFlavour.PLAIN, socket="/run/x.sock", config_file=path, version=version
    )
    found = PLANNERS[kind].plan(runtime, tree, wanted)
    assert found.problem == ""
    after = PLANNERS[kind].arrange(runtime, apply_to_tree(tree, found.changes))
    assert PLANNERS[kind].plan(runtime, after, wanted).changes == (), "a plan must be done when it was carried out once"
    for change in found.changes:
        edited = EditedFile(path=change.path, before=change.before, ours=change.after or b"", now=change.after or b"")
        given_back = withdraw(edited)
        # An object of JSON is written anew from end to end; who gives files back has kept their bytes besides.
        assert given_back == change.before or json.loads(given_back or b"{}") == json.loads(change.before or b"{}")
    return after, found


def read_containerd(version: str, tree: ConfigTree) -> tuple[dict[str, Any], str]:
    """The class and the default, as the release makes them of the files."""
    config = ContainerdConfig((int(version[0]), int(version[2])), tree)
    return config.runtimes["nvidia"], config.default_runtime


@pytest.mark.parametrize(("version", "schema"), RELEASES)
@pytest.mark.parametrize("wanted", [CLASS, DEFAULT])
def test_containerd_has_the_shim_as_class_and_as_default(version: str, schema: int, wanted: Wanted) -> None:
    """As a copy of its runc; the default only where that is wanted."""
    text = f"version = {schema}\n" + CONTAINERD.format(plugin=PLUGINS[schema], default="")
    tree, _ = find_plan(RuntimeKind.CONTAINERD, version, text, wanted)
    entry, default = read_containerd(version, tree)
    assert entry["options"]["BinaryName"] == SHIM
    assert default == ("nvidia" if wanted.default else "runc")


@pytest.mark.parametrize(("version", "schema"), RELEASES)
def test_a_class_of_the_stock_toolkit_becomes_ours_with_all_else_as_it_was(version: str, schema: int) -> None:
    """One key; what it was is given back."""
    head = f"version = {schema}\n" + CONTAINERD.format(
        plugin=PLUGINS[schema], default='default_runtime_name = "nvidia"\n'
    )
    text = head + ENTRY.format(plugin=PLUGINS[schema], program=THEIRS)
    tree, _ = find_plan(RuntimeKind.CONTAINERD, version, text, DEFAULT)
    entry, default = read_containerd(version, tree)
    assert (entry["options"], default) == ({"BinaryName": SHIM, "SystemdCgroup": True}, "nvidia")
    for program in (SHIM, NAME):
        there = head + ENTRY.format(plugin=PLUGINS[schema], program=program)
        assert find_plan(RuntimeKind.CONTAINERD, version, there, DEFAULT)[1].changes == ()
    legacy = replace(CLASS, wrapper=THEIRS, names=None)
    assert find_plan(RuntimeKind.CONTAINERD, version, text, legacy)[1].changes == ()


@pytest.mark.parametrize(("version", "schema"), RELEASES)
def test_a_default_that_the_stock_toolkit_left_behind_is_mended(version: str, schema: int) -> None:
    """Its class is gone with it, and containerd would not start with it; ours takes its place."""
    text = f"version = {schema}\n" + CONTAINERD.format(
        plugin=PLUGINS[schema], default='default_runtime_name = "nvidia"\n'
    )
    tree, _ = find_plan(RuntimeKind.CONTAINERD, version, text)
    assert read_containerd(version, tree)[0]["options"]["BinaryName"] == SHIM


def test_version_1_has_its_older_option_too() -> None:
    """Only 1.x reads such a file."""
    text = (
        '[plugins.cri.containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
        '[plugins.cri.containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
    )
    tree, _ = find_plan(RuntimeKind.CONTAINERD, "1.7.28", text, DEFAULT)
    document = tomllib.loads((tree.files[0].content or b"").decode())["plugins"]["cri"]["containerd"]
    assert document["runtimes"]["nvidia"]["options"] == {"BinaryName": SHIM, "Runtime": SHIM}
    assert document["default_runtime_name"] == "nvidia"


def test_k3s_is_told_where_it_looks() -> None:
    """It writes its configuration itself, and adds the class where it finds the program by NVIDIA's name."""
    path = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
    runtime = ChosenRuntime(
        kind=RuntimeKind.CONTAINERD, flavour=RuntimeFlavour.K3S, socket="/s", config_file=path, version="2.1.4"
    )
    tree = ConfigTree(files=(ConfigFile(path=path, content=b"version = 3\n"),))
    assert (
        "shim.nvidia_name_dir: /usr/local/nvidia/toolkit" in PLANNERS[runtime.kind].plan(runtime, tree, CLASS).problem
    )
    there = ENTRY.format(plugin=PLUGINS[3], program=NAME)
    tree = ConfigTree(files=(ConfigFile(path=path, content=f"version = 3\n{there}".encode()),))
    assert PLANNERS[runtime.kind].plan(runtime, tree, CLASS) == RuntimePlan(cdi_enabled=True)


def read_last(tree: ConfigTree) -> dict[str, Any]:
    return tomllib.loads((tree.files[-1].content or b"").decode())


def test_crio_has_the_shim_in_a_file_of_its_own() -> None:
    """The class first, the default later: what is there is kept."""
    main = '[crio.runtime.runtimes.crun]\nmonitor_path = "/m"\n'
    tree, found = find_plan(RuntimeKind.CRIO, "1.33.1", main)
    assert [change.path for change in found.changes] == ["/etc/crio/crio.conf.d/zz-nodeagent.conf"]
    entry = {"monitor_path": "/m", "runtime_path": SHIM, "runtime_type": "oci"}
    assert get(read_last(tree), ("crio", "runtime", "runtimes", "nvidia")) == entry
    runtime = ChosenRuntime(
        kind=RuntimeKind.CRIO,
        flavour=RuntimeFlavour.PLAIN,
        socket="/s",
        config_file=FILES[RuntimeKind.CRIO],
        version="1.33.1",
    )
    later = PLANNERS[RuntimeKind.CRIO].plan(runtime, tree, DEFAULT)
    own = tomllib.loads((later.changes[0].after or b"").decode())["crio"]["runtime"]
    assert own == {"default_runtime": "nvidia", "runtimes": {"nvidia": entry}}
    assert PLANNERS[RuntimeKind.CRIO].plan(runtime, apply_to_tree(tree, later.changes), DEFAULT).changes == ()


def test_a_class_of_crio_becomes_ours_with_all_else_as_it_was() -> None:
    """A later file replaces the whole entry, so the rest of it is said again."""
    main = f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{THEIRS}"\nallowed_annotations = ["a"]\n'
    tree, _ = find_plan(RuntimeKind.CRIO, "1.33.1", main)
    assert get(read_last(tree), ("crio", "runtime", "runtimes", "nvidia")) == {
        "allowed_annotations": ["a"],
        "runtime_path": SHIM,
        "runtime_type": "oci",
    }
    bare = "[crio.runtime.runtimes.nvidia]\n"
    assert find_plan(RuntimeKind.CRIO, "1.33.1", bare)[1].changes
    assert find_plan(RuntimeKind.CRIO, "1.33.1", bare, replace(CLASS, names=None))[1].changes == ()


@pytest.mark.parametrize("content", [None, "{}", '{"runtimes": {"nvidia": {"path": "/x", "args": ["y"]}}}'])
def test_docker_has_the_shim_as_class_and_as_default(content: str | None) -> None:
    """Whoever made the entry; what it was is given back."""
    tree, _ = find_plan(RuntimeKind.DOCKER, "28.2.0", content, DEFAULT)
    assert json.loads(tree.files[0].content or b"") == {
        "runtimes": {"nvidia": {"path": SHIM, "args": []}},
        "default-runtime": "nvidia",
    }


@pytest.mark.parametrize("content", [None, "", PODMAN.format(""), PODMAN.format(f'"{THEIRS}"')])
def test_podman_has_the_shim_in_a_file_of_its_own(content: str | None) -> None:
    """It reads it at its next start; a class that leads to ours by another name is left alone."""
    tree, found = find_plan(RuntimeKind.PODMAN, "", content, DEFAULT)
    assert [change.path for change in found.changes] == ["/etc/containers/containers.conf.d/zz-nodeagent.conf"]
    assert read_last(tree) == {"engine": {"runtime": "nvidia", "runtimes": {"nvidia": [SHIM]}}}
    assert find_plan(RuntimeKind.PODMAN, "", PODMAN.format(f'"{NAME}"'))[1].changes == ()
    assert find_plan(RuntimeKind.PODMAN, "", content, Wanted())[1] == RuntimePlan(cdi_enabled=True)


def test_podman_is_told_what_is_wrong_with_its_files() -> None:
    """Nothing is written over what a person must mend."""
    runtime = ChosenRuntime(kind=RuntimeKind.PODMAN, flavour=RuntimeFlavour.PLAIN, socket="", config_file="/c")
    unread = ConfigTree(files=(ConfigFile(path="/c", problem="permission denied"),))
    assert plan_podman(runtime, unread, CLASS).problem == "permission denied"
    with pytest.raises(ConfigUnparsable):
        plan_podman(runtime, ConfigTree(files=(ConfigFile(path="/c", content=b"="),)), CLASS)
