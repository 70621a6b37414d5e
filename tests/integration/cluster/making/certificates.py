"""One certificate authority per cluster, made by openssl: both servers and the API server's client side are verified.

Owns the files below `certs/`. The keys never leave the scratch directory, which only root may enter.
"""

import os
from pathlib import Path

from tests.integration.cluster.layout import NODE_NAME, SERVICE_ADDRESS
from tests.integration.cluster.processes import run

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30")


def write_certificates(folder: Path) -> None:
    """Everything that the API server and the kubelet need to trust each other."""
    _found(folder, "/CN=nodeagent-test-ca")
    names = f"IP:127.0.0.1,IP:{SERVICE_ADDRESS},DNS:localhost,DNS:kubernetes.default.svc"
    _issue(folder, "apiserver", "/CN=kube-apiserver", "serverAuth", names)
    _issue(folder, "kubelet", f"/CN={NODE_NAME}", "serverAuth", f"DNS:{NODE_NAME},IP:127.0.0.1")
    _issue(folder, "kubelet-client", "/CN=kube-apiserver", "clientAuth", "DNS:kube-apiserver")
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{folder}/service-accounts.key")


def _found(folder: Path, subject: str) -> None:
    _openssl(
        *("req", "-x509", *_EC, "-subj", subject, "-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.crt"),
        *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
    )


def _issue(folder: Path, name: str, subject: str, usage: str, alternative_names: str) -> None:
    _openssl(
        *("req", "-x509", *_EC, "-subj", subject, "-CA", f"{folder}/ca.crt", "-CAkey", f"{folder}/ca.key"),
        *("-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.crt"),
        *("-addext", "basicConstraints=critical,CA:FALSE", "-addext", "keyUsage=critical,digitalSignature"),
        *("-addext", f"extendedKeyUsage={usage}", "-addext", f"subjectAltName={alternative_names}"),
    )


def _openssl(*arguments: str) -> None:
    run(("openssl", *arguments), os.environ)
