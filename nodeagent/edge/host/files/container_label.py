"""The label by which SELinux lets containers have a file or directory of the agent's that is mounted into them.

Without it a container that may do everything else is refused each of them, and the vGPU library then limits nothing.
"""

import os
from pathlib import Path
from typing import Final

from nodeagent.edge.host.errors import FileNotWritten

ENFORCE: Final = Path("/sys/fs/selinux/enforce")
"""There where the kernel has SELinux on, whether it enforces or only warns."""
LABEL: Final = ("security.selinux", b"system_u:object_r:container_file_t:s0")
"""Of no category: every container of the node may have it, as every one is told which it is to have."""


def label_for_containers(*paths: Path) -> None:
    """Have containers read what lies there; nothing is done on a node without SELinux.

    Raises:
        FileNotWritten: the file system keeps no labels, or the agent may not set any.
    """
    if not ENFORCE.exists():
        return
    for path in paths:
        try:
            os.setxattr(path, *LABEL, follow_symlinks=False)
        except OSError as error:
            raise FileNotWritten(path, "label it for containers (SELinux)", error, replaced=False) from error
