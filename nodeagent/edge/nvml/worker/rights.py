"""What the worker that reads may not do: make device nodes, which is the work of the driver component, by the settings.

NVIDIA's library makes `/dev/nvidiactl` by itself where it runs as root, without a driver too, and has a program do it
where it may not; no variable and no flag keeps it from either.
"""

import ctypes

_CAP_MKNOD = 1 << 27
_VERSION_3 = 0x2008_0522
_PR_SET_NO_NEW_PRIVS = 38


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Rights(ctypes.Structure):
    """Of the capabilities from 0 to 31 first, then of those from 32 on."""

    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def give_up_device_nodes() -> None:
    """Make no device node from now on, nor have one made; without a word where this process may not anyway.

    Raises:
        OSError: the kernel refuses.
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
