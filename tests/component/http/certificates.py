"""Certificates for tests, made by openssl as an administrator would."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates in one directory."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("needs openssl, to make certificates")
        self._directory, self._serial = directory, 0
        self.root = self._make("ca", "-x509", "-subj", "/CN=test authority")

    def issue(self, name: str, *, file: str = "", days: int = 2) -> Certificate:
        """A certificate for this name and for loopback."""
        self._serial += 1
        return self._make(
            file or name,
            "-x509",
            "-CA",
            str(self.root.cert),
            "-CAkey",
            str(self.root.key),
            "-set_serial",
            str(self._serial),
            "-subj",
            f"/CN={name}",
            "-addext",
            f"subjectAltName=DNS:{name},IP:127.0.0.1",
            "-addext",
            "basicConstraints=CA:FALSE",
            days=days,
        )

    def _make(self, file: str, *arguments: str, days: int = 2) -> Certificate:
        made = Certificate(self._directory / f"{file}.pem", self._directory / f"{file}.key")
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        line = (
            "openssl",
            "req",
            *key,
            "-days",
            str(days),
            *arguments,
            "-keyout",
            str(made.key),
            "-out",
            str(made.cert),
        )
        subprocess.run(line, check=True, capture_output=True)
        return made
