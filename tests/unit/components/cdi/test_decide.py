"""What is written and taken away, and what people are told."""

from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from nodeagent.components.cdi.decide import (
    CODES,
    Layout,
    decide_changes,
    decide_options,
    decide_problems,
    decide_public,
    describe_other_version,
    plan_own_paths,
    render_state,
    renew_files,
)
from nodeagent.components.cdi.plan_specs import SpecInvalid, SpecOptions, SpecPlan, plan_specs, render_specs
from nodeagent.components.cdi.registry import SpecReading
from nodeagent.components.cdi.spec import build_spec
from nodeagent.config.schema import Settings
from nodeagent.config.sections.containers import CdiSettings, ContainersSettings
from nodeagent.model.cdi import DriverFiles, SpecContent
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.runtime import RuntimeKind, RuntimeState
from nodeagent.rules.cdi_names import PUBLIC_KINDS
from tests.support.files.driver_files import make_files
from tests.support.samples import make_inventory

OWN = plan_own_paths(lambda name: f"/var/run/cdi/{name}")
OWN_GPU = "k8s.device-plugin.nvidia.com-gpu.json"
PUBLIC = "nvidia.com-gpu.json"


def test_equal_content_is_not_written_again() -> None:
    """A pass that finds what it wants does nothing."""
    found = [SpecContent(path=f"/var/run/cdi/{OWN_GPU}", content=b"x")]
    assert decide_changes({OWN_GPU: b"x"}, found, OWN).write == {}
    assert decide_changes({OWN_GPU: b"y"}, found, OWN).write == {OWN_GPU: b"y"}
    assert decide_changes({OWN_GPU: b"x"}, [], OWN).write == {OWN_GPU: b"x"}


def test_files_of_others_are_left_alone() -> None:
    """Whatever is not at one of our own paths is not ours, even with our name in another directory."""
    found = [SpecContent(path=f"/etc/cdi/{PUBLIC}"), SpecContent(path="/var/run/cdi/other.json")]
    assert decide_changes({}, found, OWN).remove == ()


def test_the_plugins_own_kind_is_never_taken_away() -> None:
    """A pod may already be on its way to one of its names; every other file of ours goes when it has no content."""
    found = [SpecContent(path=f"/var/run/cdi/{name}") for name in (OWN_GPU, PUBLIC)]
    assert decide_changes({}, found, OWN).remove == (PUBLIC,)


def test_the_public_kind_is_left_to_whoever_defines_it() -> None:
    """A second definition would cancel the first."""
    foreign = SpecReading(path="/var/run/cdi/nvidia.yaml", kind="nvidia.com/gpu")
    ours = SpecReading(path=f"/var/run/cdi/{PUBLIC}", kind="nvidia.com/gpu")
    assert decide_public([ours], OWN, wanted=True) == PUBLIC_KINDS
    assert decide_public([ours, foreign], OWN, wanted=True) == PUBLIC_KINDS[1:]
    assert decide_public([ours], OWN, wanted=False) == ()


def test_an_invalid_specification_is_not_rendered() -> None:
    """What a runtime would refuse never replaces what it accepts."""
    plan = plan_specs(make_inventory(1), make_files(1), SpecOptions())
    broken = replace(plan, specs=(build_spec("nvidia.com/gpu", ()),))
    with pytest.raises(SpecInvalid, match="at least one"):
        render_specs(broken)
    assert set(render_specs(plan)) == {OWN_GPU}


def test_the_state_names_valid_files_only() -> None:
    """A file that runtimes ignore defines nothing."""
    readings = [
        SpecReading(path=f"/var/run/cdi/{OWN_GPU}", kind="a/b", version="0.5.0", devices=("0",)),
        SpecReading(path="/etc/cdi/bad.json", problem="bad"),
    ]
    state = render_state(4, readings, OWN, ("GPU-x: gone",), Layout(reason="the host has no ldconfig"))
    assert [(file.path, file.ours) for file in state.files] == [(readings[0].path, True)]
    assert (state.generation, state.left_out) == (4, ("GPU-x: gone",))
    assert (state.hook, state.no_hook_reason) == ("", "the host has no ldconfig")
    assert render_state(4, readings, OWN, (), Layout(hook=Path("/h"))).hook == "/h"


@pytest.mark.parametrize(
    ("setting", "kind", "version", "groups"),
    [
        ("auto", RuntimeKind.CONTAINERD, "2.0.5-k3s1", True),
        ("auto", RuntimeKind.CONTAINERD, "v2.1.4", True),
        ("auto", RuntimeKind.CONTAINERD, "1.7.27", False),
        ("auto", RuntimeKind.CRIO, "1.31.2", True),
        ("auto", RuntimeKind.CRIO, "1.30.0", False),
        ("auto", RuntimeKind.DOCKER, "28.2.1", True),
        ("auto", RuntimeKind.UNKNOWN, "9.0", False),
        ("auto", RuntimeKind.CONTAINERD, "", False),
        ("auto", None, "", False),
        ("never", RuntimeKind.CONTAINERD, "2.1.4", False),
        ("always", None, "", True),
    ],
)
def test_groups_are_for_readers_that_know_them(
    setting: Literal["auto", "always", "never"], kind: RuntimeKind | None, version: str, groups: bool
) -> None:
    """A reader that is too old ignores the whole file; of whoever reads the public kinds nothing is known."""
    runtime = RuntimeState(kind=kind, version=version) if kind is not None else None
    containers = ContainersSettings(layout="usr_local_nvidia")
    settings = Settings(cdi=CdiSettings(device_groups=setting), containers=containers)
    requests = decide_options(PUBLIC_KINDS, Layout(hook=Path("/h")), settings, runtime)
    assert (requests.groups, requests.public_groups) == (groups, setting == "always")
    assert (requests.kinds, requests.hook, requests.containers) == (PUBLIC_KINDS, Path("/h"), containers)


def test_problems_are_told_by_code_and_key() -> None:
    """Each condition has one key per thing to mend, and every code is in the catalogue."""
    readings = [
        SpecReading(path="/etc/cdi/a.json", kind="k/c", devices=("0",)),
        SpecReading(path="/etc/cdi/b.json", kind="k/c", devices=("0",)),
        SpecReading(path="/etc/cdi/c.json", problem="it is no YAML"),
    ]
    plan = SpecPlan(left_out=("GPU-x (GPU 1): /dev/nvidia1 is missing",), missing=("/dev/fuse",))
    problems = decide_problems(readings, plan, DriverFiles(), "570.26")
    assert {code: list(keys) for code, keys in problems.items()} == {
        "cdi-conflict": ["/etc/cdi/a.json, /etc/cdi/b.json"],
        "cdi-file-invalid": ["/etc/cdi/c.json"],
        "cdi-device-left-out": ["GPU-x"],
        "cdi-extra-device-missing": ["/dev/fuse"],
        "cdi-driver-files-missing": [""],
        "cdi-driver-version-differs": [],
    }
    (detail,) = problems["cdi-extra-device-missing"].values()
    assert detail == "containers.extra_devices: /dev/fuse is missing on this host, or no device node"
    assert set(CODES) == set(problems) <= {definition.code for definition in CATALOGUE}


@pytest.mark.parametrize("files", [make_files(1), DriverFiles(made_up=True)])
def test_no_problem_is_an_empty_answer(files: DriverFiles) -> None:
    """A healthy node and a simulated one have nothing to mend."""
    assert not any(decide_problems([], SpecPlan(), files, "580.65.06").values())


@pytest.mark.parametrize(
    ("in_use", "found", "problem"),
    [
        ("580.65.06", "580.65.06", ""),
        ("580.65.06", "570.26", "the driver in use is 580.65.06, the libraries found are those of 570.26"),
        ("", "570.26", ""),
        ("580.65.06", "", ""),
    ],
)
def test_files_of_another_driver_are_told(in_use: str, found: str, problem: str) -> None:
    """What the driver says of itself and what the files' names say are two things; the unknown differs from none."""
    files = make_files(1, version=found)
    assert describe_other_version(in_use, files) == problem
    assert "".join(decide_problems([], SpecPlan(), files, in_use)["cdi-driver-version-differs"].values()) == problem


def test_files_older_than_a_device_node_are_renewed_and_no_others() -> None:
    """Neither those of somebody else, nor a file that nobody wants."""
    own_paths = {"/run/a.json": "a.json", "/run/b.json": "b.json", "/run/c.json": "c.json"}
    ages = dict(zip((*own_paths, "/etc/d.json"), (9.0, 10.0, 1.0, 1.0), strict=True))
    found = [SpecContent(path=path, written_seconds=seconds) for path, seconds in ages.items()]
    wanted = {"a.json": b"a", "b.json": b"b", "e.json": b"e"}
    assert renew_files(wanted, found, own_paths, 10.0) == {"a.json": b"a"}
    assert renew_files(wanted, found, own_paths, 0.0) == {}
