"""CRI-O."""

from typing import Final

from nodeagent.model.runtime import RuntimeKind
from nodeagent.model.runtimes.record import FurtherFiles, RuntimePlace, RuntimeRecord

CRIO: Final = RuntimeRecord(
    kind=RuntimeKind.CRIO,
    setting="crio",
    title="CRI-O",
    program="crio",
    unit="crio.service",
    config_file="/etc/crio/crio.conf",
    config_flags=("-c", "--config"),
    places=(RuntimePlace("/var/run/crio/crio.sock"),),
    first_with_cdi=(1, 24),
    first_with_groups=(1, 31),
    monitor="conmon",
    further_files=FurtherFiles.DIRECTORY,
)
