"""Keeps the reading worker from making device nodes, which is the driver component's work, by the settings.

NVIDIA's library makes `/dev/nvidiactl` by itself when run as root, without a driver too, and otherwise starts a program
to make the node; no variable and no flag prevents either.
"""

import ctypes

_CAP_MKNOD = 1 << 27
_VERSION_3 = 0x2008_0522
_PR_SET_NO_NEW_PRIVS = 38


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Rights(ctypes.Structure):
    """Capabilities from 0 to 31 first, then capabilities from 32 on."""

    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def give_up_device_nodes() -> None:
    """Give up the right to make device nodes, for this process and its children; no effect without the right.

    Raises:
        OSError: The kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header, rights = _Header(_VERSION_3, 0), (_Rights * 2)()
    _check(libc.capget(ctypes.byref(header), rights), "capget")
    if not rights[0].permitted & _CAP_MKNOD:
        return
    # Or a program that it starts would have the right again, as root's programs have.
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")
    for name in ("effective", "permitted", "inheritable"):
        setattr(rights[0], name, getattr(rights[0], name) & ~_CAP_MKNOD)
    _check(libc.capset(ctypes.byref(header), rights), "capset")


def _check(code: int, what: str) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, f"{what} failed")
