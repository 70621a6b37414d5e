"""What runs between the agent and a daemon: gives it a /dev/shm of its own and the driver's root, and becomes it.

Runs as a program of its own, in an isolated interpreter that is gone with the `exec`, because namespaces and roots are
changed for the whole process that asks for it. Owns that change alone: the environment it hands on is the one it got.
Refuses every import that would make a start slower.

    launch.py ROOT MEMORY DIRECTORY PROGRAM [ARGUMENT …]

ROOT is the driver's root, MEMORY what becomes /dev/shm (empty: what there is), DIRECTORY where the pipes are.
"""

import ctypes
import os
import sys

_NEW_MOUNTS = 0x00020000
_BIND, _RECURSIVE, _SLAVE = 4096, 16384, 1 << 19
_SHARED = "/dev/shm"  # noqa: S108 - where the driver has its segments
_LIBC = ctypes.CDLL(None, use_errno=True)


def launch(root: str, memory: str, directory: str, argv: list[str]) -> None:
    """Become the program.

    Raises:
        OSError: some step of it was refused.
    """
    _check(_LIBC.unshare(_NEW_MOUNTS), "have a mount namespace of its own (CAP_SYS_ADMIN)")
    # What is unmounted on the host must not stay because of us, and what is mounted here is nobody else's.
    _mount("none", "/", _SLAVE | _RECURSIVE)
    if memory:
        _mount(memory, root + _SHARED, _BIND)
    if root:
        os.makedirs(root + directory, exist_ok=True)  # noqa: PTH103 - see above
        _mount(directory, root + directory, _BIND | _RECURSIVE)
        os.chroot(root)
        os.chdir("/")
    # Set by the interpreter itself where there is no locale, and none of the program's business.
    os.environ.pop("LC_CTYPE", None)
    os.execv(argv[0], argv)  # noqa: S606 - the program is the driver's own


def _mount(source: str, target: str, flags: int) -> None:
    done = _LIBC.mount(source.encode(), target.encode(), None, ctypes.c_ulong(flags), None)
    _check(done, f"mount {source} at {target}")


def _check(done: int, what: str) -> None:
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {what}: {os.strerror(number)}")


if __name__ == "__main__":
    try:
        launch(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
    except OSError as error:
        sys.exit(str(error))
