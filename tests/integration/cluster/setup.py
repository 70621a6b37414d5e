"""Writes every file that must lie in the scratch directory before the first process starts."""

import secrets
import shutil
from pathlib import Path

from tests.integration.cluster import render
from tests.integration.cluster.certificates import write_certificates
from tests.integration.cluster.images import render_image
from tests.integration.cluster.layout import Layout, Ports
from tests.integration.cluster.processes import run


def write_files(layout: Layout, ports: Ports) -> None:
    """Directories, certificates, tokens, configuration and image of a new cluster."""
    layout.root.mkdir(mode=0o700)  # tokens and keys lie in here
    for directory in layout.directories():
        directory.mkdir(parents=True, exist_ok=True)
    write_certificates(layout.certs)
    tokens = {user: secrets.token_urlsafe(24) for user in render.USERS}
    (layout.certs / "tokens.csv").write_text(render.render_tokens(tokens))
    for user, token in tokens.items():
        layout.kubeconfig(user).write_text(render.render_kubeconfig(layout, ports, token))
    layout.config("containerd").write_text(render.render_containerd(layout))
    layout.config("kubelet").write_text(render.render_kubelet(layout, ports))
    (layout.root / "cni" / "10-host-network-only.conflist").write_text(render.render_cni())
    (layout.root / "hosts").write_text(render.render_hosts())
    layout.image.write_bytes(make_image())


def make_image() -> bytes:
    """The test image from this machine's busybox."""
    busybox = shutil.which("busybox")
    assert busybox is not None, "the requirements were checked before"
    return render_image(Path(busybox).read_bytes(), run((busybox, "--list"), {}).split())


def read_token(layout: Layout, user: str) -> str:
    """The token of one of the cluster's own users."""
    rows = (line.split(",") for line in (layout.certs / "tokens.csv").read_text().splitlines())
    return next(token for token, _, uid, *_ in rows if uid == user)
