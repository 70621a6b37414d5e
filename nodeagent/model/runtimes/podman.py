"""Podman, without a daemon: it serves people, and reads its files at every start."""

from typing import Final

from nodeagent.model.runtime import RuntimeKind
from nodeagent.model.runtimes.record import FurtherFiles, RuntimePlace, RuntimeRecord

PODMAN: Final = RuntimeRecord(
    kind=RuntimeKind.PODMAN,
    setting="podman",
    title="Podman",
    program="podman",
    unit="",
    config_file="/etc/containers/containers.conf",
    config_flags=(),
    places=(RuntimePlace(""),),
    first_with_cdi=(4, 1),
    first_with_groups=(5, 0),
    is_command=True,
    speaks_cri=False,
    further_files=FurtherFiles.CONFS,
    monitor="conmon",
)
