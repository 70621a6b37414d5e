"""Labels that sum up the health of a node's GPUs.

Owns `nvidia.com/gpu.healthy.count`, `.unhealthy.count` and `.unknown.count`: every board is in one of the counts.
"""

from collections.abc import Iterator, Sequence

from nodeagent.components.labeler.node_wide import PREFIX, Label
from nodeagent.model.gpu import Gpu
from nodeagent.model.health import HealthReport, Verdict

HEALTHY = f"{PREFIX}gpu.healthy.count"
UNHEALTHY = f"{PREFIX}gpu.unhealthy.count"
UNKNOWN = f"{PREFIX}gpu.unknown.count"
COUNTS = (HEALTHY, UNHEALTHY, UNKNOWN)
_GOOD = frozenset({Verdict.HEALTHY, Verdict.SUSPECT})


def label_health(gpus: Sequence[Gpu], report: HealthReport | None) -> Iterator[Label]:
    """The numbers of healthy, unhealthy and unknown GPUs; no labels before the first health report."""
    if report is None:
        return
    verdicts: dict[str, set[Verdict]] = {gpu.uuid: set() for gpu in gpus}
    for device in report.devices:
        verdicts.setdefault(device.gpu, set()).add(device.verdict)
    judged = [verdicts[gpu.uuid] | ({Verdict.UNHEALTHY} if gpu.lost else set()) for gpu in gpus]
    healthy = sum(bool(each) and each <= _GOOD for each in judged)
    unhealthy = sum(Verdict.UNHEALTHY in each for each in judged)
    yield from zip(COUNTS, map(str, (healthy, unhealthy, len(gpus) - healthy - unhealthy)), strict=True)
