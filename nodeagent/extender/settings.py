"""The extender's plans from the settings."""

from nodeagent.config.schema import Settings
from nodeagent.extender.service import Patience
from nodeagent.rules.fractions.demands import Profiles
from nodeagent.rules.fractions.profiles import plan_cores, plan_shares


def plan_profiles(settings: Settings) -> Profiles:
    """The resource names of fractions in this cluster, the same as in the nodes' configuration."""
    names, section = settings.extender.profiles, settings.fractions
    return Profiles(
        cores=plan_cores(section) if "tencent" in names else None,
        shares=plan_shares(section) if "hami" in names else None,
        enforcement=section.enforcement_annotation,
    )


def plan_patience(settings: Settings) -> Patience:
    """The waiting times; a single replica needs no confirmation."""
    section = settings.extender
    return Patience(
        assume_seconds=section.assume_seconds,
        propose_seconds=section.propose_seconds,
        confirm_seconds=section.confirm_seconds if section.leader_election else None,
    )
