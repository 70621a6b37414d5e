"""What is written for CRI-O and Docker."""

import json
import tomllib
from typing import Any

import pytest

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.plan import HEADER, RuntimePlan, Wanted, apply_to_tree
from nodeagent.components.runtime.plan_crio import plan_crio
from nodeagent.components.runtime.plan_docker import plan_docker
from nodeagent.components.runtime.plan_podman import plan_podman
from nodeagent.components.runtime.planners import PLANNERS
from nodeagent.components.runtime.toml_edit import ConfigUnparsable
from nodeagent.model.runtime import ConfigFile, ConfigTree, RuntimeFlavour, RuntimeKind

WRAPPER = "/usr/bin/nvidia-container-runtime"
CLASS = Wanted(cdi=True, wrapper=WRAPPER)
DAEMON = "/etc/docker/daemon.json"
CRIO = "/etc/crio/crio.conf"
MAIN = """# by hand
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/bin/crun"
monitor_path = "/usr/bin/conmon"
"""


def make_runtime(kind: RuntimeKind, version: str, path: str) -> ChosenRuntime:
    return ChosenRuntime(
        kind=kind, flavour=RuntimeFlavour.PLAIN, socket="/run/x.sock", config_file=path, version=version
    )


def docker(version: str, content: str | None, wanted: Wanted | None = None) -> RuntimePlan:
    tree = ConfigTree(files=(ConfigFile(path=DAEMON, content=content.encode() if content is not None else None),))
    return plan_docker(make_runtime(RuntimeKind.DOCKER, version, DAEMON), tree, wanted or Wanted())


def crio(version: str, *contents: str, wanted: Wanted | None = None) -> RuntimePlan:
    files = (ConfigFile(path=f"{CRIO}.{number}", content=text.encode()) for number, text in enumerate(contents))
    return plan_crio(make_runtime(RuntimeKind.CRIO, version, CRIO), ConfigTree(files=tuple(files)), wanted or Wanted())


def read_json(found: RuntimePlan) -> Any:
    (change,) = found.changes
    return json.loads(change.after or b"")


@pytest.mark.parametrize(
    ("version", "content", "enabled", "changed"),
    [
        ("28.2.0", None, True, False),
        ("28.2.0", '{"features": {"cdi": false}}', False, True),
        ("28.1.1", None, False, True),
        ("25.0.0", '{"features": {"cdi": true}}', True, False),
        ("25.0.0", "", False, True),
    ],
)
def test_docker_is_changed_only_where_cdi_is_off(
    version: str, content: str | None, enabled: bool, changed: bool
) -> None:
    """From 28.2 it is on; from 25 it can be switched on."""
    found = docker(version, content)
    assert (found.cdi_enabled, bool(found.changes)) == (enabled, changed)


def test_docker_keeps_order_indentation_and_foreign_keys() -> None:
    """An existing features object gets one more key; nothing else moves."""
    text = '{\n\t"log-driver": "journald",\n\t"features": {\n\t\t"buildkit": true\n\t},\n\t"debug": false\n}'
    found = docker("27.0.0", text)
    assert read_json(found) == {
        "log-driver": "journald",
        "features": {"buildkit": True, "cdi": True},
        "debug": False,
    }
    after = (found.changes[0].after or b"").decode()
    assert after.replace(',\n\t\t"cdi": true', "") == text


def test_docker_gets_the_class_on_request() -> None:
    """An entry of that name, whoever made it, is left alone."""
    assert read_json(docker("28.2.0", None, CLASS)) == {"runtimes": {"nvidia": {"path": WRAPPER, "args": []}}}
    assert docker("28.2.0", '{"runtimes": {"nvidia": {"path": "x"}}}', CLASS).changes == ()


def test_half_a_pair_of_characters_stays_as_it_was() -> None:
    """JSON may have one; no file can have it but by its number."""
    (change,) = docker("27.0.0", '{"labels": ["\\ud83d"]}').changes
    assert b'"\\ud83d"' in (change.after or b"")


def test_an_old_docker_is_told() -> None:
    """Before 25 there is no CDI; the class alone still works."""
    assert "knows no CDI" in docker("24.0.7", None).problem
    assert docker("24.0.7", None, Wanted(cdi=False, wrapper=WRAPPER)).changes


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{\n", "line 2, column 1"),
        ("[]", "no JSON object"),
        ('{"features": []}', "`features` is no object"),
        ('{"runtimes": 1}', "`runtimes` is no object"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_a_broken_daemon_file_is_named_with_its_place(content: str, said: str) -> None:
    """Nothing is written over what a person must mend."""
    with pytest.raises(ConfigUnparsable, match=said):
        docker("27.0.0", content)


def test_an_unreadable_file_stops_the_plan() -> None:
    """What is not seen is not changed, in either runtime."""
    tree = ConfigTree(files=(ConfigFile(path="/x", problem="permission denied"),))
    assert plan_docker(make_runtime(RuntimeKind.DOCKER, "27", "/x"), tree, Wanted()).problem == "permission denied"
    assert plan_crio(make_runtime(RuntimeKind.CRIO, "1.30", "/x"), tree, Wanted()).problem == "permission denied"


def test_crio_needs_nothing_for_cdi() -> None:
    """It has no switch; before 1.24 it cannot."""
    assert crio("1.33.1", MAIN) == RuntimePlan(cdi_enabled=True)
    assert "1.24" in crio("1.20.0", MAIN).problem


def test_the_class_of_crio_is_a_drop_in_copied_from_the_default() -> None:
    """It inherits the monitor; the main file is never changed."""
    (change,) = crio("1.33.1", MAIN, wanted=CLASS).changes
    assert change.path == "/etc/crio/crio.conf.d/zz-nodeagent.conf"
    assert tomllib.loads((change.after or b"").decode()) == {
        "crio": {
            "runtime": {
                "runtimes": {
                    "nvidia": {
                        "runtime_path": WRAPPER,
                        "monitor_path": "/usr/bin/conmon",
                        "runtime_type": "oci",
                    }
                }
            }
        }
    }


def test_a_later_file_replaces_a_runtime_of_crio() -> None:
    """The entry that is copied is the one in force, and a class that is there is left alone."""
    later = '[crio.runtime.runtimes.crun]\nruntime_path = "/opt/crun"\n'
    (change,) = crio("1.33.1", MAIN, later, wanted=CLASS).changes
    assert b"monitor_path" not in (change.after or b"")
    assert crio("1.33.1", MAIN, "[crio.runtime.runtimes.nvidia]\n", wanted=CLASS).changes == ()


def test_a_later_file_of_crio_that_overrules_ours_is_named() -> None:
    theirs = ConfigFile(
        path=f"{CRIO}.d/zzz.conf",
        content=b'[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/nvidia-container-runtime"\n',
    )
    wanted = Wanted(wrapper="/shim", names=())
    runtime = make_runtime(RuntimeKind.CRIO, "1.33.1", CRIO)
    main = ConfigFile(path=CRIO, content=MAIN.encode())
    (change,) = plan_crio(runtime, ConfigTree(files=(main,)), wanted).changes
    ours = ConfigFile(path=change.path, content=change.after)
    assert plan_crio(runtime, ConfigTree(files=(main, ours)), wanted) == RuntimePlan(cdi_enabled=True)
    for files in ((main, theirs), (main, ours, theirs)):
        found = plan_crio(runtime, ConfigTree(files=files), wanted)
        assert found.changes == ()
        assert found.problem == (
            f"another file sets crio.runtime.runtimes.nvidia after ours: take it out of {theirs.path}"
        )


@pytest.mark.parametrize("name", ["99-nvidia.toml", "99-nvidia.conf"])
def test_the_toolkits_file_of_crio_is_read_before_ours(name: str) -> None:
    """By the name of its installer and by that of its operator; its class starts our program."""
    theirs = ConfigFile(
        path=f"{CRIO}.d/{name}",
        content=b'[crio.runtime.runtimes.nvidia]\nruntime_path = "/theirs"\n',
    )
    runtime = make_runtime(RuntimeKind.CRIO, "1.33.1", CRIO)
    tree = ConfigTree(files=(ConfigFile(path=CRIO, content=MAIN.encode()), theirs))
    found = plan_crio(runtime, tree, Wanted(wrapper="/shim", names=()))
    after = PLANNERS[RuntimeKind.CRIO].arrange(runtime, apply_to_tree(tree, found.changes)).files[-1]
    assert after.path == f"{CRIO}.d/zz-nodeagent.conf"
    read = tomllib.loads((after.content or b"").decode())["crio"]["runtime"]["runtimes"]["nvidia"]
    assert read == {"runtime_path": "/shim", "runtime_type": "oci"}


@pytest.mark.parametrize("is_missing", [False, True])
def test_our_file_of_an_earlier_release_gets_its_new_name(is_missing: bool) -> None:
    """What it says goes along, also where something else is missing; the former file goes in the same step."""
    text = HEADER + b'[crio.runtime.runtimes.nvidia]\nruntime_path = "/shim"\nruntime_type = "oci"\n'
    former = ConfigFile(path=f"{CRIO}.d/99-nodeagent.conf", content=text)
    runtime = make_runtime(RuntimeKind.CRIO, "1.33.1", CRIO)
    tree = ConfigTree(files=(ConfigFile(path=CRIO, content=MAIN.encode()), former))
    wanted = Wanted(wrapper="/shim", names=(), default=is_missing)
    new, gone = plan_crio(runtime, tree, wanted).changes
    assert (gone.path, gone.before, gone.after) == (former.path, text, None)
    assert (new.path, new.before) == (f"{CRIO}.d/zz-nodeagent.conf", None)
    assert new.after is not None
    assert new.after.startswith(HEADER)
    assert text.removeprefix(HEADER) in new.after
    assert (b'default_runtime = "nvidia"' in new.after) is is_missing
    assert plan_crio(runtime, apply_to_tree(tree, (new, gone)), wanted) == RuntimePlan(cdi_enabled=True)


def test_a_file_of_that_name_that_is_not_ours_stays() -> None:
    """Only what begins with our own line is taken away."""
    tree = ConfigTree(files=(ConfigFile(path=CRIO), ConfigFile(path=f"{CRIO}.d/99-nodeagent.conf", content=b"")))
    assert plan_crio(make_runtime(RuntimeKind.CRIO, "1.33.1", CRIO), tree, Wanted()).changes == ()


def test_a_later_file_of_podman_that_overrules_ours_is_named() -> None:
    theirs = ConfigFile(path="/c.d/zzz.conf", content=b'[engine]\nruntime = "crun"\n')
    tree = ConfigTree(files=(ConfigFile(path="/c"), theirs))
    found = plan_podman(make_runtime(RuntimeKind.PODMAN, "5.4", "/c"), tree, Wanted(wrapper="/shim", default=True))
    assert found.problem == "another file sets engine.runtime after ours: take it out of /c.d/zzz.conf"


@pytest.mark.parametrize("kind", [RuntimeKind.CRIO, RuntimeKind.PODMAN])
def test_what_is_judged_is_in_the_order_in_which_it_will_be_read(kind: RuntimeKind) -> None:
    """A new file of ours does not come last where another's name does: the daemon's own check would see another sum."""
    names = ["/c", "/c.d/99-z.conf", "/c.d/zz-nodeagent.conf", "/c.d/10-a.conf"]
    tree = ConfigTree(files=tuple(ConfigFile(path=name) for name in names))
    arranged = PLANNERS[kind].arrange(make_runtime(kind, "5.4", "/c"), tree)
    assert [file.path for file in arranged.files] == ["/c", *sorted(names[1:])]


def test_a_default_of_crio_that_is_no_text_is_no_name() -> None:
    """CRI-O would not start with it; the plan says what it says of any other."""
    assert crio("1.33.1", "[crio.runtime]\ndefault_runtime = []\n", wanted=CLASS).changes


@pytest.mark.parametrize("kind", [RuntimeKind.CRIO, RuntimeKind.PODMAN])
def test_a_link_under_the_name_of_our_file_is_refused(kind: RuntimeKind) -> None:
    """It is looked for wherever ours would be, and what it leads to is not written."""
    runtime = make_runtime(kind, "5.4.2", "/etc/containers/containers.conf")
    (own,) = PLANNERS[kind].list_other_places(runtime)
    assert own.endswith(".conf.d/zz-nodeagent.conf")
    tree = ConfigTree(files=(ConfigFile(path=runtime.config_file), ConfigFile(path=own, problem=f"{own} is a link")))
    found = PLANNERS[kind].plan(runtime, tree, CLASS)
    assert (found.changes, found.problem) == ((), f"{own} is a link")
