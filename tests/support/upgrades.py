"""Upgrades of the driver, made of as little as a test cares about."""

from nodeagent.model.upgrades import DriverUpgrade, UpgradePhase
from nodeagent.rules.repair.domains import describe_gpu
from tests.support.gpus import make_gpu

OLD, NEW = "570.133.20", "580.105.08"


def make_upgrade(phase: UpgradePhase = UpgradePhase.DRAIN, number: int = 1, **changes: object) -> DriverUpgrade:
    words: dict[str, object] = {
        "number": number,
        "before": OLD,
        "wanted": NEW,
        "gpus": (describe_gpu(make_gpu(0)),),
        "boot": "one",
        "began_seconds": 0.0,
        "phase_seconds": 0.0,
        "phase": phase,
    }
    return DriverUpgrade(**(words | changes))  # type: ignore[arg-type]  # the words of the model
