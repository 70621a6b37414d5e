"""A plan as people read it."""

from msgspec.structs import replace

from nodeagent.model.mig import GpuPartitions
from nodeagent.rules.mig.show import GpuPlan, plan_gpu
from nodeagent.rules.mig.wanted import Wanted
from tests.support.gpus import make_gpu
from tests.support.mig import cut, partitions_of, request

H100 = "h100-sxm5-80gb"
GPU = make_gpu(2)


def plan(wanted: Wanted, there: GpuPartitions) -> GpuPlan:
    return plan_gpu(GPU, wanted, there)


def test_a_plan_reads_like_a_diff() -> None:
    shown = plan(request("3g.40gb 1c.2g.20gb 1g.10gb"), cut(H100, "3g.40gb 2g.20gb 2g.20gb"))
    assert shown.changes
    assert shown.lines == (
        "- 2g.20gb at slot 2",
        "  3g.40gb at slot 4",
        "  2g.20gb at slot 0",
        "-   2c in it",
        "+   1c in it",
        "+ 1g.10gb at slot 2",
    )
    assert plan(request("1c.3g.40gb 2c.3g.40gb"), partitions_of(H100)).lines == ("+ 3g.40gb at slot 0 with 2c, 1c",)


def test_a_switch_of_the_mode_is_a_change() -> None:
    assert plan(Wanted(enabled=False), cut(H100, "7g.80gb")).lines == ("- MIG on", "+ MIG off", "- 7g.80gb at slot 0")
    off = partitions_of(H100, enabled=False)
    assert plan(request("7g.80gb"), off).lines == ("- MIG off", "+ MIG on", "+ 7g.80gb at slot 0")
    silent = plan(request("7g.80gb"), replace(off, profiles=()))
    assert silent.lines == ("- MIG off", "+ MIG on", "+ what is wished, once the driver tells its profiles")


def test_a_gpu_that_is_right_has_no_lines() -> None:
    """And one that cannot be so has the reason."""
    same = plan(request("7g.80gb"), cut(H100, "7g.80gb"))
    assert (same.index, same.lines, same.changes, same.refusal) == (2, (), False, "")
    never = plan(request("7g.80gb 7g.80gb"), cut(H100, "7g.80gb"))
    assert (never.lines, never.changes) == ((), False)
    assert never.refusal == "7g.80gb does not fit 2 times: at most 1 of it can be on one GPU"


def test_what_has_no_name_goes_by_its_number() -> None:
    """Profiles of a driver to come, places that are not told."""
    there = cut(H100, "7g.80gb")
    odd = replace(there, instances=(replace(there.instances[0], profile_id=77, start=None),))
    assert plan(Wanted(enabled=True), odd).lines == ("- profile 77",)
    assert plan(Wanted(enabled=False), odd).lines[-1] == "- profile 77"
