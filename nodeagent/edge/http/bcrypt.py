"""Checks a password against a bcrypt hash with the system's own crypt library.

Owns the way to that library. Refuses to implement bcrypt: in Python a check would take seconds of the event loop's
time; the C library needs milliseconds, outside the interpreter's lock. Whoever calls this does so in a thread.
"""

import ctypes
import hmac
from collections.abc import Callable, Sequence
from typing import Final

from nodeagent.edge.http.errors import PasswordsUncheckable

LIBRARIES: Final = ("libcrypt.so.1", "libcrypt.so.2", "libc.so.6", "libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1")
PASSWORD_BYTES_MAX: Final = 72
"""Bcrypt looks at no more."""
_STATE_BYTES: Final = 256 * 1024
"""More than `struct crypt_data` needs in any library."""
_KNOWN_PASSWORD: Final = b"U*U"
_KNOWN_HASH: Final = b"$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"

Crypt = Callable[[bytes, bytes], bytes]


def open_bcrypt(libraries: Sequence[str] = LIBRARIES) -> Crypt:
    """A function that hashes a password with the settings of a hash, proven on a known pair.

    Raises:
        PasswordsUncheckable: no library here knows bcrypt.
    """
    for name in libraries:
        try:
            function = ctypes.CDLL(name).crypt_r
        except (OSError, AttributeError):
            continue
        crypt = _wrap(function)
        if crypt(_KNOWN_PASSWORD, _KNOWN_HASH) == _KNOWN_HASH:
            return crypt
    raise PasswordsUncheckable(libraries)


def _wrap(function: "ctypes._NamedFuncPointer") -> Crypt:
    function.restype = ctypes.c_char_p
    function.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)

    def crypt(password: bytes, settings: bytes) -> bytes:
        state = ctypes.create_string_buffer(_STATE_BYTES)
        hashed: bytes | None = function(password, settings, ctypes.addressof(state))
        return hashed or b""

    return crypt


def is_right(crypt: Crypt, password: bytes, hashed: bytes) -> bool:
    """Whether this is the password of the hash; compared in constant time."""
    if b"\x00" in password or len(password) > PASSWORD_BYTES_MAX:
        return False
    # Go's library writes $2y$ where others write $2b$; the algorithm is the same.
    settings = hashed.replace(b"$2y$", b"$2b$", 1)
    return hmac.compare_digest(crypt(password, settings), settings)
