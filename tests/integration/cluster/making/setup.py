"""Writes every file that must lie in the scratch directory before the first process starts."""

import secrets
import shutil
import sys
from pathlib import Path

from tests.integration.cluster import pod_network
from tests.integration.cluster.layout import Layout, Ports
from tests.integration.cluster.making import render
from tests.integration.cluster.making.certificates import write_certificates
from tests.integration.cluster.making.images import render_image
from tests.integration.cluster.processes import run
from tests.integration.cluster.versions import Versions


def write_files(layout: Layout, ports: Ports, versions: Versions) -> None:
    """Directories, certificates, tokens, configuration and image of a new cluster."""
    layout.root.mkdir(mode=0o700)  # tokens and keys lie in here
    for directory in layout.directories():
        directory.mkdir(parents=True, exist_ok=True)
    write_certificates(layout.certs)
    tokens = {user: secrets.token_urlsafe(24) for user in render.USERS}
    (layout.certs / "tokens.csv").write_text(render.render_tokens(tokens))
    for user, token in tokens.items():
        layout.kubeconfig(user).write_text(render.render_kubeconfig(layout, ports, token))
    layout.config("containerd").write_text(render.render_containerd(layout, versions))
    layout.config("kubelet").write_text(render.render_kubelet(layout, ports))
    (layout.cni / "10-pod-network.conflist").write_text(render.render_cni(layout, ports))
    write_pod_network(layout.cni / render.POD_NETWORK)
    (layout.cni / pod_network.LOOPBACK).symlink_to(render.POD_NETWORK)
    (layout.root / "hosts").write_text(render.render_hosts())
    layout.image.write_bytes(make_image())


def write_pod_network(program: Path) -> None:
    """Install the plugin, to be run by the interpreter that runs these tests."""
    text = Path(pod_network.__file__).read_text()
    program.write_text(f"#!{sys.executable}\n{text}")
    program.chmod(0o755)


def make_image() -> bytes:
    """The test image from this machine's busybox."""
    busybox = shutil.which("busybox")
    assert busybox is not None, "the requirements were checked before"
    return render_image(Path(busybox).read_bytes(), run((busybox, "--list"), {}).split())


def read_token(layout: Layout, user: str) -> str:
    """The token of one of the cluster's own users."""
    rows = (line.split(",") for line in (layout.certs / "tokens.csv").read_text().splitlines())
    return next(token for token, _, uid, *_ in rows if uid == user)
