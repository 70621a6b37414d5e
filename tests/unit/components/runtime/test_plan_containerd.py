"""What is written for each release and layout of containerd."""

import tomllib
from typing import Any

import pytest

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.containerd_config import highest_config_version
from nodeagent.components.runtime.plan import RuntimePlan, Wanted, apply_to_tree
from nodeagent.components.runtime.plan_containerd import plan_containerd
from nodeagent.components.runtime.toml_edit import ConfigUnparsable
from nodeagent.model.runtime import ConfigFile, ConfigTree, RuntimeFlavour, RuntimeKind

MAIN = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/zz-nodeagent.toml"
OWN = "/etc/containerd/conf.d/zz-nodeagent.t*ml"
WRAPPER = "/usr/bin/nvidia-container-runtime"
CLASS = Wanted(cdi=False, wrapper=WRAPPER)
V2 = """# ours since 2019
version = 2

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry/pause:3.9" # pinned
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = true
"""
V3 = V2.replace("version = 2", "version = 3").replace("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
V1 = """[plugins.cri]
sandbox_image = "pause"
"""


def make_off(text: str) -> str:
    return text.replace("sandbox_image", "enable_cdi = false\n  sandbox_image", 1)


def make_tree(
    *contents: str | None, names: tuple[str, ...] = (MAIN, "/etc/containerd/conf.d/50-other.toml")
) -> ConfigTree:
    files = (
        ConfigFile(path=name, content=text.encode() if text is not None else None)
        for name, text in zip(names, contents, strict=False)
    )
    return ConfigTree(files=tuple(files))


def plan(
    version: str, tree: ConfigTree, wanted: Wanted | None = None, flavour: RuntimeFlavour = RuntimeFlavour.PLAIN
) -> RuntimePlan:
    runtime = ChosenRuntime(
        kind=RuntimeKind.CONTAINERD, flavour=flavour, socket="/run/x.sock", config_file=MAIN, version=version
    )
    first = plan_containerd(runtime, tree, wanted or Wanted())
    if first.changes and not first.problem:
        again = plan_containerd(runtime, apply_to_tree(tree, first.changes), wanted or Wanted())
        assert again.changes == (), "a plan must be done when it was carried out once"
    return first


def read_after(found: RuntimePlan) -> dict[str, dict[str, Any]]:
    return {change.path: tomllib.loads((change.after or b"").decode()) for change in found.changes}


@pytest.mark.parametrize("text", [None, "", V1, V2, V3])
def test_containerd_2_needs_nothing_for_cdi(text: str | None) -> None:
    """CDI is on there, so not one file is touched."""
    assert plan("2.1.4", make_tree(text)) == RuntimePlan(cdi_enabled=True)


def test_cdi_switched_off_in_2_is_a_drop_in_of_one_key() -> None:
    """The drop-in has the main file's version and our key alone; the main file gets one line at its top."""
    found = plan("2.1.4", make_tree(make_off(V3)))
    after = read_after(found)
    assert after[DROP_IN] == {"version": 3, "plugins": {"io.containerd.cri.v1.runtime": {"enable_cdi": True}}}
    assert after[MAIN]["imports"] == [OWN]
    (main,) = [change for change in found.changes if change.path == MAIN]
    assert (main.before, main.after) != (None, None)
    lines = (main.after or b"").decode().splitlines()
    assert [line for line in lines if not line.startswith("imports")] == make_off(V3).splitlines()


@pytest.mark.parametrize(
    "imports", ['["/etc/containerd/conf.d/*.toml"]', '["conf.d/*.toml"]'], ids=["absolute", "relative"]
)
def test_a_main_file_that_imports_the_directory_is_not_touched(imports: str) -> None:
    """Only the drop-in is written."""
    found = plan("2.1.4", make_tree(f"imports = {imports}\n" + make_off(V3)))
    assert [change.path for change in found.changes] == [DROP_IN]


def test_other_imports_are_kept() -> None:
    """Ours is added to the list."""
    found = plan("2.1.4", make_tree('imports = ["/etc/other/*.toml"]\n' + make_off(V3)))
    assert read_after(found)[MAIN]["imports"] == ["/etc/other/*.toml", OWN]


def test_a_version_2_file_on_containerd_2_gets_a_version_2_drop_in() -> None:
    """A newer drop-in would silently wipe the main file's settings."""
    after = read_after(plan("2.0.3", make_tree(make_off(V2))))
    assert after[DROP_IN] == {"version": 2, "plugins": {"io.containerd.grpc.v1.cri": {"enable_cdi": True}}}


def test_containerd_1_7_is_edited_in_place() -> None:
    """A drop-in would replace the whole section there; comments and everything else stay as they are."""
    found = plan("1.7.22", make_tree(V2))
    (change,) = found.changes
    assert change.path == MAIN
    text = (change.after or b"").decode()
    lines = [line for line in text.splitlines() if line and "enable_cdi" not in line]
    assert lines == [line for line in V2.splitlines() if line]
    assert read_after(found)[MAIN]["plugins"]["io.containerd.grpc.v1.cri"]["enable_cdi"] is True


def test_in_1_7_the_last_file_with_the_section_counts() -> None:
    """A drop-in of somebody else that has the section is the one in force."""
    other = '[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "x"\n'
    found = plan("1.7.22", make_tree(V2, other))
    assert [change.path for change in found.changes] == ["/etc/containerd/conf.d/50-other.toml"]
    assert plan("1.7.22", make_tree(make_off(V2), other + "enable_cdi = true\n")).cdi_enabled


@pytest.mark.parametrize("text", [None, ""])
def test_containerd_1_7_without_configuration_gets_a_file(text: str | None) -> None:
    """A file with our keys alone leaves all defaults in force."""
    after = read_after(plan("1.7.22", make_tree(text)))
    assert after == {MAIN: {"version": 2, "plugins": {"io.containerd.grpc.v1.cri": {"enable_cdi": True}}}}


@pytest.mark.parametrize("version", ["1.7.22", "2.3.0"])
def test_a_version_1_file_is_edited_in_place(version: str) -> None:
    """It has no drop-ins, and its section has another name."""
    after = read_after(plan(version, make_tree(make_off(V1))))
    assert after[MAIN]["plugins"]["cri"]["enable_cdi"] is True


def test_the_class_is_a_copy_of_the_runtime_in_use() -> None:
    """It keeps the cgroup driver, and differs by its program."""
    after = read_after(plan("2.1.4", make_tree(V3), CLASS))
    runtimes = after[DROP_IN]["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    assert runtimes == {
        "nvidia": {
            "runtime_type": "io.containerd.runc.v2",
            "options": {"SystemdCgroup": True, "BinaryName": WRAPPER},
        }
    }


@pytest.mark.parametrize("version", ["1.6.20", "1.7.22"])
def test_the_class_in_containerd_1_is_edited_in_place(version: str) -> None:
    """Also in 1.6, which knows nothing else."""
    after = read_after(plan(version, make_tree(V2), CLASS))
    assert after[MAIN]["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]["nvidia"]["options"] == {
        "SystemdCgroup": True,
        "BinaryName": WRAPPER,
    }


def test_the_class_in_a_version_1_file_has_both_names_of_its_program() -> None:
    """Old shims read the one, older ones the other."""
    options = read_after(plan("1.7.22", make_tree(V1), CLASS))[MAIN]["plugins"]["cri"]["containerd"]["runtimes"]
    assert options["nvidia"]["options"] == {"BinaryName": WRAPPER, "Runtime": WRAPPER}


def test_a_class_that_is_there_is_left_alone() -> None:
    first = plan("2.1.4", make_tree(V3), CLASS)
    there = make_tree(V3, (first.changes[0].after or b"").decode())
    assert plan("2.1.4", there, CLASS).changes == ()


def test_a_key_is_added_to_our_own_drop_in() -> None:
    """What we wrote before stays when something is added later."""
    text = make_off('imports = ["conf.d/*.toml"]\n' + V3)
    tree = apply_to_tree(make_tree(text), plan("2.1.4", make_tree(text), CLASS).changes)
    after = read_after(plan("2.1.4", tree, Wanted(cdi=True, wrapper=WRAPPER)))
    section = after[DROP_IN]["plugins"]["io.containerd.cri.v1.runtime"]
    assert section["enable_cdi"] is True
    assert "nvidia" in section["containerd"]["runtimes"]


def test_a_later_file_that_overrules_ours_is_named() -> None:
    """Writing would change nothing, so nothing is written."""
    tree = make_tree(
        'imports = ["conf.d/*.toml", "last.toml"]\n' + V3,
        None,
        make_off(V3),
        names=(MAIN, DROP_IN, "/etc/containerd/last.toml"),
    )
    found = plan("2.1.4", tree)
    assert found.changes == ()
    assert "/etc/containerd/last.toml" in found.problem


@pytest.mark.parametrize(
    ("version", "text", "wanted", "problem"),
    [
        ("1.6.20", V2, Wanted(), "knows no CDI"),
        ("", V2, Wanted(), "version of the containerd"),
        ("1.7.22", V3, Wanted(), "reads up to 2"),
        ("2.2.0", "version = 4\n", Wanted(), "reads up to 3"),
        ("2.3.0", "version = 99\n", Wanted(), "reads up to 4"),
        ("2.3.0", 'version = "new"\n', Wanted(), "configuration version 'new'"),
        ("2.1.4", 'version = 2\ndisabled_plugins = ["cri"]\n', Wanted(), "switches CRI off"),
    ],
)
def test_what_cannot_be_done_is_said(version: str, text: str, wanted: Wanted, problem: str) -> None:
    """One line with the remedy, and nothing is written."""
    found = plan(version, make_tree(text), wanted)
    assert problem in found.problem
    assert found.changes == ()


def test_an_unreadable_import_stops_the_plan() -> None:
    """What is not seen may overrule everything."""
    tree = ConfigTree(files=(ConfigFile(path=MAIN, problem="permission denied"),))
    assert plan("2.1.4", tree).problem == "permission denied"


def test_a_broken_file_is_named_with_its_place() -> None:
    """Line and column of the first fault."""
    with pytest.raises(ConfigUnparsable, match=r"config\.toml: it is no TOML.*line 1, column 8"):
        plan("2.1.4", make_tree("version\n"))
    with pytest.raises(ConfigUnparsable, match=r"byte 0 is no UTF-8"):
        plan("2.1.4", ConfigTree(files=(ConfigFile(path=MAIN, content=b"\xff"),)))
    with pytest.raises(ConfigUnparsable, match="nested too deeply"):
        plan("2.1.4", make_tree("a = " + "[" * 100_000))


def test_k3s_is_left_to_write_its_own() -> None:
    """With CDI on nothing is to be done; switched off, a person is told where."""
    assert plan("2.1.4", make_tree(V3), flavour=RuntimeFlavour.K3S).changes == ()
    assert "k3s writes" in plan("2.1.4", make_tree(make_off(V3)), flavour=RuntimeFlavour.K3S).problem


def test_k0s_merges_a_file_in_its_own_directory() -> None:
    """No import is needed there."""
    found = plan("2.1.4", make_tree(make_off(V3)), flavour=RuntimeFlavour.K0S)
    assert [change.path for change in found.changes] == ["/etc/k0s/containerd.d/zz-nodeagent.toml"]


def test_microk8s_is_changed_in_its_template() -> None:
    """The file that is made from it would be lost at the next start."""
    found = plan("2.1.4", make_tree(make_off(V3)), flavour=RuntimeFlavour.MICROK8S)
    assert [change.path for change in found.changes] == [MAIN]


def test_an_empty_main_file_gets_version_and_import() -> None:
    """The class on a node without configuration: two small files."""
    after = read_after(plan("2.1.4", make_tree(None), CLASS))
    assert after[MAIN] == {"version": 3, "imports": [OWN]}
    assert after[DROP_IN]["version"] == 3


@pytest.mark.parametrize(
    ("version", "highest"), [((1, 6), 2), ((1, 7), 2), ((2, 0), 3), ((2, 2), 3), ((2, 3), 4), ((2, 9), 4)]
)
def test_each_release_has_a_newest_configuration_version(version: tuple[int, int], highest: int) -> None:
    """A file above it would stop the daemon."""
    assert highest_config_version(version) == highest


def read_runtimes(found: RuntimePlan, path: str = MAIN, section: str = "io.containerd.grpc.v1.cri") -> dict[str, Any]:
    runtimes: dict[str, Any] = read_after(found)[path]["plugins"][section]["containerd"]["runtimes"]
    return runtimes


@pytest.mark.parametrize("version", ["1.6.20", "1.7.22"])
@pytest.mark.parametrize("text", [None, "", "# none yet\n", "version = 2\n", V2[: V2.index("  [plugins")]])
def test_in_1_x_the_class_brings_runc_along(version: str, text: str | None) -> None:
    """A table of runtimes without it would leave the node without CRI at the next start."""
    found = plan(version, make_tree(text), CLASS)
    runtimes = read_runtimes(found)
    assert runtimes["runc"] == {"runtime_type": "io.containerd.runc.v2"}
    assert runtimes["nvidia"]["options"] == {"BinaryName": WRAPPER}
    assert set(found.handlers) == {"runc", "nvidia"}
    assert read_after(found)[MAIN]["version"] == 2


def test_in_1_x_a_version_1_file_gets_runc_too() -> None:
    """Its section has another name."""
    assert set(read_runtimes(plan("1.7.22", make_tree(V1), CLASS), section="cri")) == {"runc", "nvidia"}


def test_the_class_alone_as_it_was_once_written_is_mended() -> None:
    """Runc is put beside it; where another is the default, or nobody asks for the class, nothing is."""
    alone = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\nruntime_type = "x"\n'
    found = plan("1.7.22", make_tree(alone), CLASS)
    assert read_runtimes(found) == {"runc": {"runtime_type": "io.containerd.runc.v2"}, "nvidia": {"runtime_type": "x"}}
    other = alone.replace(
        ".runtimes.nvidia]",
        ']\ndefault_runtime_name = "nvidia"\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]',
    )
    assert plan("1.7.22", make_tree(other), CLASS).changes == ()
    assert "default runtime runc is not among" in plan("1.7.22", make_tree(alone)).problem


@pytest.mark.parametrize("version", ["2.0.14", "2.1.4", "2.2.9"])
def test_a_version_1_file_that_is_ignored_is_an_obstacle(version: str) -> None:
    """Editing it would change nothing, so the way to a newer one is named and nothing is written."""
    found = plan(version, make_tree(V1), CLASS)
    assert "containerd config migrate" in found.problem
    assert found.changes == ()
    assert plan(version, make_tree(make_off(V1))) == RuntimePlan(cdi_enabled=True)


def test_files_of_two_versions_are_an_obstacle_before_2_3() -> None:
    """Our key would be ignored, or everything else."""
    tree = make_tree(f'imports = ["conf.d/*.toml"]\n{V2}', V3)
    assert "same version" in plan("2.2.9", tree, CLASS).problem
    assert plan("2.3.7", tree, CLASS).changes


def test_2_4_needs_nothing_for_cdi() -> None:
    assert plan("2.4.2", make_tree(make_off(V3))) == RuntimePlan(cdi_enabled=True)


def test_a_wildcard_that_is_there_is_used() -> None:
    """Ours of former times as well: narrowing it would take away what others rely on by now."""
    text = f'imports = ["/etc/containerd/conf.d/*.toml"]\n{make_off(V3)}'
    own = 'version = 3\n[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = true\n'
    tree = make_tree(text, own, names=(MAIN, DROP_IN))
    assert plan("2.1.4", tree) == RuntimePlan(cdi_enabled=True)


@pytest.mark.parametrize("text", ["version = 2\n[old]\n", "this is [no toml\n"])
def test_our_own_drop_in_that_nobody_imports_any_more_is_written_anew(text: str) -> None:
    """Whoever took the import away may have changed the version too; what was there is known to the change."""
    tree = make_tree(make_off(V3), text, names=(MAIN, DROP_IN))
    found = plan("2.1.4", tree)
    assert read_after(found)[DROP_IN] == {
        "version": 3,
        "plugins": {"io.containerd.cri.v1.runtime": {"enable_cdi": True}},
    }
    assert [change.before for change in found.changes if change.path == DROP_IN] == [text.encode()]


def test_an_empty_list_of_imports_is_filled() -> None:
    """A second list would be no TOML."""
    assert read_after(plan("2.1.4", make_tree(f"imports = []\n{make_off(V3)}")))[MAIN]["imports"] == [OWN]


def test_a_drop_in_that_sorts_behind_ours_is_named() -> None:
    """A pattern is read in the order of names, wherever our file is new."""
    last = "/etc/containerd/conf.d/zz.toml"
    tree = make_tree('imports = ["conf.d/*.toml"]\n' + V3, make_off(V3), names=(MAIN, last))
    found = plan("2.1.4", tree)
    assert (found.changes, last in found.problem) == ((), True)


@pytest.mark.parametrize(
    ("version", "is_refused"), [("1.6.20", True), ("1.7.11", True), ("1.7.22", False), ("1.6", True)]
)
def test_a_relative_pattern_is_an_obstacle_where_it_is_looked_for_elsewhere(version: str, is_refused: bool) -> None:
    """What the daemon reads is then not known."""
    found = plan(version, make_tree(f'imports = ["conf.d/*.toml"]\n{V2}', V2), CLASS)
    assert ("write the whole path" in found.problem) is is_refused


def test_the_default_runtime_must_be_one() -> None:
    """Without it CRI does not start, whatever is written."""
    found = plan("2.1.4", make_tree(V3.replace('name = "runc"', 'name = "gone"')), CLASS)
    assert "default runtime gone is not among" in found.problem


def test_the_class_is_no_copy_of_a_virtual_machine() -> None:
    """Its options are not runc's; then those of runc are taken."""
    kata = V3.replace('name = "runc"', 'name = "kata"') + (
        '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n'
    )
    runtimes = read_runtimes(plan("2.1.4", make_tree(kata), CLASS), DROP_IN, "io.containerd.cri.v1.runtime")
    assert runtimes["nvidia"] == {
        "runtime_type": "io.containerd.runc.v2",
        "options": {"SystemdCgroup": True, "BinaryName": WRAPPER},
    }


def test_a_base_without_type_gets_one() -> None:
    """An empty type would be no shim."""
    text = V3.replace('runtime_type = "io.containerd.runc.v2"', 'runtime_type = ""')
    runtimes = read_runtimes(plan("2.1.4", make_tree(text), CLASS), DROP_IN, "io.containerd.cri.v1.runtime")
    assert runtimes["nvidia"]["runtime_type"] == "io.containerd.runc.v2"


def test_other_lines_of_a_long_list_of_imports_stay() -> None:
    text = f'version = 3\nimports = [ # which\n  "a.toml", # ours\n]\n{make_off(V3).replace("version = 3", "")}'
    (main,) = (change for change in plan("2.1.4", make_tree(text)).changes if change.path == MAIN)
    assert b'"a.toml", # ours' in (main.after or b"")
    assert tomllib.loads((main.after or b"").decode())["imports"] == ["a.toml", OWN]
