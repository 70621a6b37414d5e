"""MIG layouts: the wanted layout, the state of the change, and the changing GPUs; pure."""

from collections import Counter

from nodeagent.components.exporter.serving.exposition import Family, make_family
from nodeagent.model.gpu import Inventory
from nodeagent.model.mig import MigState


def build_mig_families(state: MigState, inventory: Inventory | None) -> tuple[Family, ...]:
    """All families about MIG; a node without MIG has the wanted layout alone."""
    gpus = inventory.gpus if inventory is not None else ()
    cut = [(gpu, Counter(device.profile for device in gpu.mig_devices)) for gpu in gpus if gpu.mig_enabled]
    asked = (("layout", state.layout), ("standing", state.standing))
    return (
        make_family(
            "nodeagent_mig_layout_info",
            "gauge",
            "The MIG layout that is asked for, and how it stands: pending, rebooting, success, failed; always 1.",
            [(asked, 1)] if state.layout else [],
        ),
        make_family(
            "nodeagent_mig_changing",
            "gauge",
            "GPUs that are being cut otherwise, or wait for it; the value is the calls made so far.",
            [((("gpu", str(one.index)), ("UUID", one.gpu), ("wanted", one.wanted)), one.done) for one in state.changes],
        ),
        make_family(
            "nodeagent_mig_devices",
            "gauge",
            "MIG devices of each profile.",
            [
                ((("gpu", str(gpu.index)), ("UUID", gpu.uuid), ("profile", profile)), count)
                for gpu, counts in cut
                for profile, count in sorted(counts.items())
            ],
        ),
    )
