"""Imports without the machine's certificate authorities.

aiohttp makes two TLS contexts as it is imported, each with all authorities of the machine. The agent makes contexts of
its own and uses neither, and reading the authorities is a tenth of a start (docs/adr/0015-modules-at-once.md).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_PLACES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""The environment's names for the authorities, by which OpenSSL goes."""


@contextmanager
def without_authorities() -> Iterator[None]:
    """Contexts made in the block trust nobody; the environment is as before afterwards."""
    before = {name: os.environ[name] for name in _PLACES if name in os.environ}
    os.environ.update(dict.fromkeys(_PLACES, os.devnull))
    try:
        yield
    finally:
        for name in _PLACES:
            del os.environ[name]
        os.environ.update(before)
