"""Who the agent is to the API server, from files that may be anything; read here as the child process reads them."""

import base64
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import load_incluster_config, load_kube_config

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.kube.client_configuration import ClientConfiguration, Way, open_access
from nodeagent.edge.kube.credentials import InClusterCredentials, _find_renewal, find_credentials
from nodeagent.edge.kube.errors import CredentialsInvalid
from nodeagent.edge.kube.kubeconfig.child import read_kubeconfig
from nodeagent.edge.kube.kubeconfig.words import Question, Reading, Refusal
from tests.support.waiting import in_thread

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
PEM = base64.b64encode(b"certificate").decode()


@pytest.fixture(autouse=True)
def back_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The child process goes to the kubeconfig's directory; the test comes back from there."""
    monkeypatch.chdir(tmp_path)


def document(**changes: Any) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443/"}}],
        "users": [{"name": "u", "user": {"token": "abc"}}],
    } | changes


def write(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def read(path: Path) -> Reading:
    (scratch := path.parent / "scratch").mkdir(exist_ok=True)
    answer = read_kubeconfig(Question(str(path), str(scratch)))
    assert isinstance(answer, Reading), answer
    return answer


def give(status: dict[str, str]) -> dict[str, Any]:
    """A program that gives this, as clouds use them instead of tokens in files."""
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "echo",
        "args": [json.dumps(answer)],
        "interactiveMode": "Never",
    }


def make_jwt(end: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": end}).encode()).decode().rstrip("=")
    return f"head.{claims}.seal"


def user(**values: Any) -> dict[str, Any]:
    return document(users=[{"name": "u", "user": values}])


def cluster(**values: Any) -> dict[str, Any]:
    return document(clusters=[{"name": "k", "cluster": {"server": "https://10.0.0.1:6443"} | values}])


KUBECONFIGS: dict[str, Callable[[], dict[str, Any]]] = {
    "token": document,
    "token file": lambda: user(tokenFile="token"),
    "name and password": lambda: user(username="who", password="secret"),
    "nobody": lambda: document(users=[]) | {"clusters": [{"name": "k", "cluster": {"server": "http://10.0.0.1:80"}}]},
    "program with a token": lambda: user(exec=give({"token": "made", "expirationTimestamp": "2030-01-01T00:00:00Z"})),
    "program with a certificate": lambda: user(exec=give({"clientCertificateData": "cert", "clientKeyData": "key"})),
    "certificates in files": lambda: user(**{"client-certificate": "cert", "client-key": "key"}),
    "certificates in the file": lambda: user(**{"client-certificate-data": PEM, "client-key-data": PEM}),
    "authority in a file": lambda: cluster(**{"certificate-authority": "authority"}),
    "authority in the file": lambda: cluster(**{"certificate-authority-data": PEM}),
    "trusted blindly": lambda: cluster(**{"insecure-skip-tls-verify": True}),
    "another name": lambda: cluster(**{"tls-server-name": "kubernetes"}),
    "a proxy": lambda: cluster(**{"proxy-url": "http://q:2"}),
    "provider's token": lambda: user(
        **{"auth-provider": {"name": "oidc", "config": {"id-token": make_jwt(4102444800), "client-id": "c"}}}
    ),
    "two contexts": lambda: document(
        contexts=[
            {"name": "other", "context": {"cluster": "x", "user": "x"}},
            {"name": "c", "context": {"cluster": "k", "user": "u"}},
        ]
    ),
}


@pytest.mark.may_leak("kubernetes_asyncio keeps the files that it makes open until its process ends")
@pytest.mark.parametrize("name", KUBECONFIGS)
async def test_a_kubeconfig_says_what_it_says_to_kubernetes_asyncio(name: str, tmp_path: Path) -> None:
    """Its own reader of files is the original: each value that is handed over is what it would use."""
    for file in ("token", "cert", "key", "authority"):
        (tmp_path / file).write_text(f"content of {file}")
    path = write(tmp_path / "config", KUBECONFIGS[name]())
    own = Configuration()
    await load_kube_config(config_file=str(path), client_configuration=own, persist_config=False)

    def content(file: str | None) -> bytes | None:
        return Path(file).read_bytes() if file else None

    way = Way(
        server=str(own.host),
        authority=content(own.ssl_ca_cert),
        certificate=content(own.cert_file),
        key=content(own.key_file),
        is_verified=own.verify_ssl,
        server_name=own.tls_server_name,
        proxy=own.proxy,
    )
    found = await in_thread(lambda: read(path))
    assert found.configuration == ClientConfiguration(way, own.api_key.get("BearerToken", ""))


def test_a_kubeconfig_gives_server_and_identity(tmp_path: Path) -> None:
    """The current context decides; a trailing slash of the server is nothing."""
    found = read(write(tmp_path / "config", document()))
    assert found.configuration == ClientConfiguration(Way("https://10.0.0.1:6443"), "Bearer abc")
    assert (found.is_made, found.expires_at) == (False, None)


def test_files_of_the_current_context_have_a_say(tmp_path: Path) -> None:
    """By which the agent sees that the kubeconfig has to be read anew; those of other contexts do not count."""
    (tmp_path / "token").write_text("first")
    users = [{"name": "u", "user": {"tokenFile": "token"}}, {"name": "other", "user": {"tokenFile": "absent"}}]
    path = write(tmp_path / "config", document(users=users))
    first = read(path)
    assert sorted(first.digests) == [str(path), str(tmp_path / "token")]
    (tmp_path / "token").write_text("second")
    second = read(path)
    assert second.configuration.authorization == "Bearer second"
    assert second.digests[str(tmp_path / "token")] != first.digests[str(tmp_path / "token")]
    assert second.digests[str(path)] == first.digests[str(path)]


@pytest.mark.parametrize(
    ("content", "end"),
    [
        (user(exec=give({"token": "made", "expirationTimestamp": "2030-01-01T00:00:00Z"})), 1893456000.0),
        (user(exec=give({"token": make_jwt(1893456000)})), 1893456000.0),
        (user(exec=give({"token": "opaque"})), None),
        (user(exec=give({"token": "a.!!!.c"})), None),
        (user(**{"auth-provider": {"name": "oidc", "config": {"id-token": make_jwt(4102444800)}}}), 4102444800.0),
    ],
)
def test_a_token_that_is_made_has_an_end(tmp_path: Path, content: object, end: float | None) -> None:
    """As who made it says, or as it says itself; some say nothing."""
    found = read(write(tmp_path / "config", content))
    assert (found.is_made, found.expires_at) == (True, end)


@pytest.mark.parametrize(("lives", "renewed_before"), [(3600, 300), (1000, 200), (120, 60), (10, 60), (None, None)])
def test_a_token_is_made_anew_before_it_ends(lives: float | None, renewed_before: float | None) -> None:
    """Five minutes at most, as kubernetes_asyncio does, and never less than the agent takes to look again."""
    now = time.time()
    end = None if lives is None else now + lives
    reading = Reading(ClientConfiguration(Way("https://k")), {}, now, is_made=True, expires_at=end)
    assert _find_renewal(reading) == (float("inf") if end is None else pytest.approx(end - (renewed_before or 0)))


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
def test_a_kubeconfig_that_is_none_says_so(tmp_path: Path, content: object) -> None:
    """Whatever is in the file: one line in words."""
    answer = read_kubeconfig(Question(str(write(tmp_path / "config", content)), str(tmp_path)))
    assert isinstance(answer, Refusal)
    assert len(answer.reason) > 5
    assert "\n" not in answer.reason


def test_a_kubeconfig_that_is_not_there_says_so(tmp_path: Path) -> None:
    """A named file is used or reported, never passed over."""
    answer = read_kubeconfig(Question(str(tmp_path / "absent"), str(tmp_path)))
    assert isinstance(answer, Refusal)
    assert "no such file" in answer.reason


def make_account(directory: Path, *, token: str = "abc", authority: str = "certificate") -> InClusterCredentials:
    (directory / "token").write_text(token)
    (directory / "ca.crt").write_text(authority)
    return InClusterCredentials(IN_POD, directory)


@pytest.mark.parametrize("host", ["10.0.0.1", "fd00::1"])
async def test_a_pod_has_its_account(tmp_path: Path, host: str, worker: WorkerThread) -> None:
    """As kubernetes_asyncio reads it, whose own reader is the original; anew at each reading."""
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    make_account(tmp_path)
    own = Configuration()
    files = {"token_filename": str(tmp_path / "token"), "cert_filename": str(tmp_path / "ca.crt")}
    load_incluster_config(  # type: ignore[no-untyped-call]
        own, try_refresh_token=False, environ=environ, **files
    )
    account = InClusterCredentials(environ, tmp_path)
    found = await account.load(worker)
    assert found == ClientConfiguration(Way(str(own.host), b"certificate"), own.api_key["BearerToken"])
    (tmp_path / "token").write_text("def\n")
    assert (await account.load(worker)).authorization == "Bearer def"


@pytest.mark.parametrize(("token", "authority"), [("", "certificate"), ("abc", "")])
async def test_a_broken_account_says_so(tmp_path: Path, token: str, authority: str, worker: WorkerThread) -> None:
    """An empty file is worse than none, and named; so is one that is gone."""
    account = make_account(tmp_path, token=token, authority=authority)
    with pytest.raises(CredentialsInvalid, match=f"{tmp_path}: .* is empty"):
        await account.load(worker)
    (tmp_path / "ca.crt").unlink()
    (tmp_path / "token").write_text("abc")
    with pytest.raises(CredentialsInvalid, match=r"ca\.crt"):
        await account.load(worker)


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
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    cluster: dict[str, str],
    proxy: str | None,
) -> None:
    """The kubeconfig's before the environment's, which says too whom it is not for."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    clusters = [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443"} | cluster}]
    assert open_access(read(write(tmp_path / "config", document(clusters=clusters))).configuration.way).proxy == proxy


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
    cluster: dict[str, Any],
    judged_by: tuple[ssl.VerifyMode, bool],
    name: str | None,
) -> None:
    """Its certificate and its name, unless it is said that neither matters."""
    clusters = [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443"} | cluster}]
    access = open_access(read(write(tmp_path / "config", document(clusters=clusters))).configuration.way)
    assert isinstance(access.tls, ssl.SSLContext)
    assert (access.tls.verify_mode, access.tls.check_hostname) == judged_by
    assert access.server_hostname == name


@pytest.mark.usefixtures("no_proxies")
def test_a_certificate_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """One of ours as well as one to trust; a server without TLS needs neither."""
    for name in ("cert", "key"):
        (tmp_path / name).write_text("no certificate")
    user = {"client-certificate": str(tmp_path / "cert"), "client-key": str(tmp_path / "key")}
    way = read(write(tmp_path / "config", document(users=[{"name": "u", "user": user}]))).configuration.way
    with pytest.raises(OSError, match="PEM"):
        open_access(way)
    plain = document(clusters=[{"name": "k", "cluster": {"server": "http://10.0.0.1:8080"}}])
    assert open_access(read(write(tmp_path / "plain", plain)).configuration.way).tls is True
