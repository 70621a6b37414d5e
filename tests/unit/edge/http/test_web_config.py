"""The web configuration file, which is kept as it is written or refused."""

from pathlib import Path

import pytest

from nodeagent.edge.http.access import check_password
from nodeagent.edge.http.errors import WebConfigInvalid
from nodeagent.edge.http.web_config import TlsConfig, WebConfig, parse_web_config, read_web_config

FILE = Path("/etc/web/config.yaml")
HASH = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
CERTIFICATE = {"cert_file": "a.pem", "key_file": "/keys/a.key"}


def test_a_whole_file_is_understood() -> None:
    """Paths are relative to the file; names of ciphers are those of the toolkit."""
    tree = {
        "tls_server_config": {
            **CERTIFICATE,
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": "ca.pem",
            "client_allowed_sans": ["prometheus"],
            "min_version": "TLS13",
            "max_version": "TLS13",
            "cipher_suites": ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"],
            "prefer_server_cipher_suites": True,
        },
        "http_server_config": {"http2": True, "headers": {"X-Frame-Options": "deny"}},
        "basic_auth_users": {"prometheus": HASH},
    }
    tls = TlsConfig(
        Path("/etc/web/a.pem"),
        Path("/keys/a.key"),
        "RequireAndVerifyClientCert",
        Path("/etc/web/ca.pem"),
        ("prometheus",),
        "TLS13",
        "TLS13",
        ("ECDHE-RSA-AES128-GCM-SHA256",),
    )
    assert parse_web_config(tree, FILE) == WebConfig(tls, {"prometheus": HASH}, {"X-Frame-Options": "deny"})


@pytest.mark.parametrize("tree", [None, {}, {"tls_server_config": None, "basic_auth_users": None}])
def test_an_empty_file_asks_for_nothing(tree: object) -> None:
    assert parse_web_config(tree, FILE) == WebConfig()


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ([], "the file must be a mapping"),
        ({"tls_config": {}}, "unknown key tls_config"),
        ({"tls_server_config": {"cert_file": "a"}}, "key_file is missing"),
        ({"tls_server_config": {**CERTIFICATE, "key_file": 5}}, "key_file must be text"),
        ({"tls_server_config": {**CERTIFICATE, "min_version": "TLS10"}}, "TLS10 is broken"),
        ({"tls_server_config": {**CERTIFICATE, "max_version": "TLS14"}}, "none of TLS12, TLS13"),
        ({"tls_server_config": {**CERTIFICATE, "cipher_suites": "all"}}, "must be a list"),
        ({"tls_server_config": {**CERTIFICATE, "cipher_suites": ["RC4"]}}, "RC4 not offered"),
        ({"tls_server_config": {**CERTIFICATE, "curve_preferences": ["X25519"]}}, "cannot be chosen here"),
        ({"tls_server_config": {**CERTIFICATE, "client_auth_type": "RequireAnyClientCert"}}, "nobody vouches for"),
        ({"tls_server_config": {**CERTIFICATE, "client_auth_type": "Always"}}, "'Always' is none of"),
        (
            {"tls_server_config": {**CERTIFICATE, "client_auth_type": "RequireAndVerifyClientCert"}},
            "needs client_ca_file",
        ),
        ({"tls_server_config": {**CERTIFICATE, "client_ca_file": "ca.pem"}}, "need another"),
        ({"basic_auth_users": ["prometheus"]}, "must be a mapping"),
        ({"basic_auth_users": {"a:b": HASH}}, "no user name"),
        ({"basic_auth_users": {"a": "secret"}}, "basic_auth_users.a is no bcrypt hash"),
        ({"basic_auth_users": {"a": HASH.replace("$05$", "$25$")}}, "no bcrypt hash of cost 4 to 19"),
        ({"http_server_config": {"headers": {"Set-Cookie": "a"}}}, "unknown key Set-Cookie"),
        ({"http_server_config": {"headers": {"X-Frame-Options": "a\r\nb"}}}, "no line of text"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(tree: object, reason: str) -> None:
    """Never a server that is less protected than its owner believes."""
    with pytest.raises(WebConfigInvalid, match="nothing is served before") as caught:
        parse_web_config(tree, FILE)
    assert reason in str(caught.value)


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe\x00", b"a: 1\n" * 100_000, None])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "web.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(WebConfigInvalid):
        read_web_config(file)


@pytest.mark.parametrize(
    ("password", "hashed", "right"),
    [
        (b"U*U", HASH, True),
        (b"U*U", HASH.replace("$2a$", "$2y$"), True),
        (b"U*V", HASH, False),
        (b"U*U*", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.VGOzA784oUp/Z0DY336zx7pLYAy0lwK", True),
        (b"U*U*U", "$2a$05$XXXXXXXXXXXXXXXXXXXXXOAcXxm9kjPGEMsLznoKqmqw7tc8WCx4a", True),
        (b"", "$2a$05$CCCCCCCCCCCCCCCCCCCCC.7uG0VCzI2bS7j6ymqJi9CdcdxiRTWNy", True),
        (b"U*U\x00", HASH, False),
        (b"x" * 73, HASH, False),
    ],
)
def test_passwords_are_checked_against_known_vectors(password: bytes, hashed: str, right: bool) -> None:
    """The published vectors of bcrypt, every prefix of the hash, and nothing a C string would cut short."""
    assert check_password(password, hashed.encode()) is right
