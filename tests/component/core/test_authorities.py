"""Modules that make TLS contexts as they are imported read no certificate authorities of the machine."""

import os
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.core.authorities import without_authorities
from tests.component.http.certificates import Authority

pytestmark = pytest.mark.may_block("openssl and an interpreter beside the test")

CONTEXTS = """
import ssl
made = []
load = ssl.SSLContext.set_default_verify_paths
ssl.SSLContext.set_default_verify_paths = lambda context: (load(context), made.append(context))[0]
import nodeagent.cli.agent.launch
assert made, "aiohttp makes no contexts any more: the block is of no use"
print([len(context.get_ca_certs()) for context in made])
"""


def test_a_context_of_the_block_trusts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Afterwards the environment says the same as before, whether it said something or nothing."""
    monkeypatch.setenv("SSL_CERT_FILE", "/somewhere/authorities.pem")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    with without_authorities():
        assert ssl.create_default_context().get_ca_certs() == []
    assert (os.environ["SSL_CERT_FILE"], "SSL_CERT_DIR" in os.environ) == ("/somewhere/authorities.pem", False)


def test_a_failed_import_leaves_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the caller's, and the names are gone."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(ImportError), without_authorities():
        raise ImportError
    assert "SSL_CERT_FILE" not in os.environ


def test_an_agent_starts_without_reading_authorities(tmp_path: Path) -> None:
    """By a machine's authority that aiohttp's contexts would have."""
    environment = {**os.environ, "SSL_CERT_FILE": str(Authority(tmp_path).root.cert)}
    done = subprocess.run([sys.executable, "-c", CONTEXTS], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0, 0]"
