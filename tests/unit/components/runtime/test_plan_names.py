"""What our file of containerd is called, so that it is read last, and what becomes of the one of an earlier release."""

import pytest

from nodeagent.components.runtime.plan import HEADER, RuntimePlan, Wanted
from nodeagent.components.runtime.toml_edit import ConfigUnparsable
from nodeagent.model.runtime import ConfigFile, ConfigTree, RuntimeFlavour
from tests.unit.components.runtime.test_plan_containerd import (
    CLASS,
    DROP_IN,
    MAIN,
    OWN,
    V3,
    WRAPPER,
    make_off,
    make_tree,
    plan,
    read_after,
    read_runtimes,
)

SECTION = "io.containerd.cri.v1.runtime"
FORMER = "/etc/containerd/conf.d/99-nodeagent.toml"
FORMER_OWN = "/etc/containerd/conf.d/99-nodeagent.t*ml"
NVIDIA = "/etc/containerd/conf.d/99-nvidia.toml"
ALL = "/etc/containerd/conf.d/*.toml"
ON = f'[plugins."{SECTION}"]\nenable_cdi = true\n'
FORMER_TEXT = f"{HEADER.decode()}version = 3\n{ON}"
SHIM = Wanted(wrapper="/shim", names=())
THEIRS = make_off(V3) + (
    f'[plugins."{SECTION}".containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
    f'[plugins."{SECTION}".containerd.runtimes.nvidia.options]\nBinaryName = "/theirs"\nSystemdCgroup = true\n'
)


def give_imports(*patterns: str, text: str = V3) -> str:
    return f"imports = [{', '.join(map(repr, patterns))}]\n{text}"


def test_the_toolkits_drop_in_is_read_before_ours() -> None:
    """Its class starts our program, CDI is on whatever it copied, and the class is whole without its file, too."""
    found = plan("2.2.9", make_tree(give_imports(ALL), THEIRS, names=(MAIN, NVIDIA)), SHIM)
    assert [change.path for change in found.changes] == [DROP_IN]
    assert read_after(found)[DROP_IN]["plugins"][SECTION]["enable_cdi"] is True
    assert read_runtimes(found, DROP_IN, SECTION)["nvidia"] == {
        "runtime_type": "io.containerd.runc.v2",
        "options": {"BinaryName": "/shim", "SystemdCgroup": True},
    }


@pytest.mark.parametrize(
    ("others", "expected"), [((ALL,), [ALL]), (("/etc/more/*.toml", ALL), ["/etc/more/*.toml", ALL])]
)
def test_an_import_that_was_put_behind_ours_comes_before_it(others: tuple[str, ...], expected: list[str]) -> None:
    """Where the other pattern fits ours, too, it is enough: within a pattern the names decide."""
    ours = plan("2.2.9", make_tree(make_off(V3)), SHIM)
    (own,) = (change.after for change in ours.changes if change.path == DROP_IN)
    assert own is not None
    main = give_imports(OWN, *others, text=make_off(V3))
    tree = make_tree(main, own.decode(), THEIRS, names=(MAIN, DROP_IN, NVIDIA))
    found = plan("2.2.9", tree, SHIM)
    assert [change.path for change in found.changes] == [MAIN]
    assert read_after(found)[MAIN]["imports"] == expected


def test_an_import_of_another_directory_behind_ours_leaves_ours_last() -> None:
    """Nothing else brings ours in."""
    more = "/etc/more/10-site.toml"
    tree = make_tree(
        give_imports(OWN, more, text=make_off(V3)), f"version = 3\n{ON}", make_off(V3), names=(MAIN, DROP_IN, more)
    )
    assert read_after(plan("2.2.9", tree))[MAIN]["imports"] == [more, OWN]


def find_moves(found: RuntimePlan) -> dict[str, bool]:
    return {change.path: change.after is not None for change in found.changes}


@pytest.mark.parametrize("imports", [(FORMER_OWN,), ("/etc/a.toml", FORMER_OWN)])
def test_our_file_of_an_earlier_release_gets_its_new_name(imports: tuple[str, ...]) -> None:
    """Content, import and all, though nothing is missing; the lines of others in the main file stay."""
    main = give_imports(*imports, text=f"# by hand\n{make_off(V3)}")
    found = plan("2.2.9", make_tree(main, FORMER_TEXT, names=(MAIN, FORMER)))
    assert find_moves(found) == {DROP_IN: True, FORMER: False, MAIN: True}
    after = {change.path: change.after for change in found.changes}
    assert after[DROP_IN] == FORMER_TEXT.encode()
    assert after[MAIN] == main.replace("99-nodeagent", "zz-nodeagent").encode()


def test_a_key_that_is_missing_besides_goes_into_the_new_file() -> None:
    """In one step, for which one restart is enough."""
    found = plan("2.2.9", make_tree(give_imports(ALL, text=make_off(V3)), FORMER_TEXT, names=(MAIN, FORMER)), SHIM)
    assert find_moves(found) == {DROP_IN: True, FORMER: False}
    after = read_after(found)[DROP_IN]["plugins"][SECTION]
    assert after["enable_cdi"] is True
    assert after["containerd"]["runtimes"]["nvidia"]["options"]["BinaryName"] == "/shim"


def test_a_former_file_that_nothing_reads_only_goes() -> None:
    """What it says has been without effect."""
    assert find_moves(plan("2.2.9", make_tree(V3, FORMER_TEXT, names=(MAIN, FORMER)))) == {FORMER: False}


def test_beside_a_newer_file_of_ours_the_former_only_goes() -> None:
    """An agent that was set back and upgraded again has left both."""
    newer = FORMER_TEXT + "# newer\n"
    tree = make_tree(give_imports(ALL, text=make_off(V3)), FORMER_TEXT, newer, names=(MAIN, FORMER, DROP_IN))
    assert find_moves(plan("2.2.9", tree)) == {FORMER: False}


def test_a_file_of_that_name_that_is_not_ours_stays() -> None:
    """Only what begins with our own line is taken away."""
    tree = make_tree(give_imports(ALL, text=make_off(V3)), f"version = 3\n{ON}", names=(MAIN, FORMER))
    assert plan("2.2.9", tree) == RuntimePlan(cdi_enabled=True)


def test_k0s_reads_its_directory_without_an_import() -> None:
    """There, too, the toolkit's file comes first, whose name has no number."""
    former = ConfigFile(path="/etc/k0s/containerd.d/99-nodeagent.toml", content=FORMER_TEXT.encode())
    tree = ConfigTree(files=(ConfigFile(path=MAIN, content=make_off(V3).encode()), former))
    found = plan("2.2.9", tree, flavour=RuntimeFlavour.K0S)
    assert find_moves(found) == {"/etc/k0s/containerd.d/zz-nodeagent.toml": True, former.path: False}


@pytest.mark.parametrize("line", ["options = 5", "options = []", "runtime_type = []"])
def test_a_base_with_values_of_the_wrong_kind_is_no_base(line: str) -> None:
    """Somebody may be in the middle of writing it."""
    text = f'version = 3\n[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]\n{line}\n'
    entry = read_runtimes(plan("2.1.4", make_tree(text), CLASS), DROP_IN, "io.containerd.cri.v1.runtime")["nvidia"]
    assert entry == {"runtime_type": "io.containerd.runc.v2", "options": {"BinaryName": WRAPPER}}


def test_a_number_beyond_belief_is_told() -> None:
    """The parser has no word of its own for it."""
    with pytest.raises(ConfigUnparsable, match="a value that nobody can read"):
        plan("1.7.22", make_tree(f"version = {'9' * 5000}\n"))
