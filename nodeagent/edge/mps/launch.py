"""The program between the agent and a daemon: sets up a /dev/shm of the daemon's own and the driver's root, then execs.

Runs in an isolated interpreter, replaced by the `exec`, because namespaces and roots are changed for the whole calling
process. Owns the change of namespace and root alone: the environment is handed on untouched.
Refuses every import that would make a start slower.

    launch.py ROOT MEMORY DIRECTORY PROGRAM [ARGUMENT …]

ROOT is the driver's root, MEMORY the directory for /dev/shm (empty: unchanged), DIRECTORY the pipes' directory.
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
        OSError: a step was refused.
    """
    _check(_LIBC.unshare(_NEW_MOUNTS), "have a mount namespace of its own (CAP_SYS_ADMIN)")
    # Unmounts on the host must come through to this namespace, and mounts of this namespace stay private.
    _mount("none", "/", _SLAVE | _RECURSIVE)
    if memory:
        _mount(memory, root + _SHARED, _BIND)
    if root:
        os.makedirs(root + directory, exist_ok=True)  # noqa: PTH103 - see above
        _mount(directory, root + directory, _BIND | _RECURSIVE)
        os.chroot(root)
        os.chdir("/")
    # Set by the interpreter itself where there is no locale, and of no use to the program.
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
