"""Names as they are configured: the same for the node and for the scheduler's extender."""

from nodeagent.config.sections.fractions import FractionsSettings
from nodeagent.model.ids import ResourceName
from nodeagent.rules.fractions.profiles import (
    CoresProfile,
    CountedProfile,
    plan_cores,
    plan_counted_profiles,
    plan_profile,
)


def test_defaults_are_the_names_that_clusters_use() -> None:
    """Settings and profiles say them independently, and agree."""
    assert plan_cores(FractionsSettings()) == CoresProfile()
    assert plan_counted_profiles(FractionsSettings()) == CountedProfile()


def test_what_is_configured_is_what_counts() -> None:
    settings = FractionsSettings(core_resource="a.b/core", block_mib=512, share_resource="a.b/share", shares_per_gpu=4)
    assert plan_profile(settings) == CoresProfile(core=ResourceName("a.b/core"), block_bytes=512 << 20)
    hami = FractionsSettings(profile="hami", share_resource="a.b/share", shares_per_gpu=4)
    assert (
        plan_profile(hami)
        == plan_counted_profiles(hami)
        == CountedProfile(share=ResourceName("a.b/share"), shares_per_gpu=4)
    )
