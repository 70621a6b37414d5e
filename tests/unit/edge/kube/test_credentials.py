"""Who the agent is to the API server, from files that may be anything."""

import base64
import json
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from nodeagent.edge.kube.credentials import Kubeconfig, ServiceAccount, find_credentials, open_access
from nodeagent.edge.kube.errors import CredentialsInvalid
from nodeagent.edge.kube.library import load_library

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def scratch() -> Iterator[ExitStack]:
    """Closed after the test, as the client does once the connection is made."""
    with ExitStack() as stack:
        yield stack


def document(**changes: Any) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443/"}}],
        "users": [{"name": "u", "user": {"token": "abc"}}],
    } | changes


def write(path: Path, content: object) -> Kubeconfig:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return Kubeconfig(path)


def test_a_kubeconfig_gives_server_and_identity(tmp_path: Path, scratch: ExitStack) -> None:
    """The current context decides; a trailing slash of the server is nothing."""
    configuration = write(tmp_path / "config", document()).load(load_library(), scratch)
    assert configuration.host == "https://10.0.0.1:6443"
    assert configuration.api_key == {"BearerToken": "Bearer abc"}


def test_a_token_file_is_read_anew(tmp_path: Path, scratch: ExitStack) -> None:
    """What is replaced under the agent is seen at the next reading; the path is relative to the kubeconfig."""
    token = tmp_path / "token"
    config = write(tmp_path / "config", document(users=[{"name": "u", "user": {"tokenFile": "token"}}]))
    for text in ("first", "second"):
        token.write_text(text)
        assert config.load(load_library(), scratch).api_key == {"BearerToken": f"Bearer {text}"}


def test_a_program_may_give_the_token(tmp_path: Path, scratch: ExitStack) -> None:
    """What clouds use instead of tokens in files."""
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-program"},
    }
    program = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "echo",
        "args": [json.dumps(answer)],
        "interactiveMode": "Never",
    }
    config = write(tmp_path / "config", document(users=[{"name": "u", "user": {"exec": program}}]))
    assert config.load(load_library(), scratch).api_key == {"BearerToken": "Bearer from-program"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "just text",
        "[1, 2]",
        "a: [b",
        "\0",
        document(contexts=None),
        document(contexts=[]),
        document(contexts=[{"name": "c"}]),
        document(contexts=[{"name": "c", "context": {"cluster": "other"}}]),
        document(clusters=[{"name": "k", "cluster": {}}]),
        document(clusters=[{"name": "k"}]),
        document(clusters=[{"name": "k", "cluster": {"server": 5}}]),
        document(clusters="k"),
        document(users=[{"name": "u", "user": {"tokenFile": "absent"}}]),
        document(users=[{"name": "u", "user": {"client-certificate": "absent", "client-key": "absent"}}]),
        document(users=[{"name": "u", "user": {"exec": {"command": "/no/such/program", "apiVersion": "x/v1"}}}]),
        document(**{"current-context": "other"}),
    ],
)
def test_a_kubeconfig_that_is_none_says_so(tmp_path: Path, content: object, scratch: ExitStack) -> None:
    """Whatever is in the file: one error of ours, with its path and a reason in words."""
    with pytest.raises(CredentialsInvalid, match=r"cannot use the credentials in .*config: \S.*: mend them"):
        write(tmp_path / "config", content).load(load_library(), scratch)


def test_a_kubeconfig_that_is_not_there_says_so(tmp_path: Path, scratch: ExitStack) -> None:
    """A named file is used or reported, never passed over."""
    with pytest.raises(CredentialsInvalid, match="no such file"):
        Kubeconfig(tmp_path / "absent").load(load_library(), scratch)


def make_account(directory: Path, *, token: str = "abc", authority: str = "certificate") -> ServiceAccount:
    (directory / "token").write_text(token)
    (directory / "ca.crt").write_text(authority)
    return ServiceAccount(IN_POD, directory)


def test_a_pod_has_its_account(tmp_path: Path, scratch: ExitStack) -> None:
    """The server from the environment, the token from the directory, anew at each reading."""
    account = make_account(tmp_path)
    configuration = account.load(load_library(), scratch)
    assert (configuration.host, configuration.api_key["BearerToken"]) == ("https://10.0.0.1:443", "Bearer abc")
    assert configuration.ssl_ca_cert == str(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("def")
    assert account.load(load_library(), scratch).api_key["BearerToken"] == "Bearer def"


@pytest.mark.parametrize(("token", "authority"), [("", "certificate"), ("abc", "")])
def test_a_broken_account_says_so(tmp_path: Path, token: str, authority: str, scratch: ExitStack) -> None:
    """An empty file is worse than none, and named."""
    with pytest.raises(CredentialsInvalid, match=str(tmp_path)):
        make_account(tmp_path, token=token, authority=authority).load(load_library(), scratch)


def test_a_named_kubeconfig_comes_before_the_account(tmp_path: Path) -> None:
    """What a person wrote wins over what the pod has; where there is neither, there are no credentials."""
    path = tmp_path / "config"
    found = find_credentials(path, IN_POD)
    assert found is not None
    assert found.where == str(path)
    assert found.read_namespace() == "default"
    assert find_credentials(None, {}) is None


def test_without_a_token_a_pod_has_no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A pod that mounts no token runs as nobody, and is not asked to talk to the API server."""
    monkeypatch.setattr("nodeagent.edge.kube.credentials.SERVICE_ACCOUNT_DIR", tmp_path)
    assert find_credentials(None, IN_POD) is None
    make_account(tmp_path)
    found = find_credentials(None, IN_POD)
    assert found is not None
    assert found.where == str(tmp_path)
    assert found.read_namespace() == "default"
    (tmp_path / "namespace").write_text("gpu-agents")
    assert found.read_namespace() == "gpu-agents"


def test_data_in_the_kubeconfig_is_as_good_as_files(tmp_path: Path, scratch: ExitStack) -> None:
    """Certificates may stand in the file itself."""
    pem = base64.b64encode(b"certificate").decode()
    cluster = {"server": "https://10.0.0.1:6443", "certificate-authority-data": pem}
    config = write(tmp_path / "config", document(clusters=[{"name": "k", "cluster": cluster}]))
    path = Path(config.load(load_library(), scratch).ssl_ca_cert)
    assert path.read_text() == "certificate"
    scratch.close()
    assert not path.exists()


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment of the tests says of proxies."""
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize(
    ("environment", "cluster", "proxy"),
    [
        ({}, {}, None),
        ({"HTTPS_PROXY": "http://p:1"}, {}, "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, {}, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.1"}, {}, None),
        ({"HTTPS_PROXY": "http://p:1"}, {"proxy-url": "http://q:2"}, "http://q:2"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.1"}, {"proxy-url": "http://q:2"}, "http://q:2"),
    ],
)
def test_the_way_leads_through_the_proxy_that_is_named(
    tmp_path: Path,
    scratch: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    cluster: dict[str, str],
    proxy: str | None,
) -> None:
    """The kubeconfig's before the environment's, which says too whom it is not for."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    clusters = [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443"} | cluster}]
    configuration = write(tmp_path / "config", document(clusters=clusters)).load(load_library(), scratch)
    assert open_access(configuration).proxy == proxy


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize(
    ("cluster", "judged_by", "name"),
    [
        ({}, (ssl.CERT_REQUIRED, True), None),
        ({"tls-server-name": "kubernetes"}, (ssl.CERT_REQUIRED, True), "kubernetes"),
        ({"insecure-skip-tls-verify": True}, (ssl.CERT_NONE, False), None),
    ],
)
def test_a_server_is_trusted_as_the_kubeconfig_says(
    tmp_path: Path,
    scratch: ExitStack,
    cluster: dict[str, Any],
    judged_by: tuple[ssl.VerifyMode, bool],
    name: str | None,
) -> None:
    """Its certificate and its name, unless it is said that neither matters."""
    clusters = [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443"} | cluster}]
    access = open_access(write(tmp_path / "config", document(clusters=clusters)).load(load_library(), scratch))
    assert isinstance(access.tls, ssl.SSLContext)
    assert (access.tls.verify_mode, access.tls.check_hostname) == judged_by
    assert access.server_hostname == name


@pytest.mark.usefixtures("no_proxies")
def test_a_certificate_that_cannot_be_read_is_an_error(tmp_path: Path, scratch: ExitStack) -> None:
    """One of ours as well as one to trust; a server without TLS needs neither."""
    for name in ("cert", "key"):
        (tmp_path / name).write_text("no certificate")
    user = {"client-certificate": str(tmp_path / "cert"), "client-key": str(tmp_path / "key")}
    config = write(tmp_path / "config", document(users=[{"name": "u", "user": user}]))
    with pytest.raises(OSError, match="PEM"):
        open_access(config.load(load_library(), scratch))
    plain = document(clusters=[{"name": "k", "cluster": {"server": "http://10.0.0.1:8080"}}])
    assert open_access(write(tmp_path / "plain", plain).load(load_library(), scratch)).tls is True
