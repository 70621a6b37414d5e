"""The steps of an upgrade in words, for the log, the audit log and the page."""

from nodeagent.model.upgrades import DriverUpgrade, UpgradePhase

_PHASES = {
    UpgradePhase.DRAIN: "pods leave the GPUs",
    UpgradePhase.PAUSE: "other programs with the driver open are paused",
    UpgradePhase.UNLOAD: "the old modules leave",
    UpgradePhase.INSTALL: "the new driver comes",
    UpgradePhase.RESTORE: "the driver is taken back and whoever was paused comes back",
}


def describe_step(upgrade: DriverUpgrade, before: DriverUpgrade) -> str:
    """What is new in an upgrade, empty for what only the journal needs."""
    news = []
    if upgrade.failure and upgrade.failure != before.failure:
        news.append(f"failed: {upgrade.failure}")
    if upgrade.aborted_by != before.aborted_by:
        news.append(f"aborted by {upgrade.aborted_by}")
    if upgrade.paused_by != before.paused_by:
        news.append(f"paused by {upgrade.paused_by}" if upgrade.paused_by else "goes on")
    if upgrade.may_repeat and not before.may_repeat:
        news.append("another try is allowed")
    if upgrade.boot != before.boot:
        news.append("taken up after a reboot")
    if upgrade.phase is not before.phase:
        news.append(_PHASES[upgrade.phase])
    if upgrade.ending is not None and before.ending is None:
        news.append(f"ended, {upgrade.ending}")
    return "; ".join(news)
