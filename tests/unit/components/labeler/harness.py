"""What the rules of labels are asked in tests."""

from nodeagent.components.labeler.resources import label_resources
from nodeagent.config.schema import Settings
from nodeagent.model.gpu import Gpu

P = "nvidia.com/"


def resources(*gpus: Gpu, under: Settings | None = None) -> dict[str, str]:
    return dict(label_resources(gpus, under or Settings()))
