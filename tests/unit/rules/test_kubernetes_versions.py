"""The table of what Kubernetes versions have, and what a version lacks for the settings."""

import pytest
from msgspec.structs import replace

from nodeagent.config.schema import Settings
from nodeagent.config.sections.claims import ClaimsSettings
from nodeagent.config.sections.hardware import ProofSettings
from nodeagent.config.sources import walk_knobs
from nodeagent.model.runtime import RuntimeKind
from nodeagent.rules.kubernetes_versions import (
    ABILITIES,
    ENDINGS,
    MINORS,
    find_endings,
    find_lacks,
    list_wanted,
    read_minor,
)

EVERYTHING = Settings(
    claims=ClaimsSettings(enabled=True, mig_on_demand=True, shares=True), proof=ProofSettings(before_binding="quick")
)


@pytest.mark.parametrize(
    ("version", "minor"),
    [("v1.36.3", 36), ("1.34.2", 34), ("v1.34.2+k3s1", 34), ("v1.33.5-eks-1a2b", 33), ("", None), ("v2.1.0", None)],
)
def test_distributions_add_to_versions(version: str, minor: int | None) -> None:
    """What stands behind the numbers says nothing about abilities."""
    assert read_minor(version) == minor


def test_each_setting_of_the_table_exists_and_asks_for_its_ability() -> None:
    """Nothing is wanted by the defaults, and each ability with a setting by that setting."""
    settings = {".".join(path) for path, _ in walk_knobs(Settings)}
    needed = [ability for ability in ABILITIES if ability.setting]
    assert {ability.setting for ability in needed} <= settings
    assert list_wanted(Settings()) == ()
    assert list_wanted(EVERYTHING) == tuple(ability.name for ability in needed)
    sharing = replace(EVERYTHING, claims=ClaimsSettings(enabled=False, mig_on_demand=True, shares=True))
    assert list_wanted(sharing) == ()


def test_each_row_has_a_cell_for_each_version() -> None:
    """Names are distinct: the facts of the doctor name abilities."""
    assert len({ability.name for ability in ABILITIES}) == len(ABILITIES)
    assert all(len(ending.cells) == len(MINORS) for ending in ENDINGS)
    cells = {(ability.gate, minor): ability.tell(minor) for ability in ABILITIES for minor in MINORS}
    assert [cells["DRAPartitionableDevices", minor] for minor in MINORS] == ["no", "no", "off", "on", "on"]
    assert [cells["", minor] for minor in MINORS] == ["no", "on", "on", "on", "on"]


@pytest.mark.parametrize(
    ("runtime", "release", "has_cgroup_v1", "names"),
    [
        (RuntimeKind.CONTAINERD, (1, 7), False, ["containerd 1.7"]),
        (RuntimeKind.CONTAINERD, (0, 0), True, ["cgroup v1"]),
        (RuntimeKind.CONTAINERD, (2, 0), False, []),
        (RuntimeKind.CRIO, (1, 34), False, []),
        (None, (0, 0), False, []),
    ],
)
def test_what_ends_is_told_where_it_is(
    runtime: RuntimeKind | None, release: tuple[int, int], has_cgroup_v1: bool, names: list[str]
) -> None:
    assert [ending.name for ending in find_endings(runtime, release, has_cgroup_v1=has_cgroup_v1)] == names


def test_a_lack_is_of_one_side() -> None:
    """An old kubelet beside a new server lacks what is the kubelet's, and one of unknown version lacks nothing."""
    wanted = list_wanted(EVERYTHING)
    lacks = list(find_lacks(wanted, {"API server": "v1.37.2", "kubelet": "v1.33.13"}))
    assert {lack.ability.side for lack in lacks} == {"kubelet"}
    assert [lack.is_gated for lack in lacks] == [True, True, False]
    assert {lack.version for lack in lacks} == {"v1.33.13"}
    assert list(find_lacks(wanted, {"API server": "v1.37.2", "kubelet": ""})) == []
    assert list(find_lacks((), {"API server": "v1.33.13", "kubelet": "v1.33.13"})) == []
