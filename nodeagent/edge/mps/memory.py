"""A short program beside the agent: mounts a /dev/shm of a stated size for daemons and clients, or unmounts /dev/shm.

Runs as a separate program, as no native call is made in the agent's process. Owns the mount alone. Refuses a mount
visible to the agent only: containers would be given the directory below, and find no daemon there.

    memory.py mount DIRECTORY BYTES
    memory.py unmount DIRECTORY
"""

import ctypes
import os
import sys

_NO_SUID, _NO_DEVICES, _NO_PROGRAMS, _DETACH = 2, 4, 8, 2
_LIBC = ctypes.CDLL(None, use_errno=True)


def mount(directory: str, size: int, host: str) -> None:
    """Mount a tmpfs, if the first process of the machine, with the root `host`, sees the mount too.

    Raises:
        OSError: the mount was refused, or is visible to the agent only.
    """
    flags = ctypes.c_ulong(_NO_SUID | _NO_DEVICES | _NO_PROGRAMS)
    options = f"size={size},mode=1777".encode()
    _check(_LIBC.mount(b"nodeagent-mps", directory.encode(), b"tmpfs", flags, options), f"mount a tmpfs at {directory}")
    try:
        is_seen = os.stat(host + directory).st_dev == os.stat(directory).st_dev  # noqa: PTH116 - start time counts
    except OSError:
        is_seen = False
    if not is_seen:
        unmount(directory)
        raise OSError(f"what is mounted at {directory} is not seen on the host")


def unmount(directory: str) -> None:
    """Unmount the directory, even with open files in it: the files go with the mount.

    Raises:
        OSError: the unmount was refused.
    """
    _check(_LIBC.umount2(directory.encode(), _DETACH), f"unmount {directory}")


def _check(done: int, what: str) -> None:
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {what}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        if sys.argv[1] == "mount":
            mount(sys.argv[2], int(sys.argv[3]), "/proc/1/root")
        else:
            unmount(sys.argv[2])
    except OSError as error:
        sys.exit(str(error))
