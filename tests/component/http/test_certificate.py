"""When certificates end, as their files say it, and when that is told; held against what openssl says of them."""

import subprocess
from datetime import UTC, datetime

import pytest

from nodeagent.edge.http.certificate import read_expiry
from tests.component.http.certificates import Authority

pytestmark = pytest.mark.may_block("files, and openssl beside them")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("days", [2, 9000, 20000], ids=["soon", "after 2049", "far"])
def test_the_end_of_a_certificate_is_what_openssl_says(authority: Authority, days: int) -> None:
    """Years of two digits and of four; the first certificate of a chain counts."""
    made = authority.issue(f"for-{days}", days=days)
    said = subprocess.run(
        ("openssl", "x509", "-noout", "-enddate", "-in", str(made.cert)), check=True, capture_output=True, text=True
    )
    when = datetime.strptime(said.stdout.strip(), "notAfter=%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC)
    text = made.cert.read_text()
    assert read_expiry(text) == when.timestamp()
    assert read_expiry(f"a remark\n{text}{authority.root.cert.read_text()}") == when.timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-----BEGIN CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\nAgEB\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\nMIIBCgKCAQEA\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_certificate_has_no_end(text: str) -> None:
    with pytest.raises(ValueError, match=r"certificate|base64|padding"):
        read_expiry(text)


def test_a_certificate_that_is_cut_anywhere_is_told_as_that(authority: Authority) -> None:
    """Never as another error."""
    lines = authority.issue("cut").cert.read_text().splitlines()
    for kept in range(1, len(lines) - 2):
        with pytest.raises(ValueError, match=r"\w"):
            read_expiry("\n".join([*lines[:kept], lines[-1]]))
