"""The scheduler's extender as the chart installs it."""

import ssl
import time
from base64 import b64decode
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from nodeagent.config.load import load_settings
from nodeagent.edge.http.certificate import read_expiry
from nodeagent.extender.trust.digest import parse_keys
from tests.deploy.chart import Object, needs_helm, read_objects, render_objects, say_notes
from tests.deploy.helm import ROOT, render_chart

pytestmark = pytest.mark.may_block("nothing here runs on an event loop")
HANDSHAKE_STEPS = 10
EXTENDER = ("--set", "extender.enabled=true")
FILES = {"cert_file": "tls.crt", "key_file": "tls.key", "client_ca_file": "ca.crt"}
INLINE = {"certData": "tls.crt", "keyData": "tls.key", "caData": "ca.crt"}
SCHEDULER = (*EXTENDER, "--set", "extender.scheduler.enabled=true,extender.scheduler.image=kube-scheduler:v1.36.0")


def read_mounts(objects: dict[tuple[str, str], Object], name: str = "nodeagent-extender") -> dict[str, bytes]:
    """The files of Secrets in a pod, by path, of those that are rendered too."""
    pod = objects["Deployment", name]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    secrets = {each["name"]: each["secret"] for each in pod["volumes"] if "secret" in each}
    return {
        f"{mount['mountPath']}/{key}": b64decode(text)
        for mount in container["volumeMounts"]
        if mount["name"] in secrets
        for key, text in objects["Secret", secrets[mount["name"]]["secretName"]]["data"].items()
    }


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Both sides in this process, for as long as they have something to say."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname=name),
    ]
    for _ in range(HANDSHAKE_STEPS):
        for side in sides:
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    for side in sides:
        side.do_handshake()


def load(context: ssl.SSLContext, directory: Path, files: dict[str, bytes]) -> ssl.SSLContext:
    """With the certificate, the key and the authority of a Secret."""
    for name, content in files.items():
        (directory / name).write_bytes(content)
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    context.load_verify_locations(directory / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@needs_helm
def test_scheduler_and_extender_know_each_other_by_what_the_chart_makes(tmp_path: Path) -> None:
    """By name, whatever the address; another installation's scheduler is a stranger."""
    ours, others = (
        render_objects(*EXTENDER, "--set", "extender.clusterIP=10.96.0.42,extender.tls.days=90") for _ in range(2)
    )
    data = ours["Secret", "nodeagent-extender-client"]["data"]
    (entry,) = yaml.safe_load(b64decode(data["scheduler-extender.yaml"]))
    assert entry["urlPrefix"] == "https://10.96.0.42:3456/scheduler"
    web = yaml.safe_load(ours["ConfigMap", "nodeagent-extender"]["data"]["web.yaml"])["tls_server_config"]
    assert web["client_auth_type"] == "RequireAndVerifyClientCert"
    mounted = read_mounts(ours)
    served = {name: mounted[web[key]] for key, name in FILES.items()}
    server = load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tmp_path, served)
    for objects, fits in ((ours, True), (others, False)):
        (told,) = yaml.safe_load(
            b64decode(objects["Secret", "nodeagent-extender-client"]["data"]["scheduler-extender.yaml"])
        )
        shown = {name: b64decode(told["tlsConfig"][key]) for key, name in INLINE.items()}
        client = load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), tmp_path, shown)
        if fits:
            shake_hands(server, client, told["tlsConfig"]["serverName"])
            with pytest.raises(ssl.SSLCertVerificationError):
                shake_hands(server, client, "another.example")
            continue
        client.load_verify_locations(cadata=served["ca.crt"].decode())
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(server, client, told["tlsConfig"]["serverName"])
    seconds = read_expiry(served["tls.crt"].decode()) - time.time()
    assert 89 < seconds / 86400 <= 90


@needs_helm
def test_the_key_of_choices_is_long_and_no_other_installations() -> None:
    """And shared by all replicas, as a file."""
    keys = [read_mounts(render_objects(*EXTENDER))["/etc/nodeagent-choices/keys"] for _ in range(2)]
    assert keys[0] != keys[1]
    assert [len(parse_keys(key)) for key in keys] == [1, 1]


@needs_helm
def test_secrets_that_are_there_are_taken_as_they_are() -> None:
    """None is made then, and one that is not named is asked for."""
    named = "extender.tls.serverSecret=a,extender.tls.clientSecret=b,extender.choiceKeysSecret=c"
    objects = render_objects(*SCHEDULER, "--set", f"extender.tls.from=existing,{named}")
    assert not [name for kind, name in objects if kind == "Secret"]
    for name, secrets in (("nodeagent-extender", {"a", "c"}), ("nodeagent-scheduler", {"b"})):
        volumes = objects["Deployment", name]["spec"]["template"]["spec"]["volumes"]
        assert {each["secret"]["secretName"] for each in volumes if "secret" in each} == secrets
    done = render_chart(*EXTENDER, "--set", "extender.tls.from=existing")
    assert "extender.tls.serverSecret" in done.stderr


@needs_helm
def test_cert_manager_makes_the_same_secrets() -> None:
    """For the same names, by an authority of this installation alone."""
    plain, objects = render_objects(*SCHEDULER), render_objects(*SCHEDULER, "--set", "extender.tls.from=certManager")
    made = {one["spec"]["secretName"]: one["spec"] for (kind, _), one in objects.items() if kind == "Certificate"}
    kept = {name for kind, name in plain if kind == "Secret"} - {"nodeagent-extender-choices"}
    assert made.keys() == kept
    service = "nodeagent-extender.nodeagent.svc"
    assert service in made["nodeagent-extender-server"]["dnsNames"]
    issuers = {name: one["spec"] for (kind, name), one in objects.items() if kind == "Issuer"}
    assert issuers[made["nodeagent-extender-server"]["issuerRef"]["name"]] == {
        "ca": {"secretName": "nodeagent-extender-ca"}
    }
    assert made["nodeagent-extender-ca"]["isCA"] is True
    for name in ("nodeagent-extender", "nodeagent-scheduler"):
        assert objects["Deployment", name] == plain["Deployment", name]


@needs_helm
def test_plain_http_is_one_switch_and_warned_of(tmp_path: Path) -> None:
    """Probes are where they were, and nobody is told that strangers are kept away."""
    plain = ("--set", "extender.tls.from=none")
    objects = render_objects(*SCHEDULER, *plain)
    assert {name for kind, name in objects if kind == "Secret"} == {"nodeagent-extender-choices"}
    (entry,) = yaml.safe_load(objects["ConfigMap", "nodeagent-extender"]["data"]["scheduler-extender.yaml"])
    assert entry["urlPrefix"].startswith("http://")
    assert "tlsConfig" not in entry
    (container,) = objects["Deployment", "nodeagent-extender"]["spec"]["template"]["spec"]["containers"]
    (by_tls,) = render_objects(*EXTENDER)["Deployment", "nodeagent-extender"]["spec"]["template"]["spec"]["containers"]
    for key in ("livenessProbe", "readinessProbe", "ports"):
        assert container[key] == by_tls[key]
    warning = "THE EXTENDER TRUSTS WHOEVER REACHES ITS PORT"
    assert warning in say_notes(tmp_path, [], *EXTENDER, *plain)
    assert warning not in say_notes(tmp_path, [], *EXTENDER)


@needs_helm
def test_whoever_installs_is_told_what_kube_scheduler_needs(tmp_path: Path) -> None:
    """One command where the chart has it all, and the files where others make them."""
    said = say_notes(tmp_path, [], *EXTENDER)
    assert """get secret nodeagent-extender-client -o 'go-template={{index .data "scheduler-extender.yaml\"""" in said
    assert "extender.clusterIP keeps it for good" in said
    assert "clusterIP" not in say_notes(tmp_path, [], *EXTENDER, "--set", "extender.clusterIP=10.96.0.42")
    by_files = say_notes(tmp_path, [], *EXTENDER, "--set", "extender.tls.from=certManager")
    assert """get secret nodeagent-extender-client -o 'go-template={{index .data "tls.key\"""" in by_files
    assert "schedulerName: nodeagent-scheduler" in say_notes(tmp_path, [], *SCHEDULER)
    assert "xtender" not in say_notes(tmp_path, [])


@needs_helm
def test_probes_and_metrics_need_no_certificate() -> None:
    """They have a port of their own, which the network policy lets in."""
    objects = render_objects(*EXTENDER, "--set", "podMonitor.enabled=true")
    (container,) = objects["Deployment", "nodeagent-extender"]["spec"]["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"extender": 3456, "probes": 3457}
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "probes"
        assert "scheme" not in container[probe]["httpGet"]
    (endpoint,) = objects["PodMonitor", "nodeagent-extender"]["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == "probes"
    (rule,) = objects["NetworkPolicy", "nodeagent-extender"]["spec"]["ingress"]
    assert {each["port"] for each in rule["ports"]} == ports.keys()


@needs_helm
def test_the_extender_is_added_when_asked_for_with_the_reviewed_rights() -> None:
    """Under an account of its own, which may do nothing on nodes but look."""
    assert not {name for _, name in render_objects() if "extender" in name}
    objects = render_objects(*EXTENDER)
    reviewed = read_objects((ROOT / "deploy/rbac-extender.yaml").read_text())
    assert {key: objects.get(key) for key in reviewed} == reviewed
    added = {key for key in objects.keys() - render_objects().keys() if key not in reviewed}
    secrets = {("Secret", f"nodeagent-extender-{name}") for name in ("ca", "server", "client", "choices")}
    assert added == secrets | {
        ("ConfigMap", "nodeagent-extender"),
        ("Service", "nodeagent-extender"),
        ("Deployment", "nodeagent-extender"),
        ("NetworkPolicy", "nodeagent-extender"),
    }
    pod = objects["Deployment", "nodeagent-extender"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["extender"]
    assert container["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    assert pod["serviceAccountName"] == "nodeagent-extender"


@needs_helm
@pytest.mark.parametrize(("replicas", "shares"), [(1, False), (2, True)])
def test_the_extenders_configuration_is_valid(tmp_path: Path, replicas: int, shares: bool) -> None:
    """With the agent's own words; several replicas share a Lease of the name that its role has."""
    words = ("--set", f"extender.replicas={replicas},config.extender.policy=spread")
    objects = render_objects(*EXTENDER, *words)
    data = objects["ConfigMap", "nodeagent-extender"]["data"]
    file = tmp_path / "config.yaml"
    file.write_text(data["config.yaml"])
    settings = load_settings(file, environ={}).settings.extender
    assert (settings.listen.host, settings.listen.port, settings.policy) == ("", 3456, "spread")
    assert settings.leader_election == shares
    assert settings.lease_name in str(objects["Role", "nodeagent-extender"]["rules"])
    assert str(settings.web_config_file) == "/etc/nodeagent/web.yaml"
    assert settings.verbs == ("predicates",)
    assert read_mounts(objects).keys() >= {str(settings.choice_keys_file)}


@needs_helm
@pytest.mark.parametrize(
    ("profiles", "names"),
    [
        ("tencent", {"tencent.com/vcuda-core": False, "tencent.com/vcuda-memory": False}),
        (
            "hami",
            {
                "nvidia.com/gpu": False,
                "nvidia.com/gpumem": True,
                "nvidia.com/gpumem-percentage": True,
                "nvidia.com/gpucores": True,
            },
        ),
    ],
)
def test_a_scheduler_is_told_of_the_extender(profiles: str, names: dict[str, bool]) -> None:
    """As a snippet for the cluster's own, and whole for a second one; it leaves the sizes of shares alone."""
    objects = render_objects(*SCHEDULER, "--set", f"config.extender.profiles={{{profiles}}}")
    (snippet,) = yaml.safe_load(objects["ConfigMap", "nodeagent-extender"]["data"]["scheduler-extender.yaml"])
    configuration = yaml.safe_load(objects["ConfigMap", "nodeagent-scheduler"]["data"]["config.yaml"])
    assert configuration["extenders"] == [snippet]
    assert snippet["urlPrefix"] == "https://nodeagent-extender.nodeagent.svc:3456/scheduler"
    assert {each["name"]: each["ignoredByScheduler"] for each in snippet["managedResources"]} == names
    mounted = read_mounts(objects, "nodeagent-scheduler")
    assert mounted.keys() >= {snippet["tlsConfig"][key] for key in ("caFile", "certFile", "keyFile")}


@needs_helm
def test_a_scheduler_is_told_of_divisible_classes(tmp_path: Path) -> None:
    """Beside the names of GPUs; by the same setting that the extender reads."""
    objects = render_objects(*SCHEDULER, "--set", "config.extender.classes={amd.com/gpu}")
    (snippet,) = yaml.safe_load(objects["ConfigMap", "nodeagent-extender"]["data"]["scheduler-extender.yaml"])
    names = [each["name"] for each in snippet["managedResources"]]
    assert names == ["amd.com/gpu-core", "amd.com/gpu-memory", "tencent.com/vcuda-core", "tencent.com/vcuda-memory"]
    file = tmp_path / "config.yaml"
    file.write_text(objects["ConfigMap", "nodeagent-extender"]["data"]["config.yaml"])
    assert load_settings(file, environ={}).settings.extender.classes == ("amd.com/gpu",)


@needs_helm
def test_a_second_scheduler_wants_an_image() -> None:
    """Of the cluster's own version, which nobody here knows."""
    done = render_chart(*EXTENDER, "--set", "extender.scheduler.enabled=true")
    assert done.returncode != 0
    assert "extender.scheduler.image" in done.stderr
