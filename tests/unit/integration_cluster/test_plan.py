"""What go.mod asks to be built."""

import pytest

from tests.integration.cluster.commands import PROCESSES
from tests.integration.cluster.making.plan import parse_programs, plan_build, render_linker_flags
from tests.integration.cluster.versions import MODULE, RELEASES, list_releases

GO_MOD = (MODULE / "go.mod").read_text()
GO_SUM = (MODULE / "go.sum").read_text()


def test_every_program_of_the_cluster_is_built() -> None:
    """The ten programs, each once, and the pinned minor release of Kubernetes throughout."""
    programs = {each.name: each for each in parse_programs(GO_MOD)}
    assert set(programs) == {
        *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"),
        *("containerd", "containerd-shim-runc-v2", "ctr", "crictl"),
    }
    assert {each.version[:6] for name, each in programs.items() if name.startswith("kube")} == {"v1.37."}
    assert {each.version[:5] for name, each in programs.items() if name == "etcd"} == {"v3.7."}
    assert len(PROCESSES) == 6


def test_staging_modules_match_the_release() -> None:
    """Every replaced k8s.io module is the one that belongs to the pinned Kubernetes."""
    kubernetes = next(each.version for each in parse_programs(GO_MOD) if each.name == "kubelet")
    replaced = {line.split()[-1] for line in GO_MOD.splitlines() if " => " in line}
    assert replaced == {"v0" + kubernetes.removeprefix("v1")}


@pytest.mark.parametrize("release", list_releases())
def test_each_older_release_is_the_one_that_its_folder_names(release: str) -> None:
    """Programs, replaced modules and version stamp of one minor release; one tool alone is a line without brackets."""
    go_mod = (RELEASES / release / "go.mod").read_text()
    programs, minor = parse_programs(go_mod), release.partition("-")[2]
    assert {each.version.rpartition(".")[0] for each in programs if each.name != "crictl"} == {f"v{minor}"}
    assert f"version={programs[0].version}" in render_linker_flags(programs).lower()
    replaced = {line.split()[-1] for line in go_mod.splitlines() if " => k8s.io/" in line}
    assert len(replaced) <= 1


def test_programs_are_stamped_with_their_versions() -> None:
    """The API server's version, its major and minor number, and containerd's and crictl's own are set at link time."""
    flags = render_linker_flags(parse_programs(GO_MOD)).split(" -X ")
    assert flags[0] == "-s -w"
    assert "k8s.io/component-base/version.gitMinor=37" in flags
    stamped = dict(flag.split("=") for flag in flags[1:])
    assert stamped["k8s.io/component-base/version.gitVersion"].startswith("v1.37.")
    assert stamped["github.com/containerd/containerd/v2/version.Version"].startswith("v2.")
    assert stamped["sigs.k8s.io/cri-tools/pkg/version.Version"].startswith("v1.37.")


def test_the_cache_key_follows_what_is_built() -> None:
    """Equal locks and tool chain give one key; a change in any of them another."""
    key = plan_build(GO_MOD, GO_SUM, "go1").key
    assert plan_build(GO_MOD, GO_SUM, "go1").key == key
    others = {plan_build(GO_MOD, GO_SUM + "x", "go1").key, plan_build(GO_MOD, GO_SUM, "go2").key}
    others.add(plan_build(GO_MOD + "\n// changed\n", GO_SUM, "go1").key)
    assert key not in others
    assert len(others) == 3


def test_a_module_without_programs_is_an_empty_plan() -> None:
    """No tool lines, nothing to build."""
    assert parse_programs("module empty\n") == ()
