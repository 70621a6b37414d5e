"""Reads from a file when a certificate ends: Python's OpenSSL gives the end of peers' certificates only.

Owns a walk over the first few fields of DER (RFC 5280, 4.1): version, serial number, algorithm, issuer, validity.
"""

import ssl
from datetime import UTC, datetime
from typing import Final

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_LONG: Final = 0x80


def read_expiry(pem: str) -> float:
    """The end of the text's first certificate, in seconds since 1970.

    Raises:
        ValueError: the text has no certificate.
    """
    begin = pem.find(_BEGIN)
    end = pem.find(_END, begin)
    if begin < 0 or end < 0:
        raise ValueError("it has no certificate in PEM")
    der = ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_END)])
    try:
        return _read_not_after(der)
    except IndexError as error:
        raise ValueError("its certificate is cut off") from error


def _read_not_after(der: bytes) -> float:
    certificate = _open(der, _SEQUENCE)
    body = _open(certificate, _SEQUENCE)
    if body[0] == _VERSION:
        body = _skip(body)
    for _ in ("serial number", "algorithm", "issuer"):
        body = _skip(body)
    not_after = _skip(_open(body, _SEQUENCE))
    kind, content, _ = _split(not_after)
    if kind not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError("its certificate has no time where its end should stand")
    # Two digits of a year are of 1950 to 2049, and Python's are of 1969 to 2068.
    text = content.decode("ascii")
    if kind == _UTC_TIME:
        text = f"{'19' if text >= '50' else '20'}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _open(der: bytes, kind: int) -> bytes:
    found, content, _ = _split(der)
    if found != kind:
        raise ValueError("it is no certificate")
    return content


def _skip(der: bytes) -> bytes:
    return _split(der)[2]


def _split(der: bytes) -> tuple[int, bytes, bytes]:
    """Kind and content of the first value, and the bytes after the value."""
    kind, length, start = der[0], der[1], 2
    if length >= _LONG:
        start += length - _LONG
        length = int.from_bytes(der[2:start], "big")
    end = start + length
    if end > len(der):
        raise IndexError
    return kind, der[start:end], der[end:]
