"""The label by which SELinux lets containers have a mounted file or directory of the agent's.

Without the label even a privileged container is refused access, and the vGPU library then limits nothing.
"""

import os
from pathlib import Path
from typing import Final

from nodeagent.edge.host.errors import FileNotWritten

ENFORCE: Final = Path("/sys/fs/selinux/enforce")
"""Exists where the kernel has SELinux on, whether enforcing or only warning."""
LABEL: Final = ("security.selinux", b"system_u:object_r:container_file_t:s0")
"""Without a category: every container of the node may read a file with the label, as mounts alone decide."""


def label_for_containers(*paths: Path) -> None:
    """Let containers read the files of these paths; nothing is done on a node without SELinux.

    Raises:
        FileNotWritten: The file system keeps no labels, or the agent may not set labels.
    """
    if not ENFORCE.exists():
        return
    for path in paths:
        try:
            os.setxattr(path, *LABEL, follow_symlinks=False)
        except OSError as error:
            raise FileNotWritten(path, "label it for containers (SELinux)", error, replaced=False) from error
