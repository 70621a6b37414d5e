"""The image that no registry has."""

import hashlib
import io
import json
import tarfile

from tests.integration.cluster.making.images import render_image
from tests.integration.cluster.making.render import BUSYBOX_IMAGE, PAUSE_IMAGE


def test_the_image_is_a_loadable_archive() -> None:
    """One layer whose digest the configuration names, tagged for sandboxes and for workloads."""
    with tarfile.open(fileobj=io.BytesIO(render_image(b"program", ["sh", "ls"], "x86_64"))) as archive:
        files = {member.name: archive.extractfile(member) for member in archive}
        contents = {name: file.read() for name, file in files.items() if file is not None}
    manifest = json.loads(contents["manifest.json"])[0]
    config, layer = json.loads(contents[manifest["Config"]]), contents[manifest["Layers"][0]]
    assert manifest["RepoTags"] == [PAUSE_IMAGE, BUSYBOX_IMAGE]
    assert config["architecture"] == "amd64"
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]


def test_every_command_is_a_link_to_busybox() -> None:
    """Each applet is there under its name, and busybox itself is the program, not a link to itself."""
    with tarfile.open(fileobj=io.BytesIO(render_image(b"program", ["sh", "busybox"], "x86_64"))) as archive:
        layer = archive.extractfile(next(member for member in archive if member.name.endswith("layer.tar")))
        assert layer is not None
        with tarfile.open(fileobj=io.BytesIO(layer.read())) as content:
            members = {member.name: member for member in content}
    assert members["bin/sh"].linkname == "busybox"
    assert members["bin/busybox"].isfile()
    assert members["bin/busybox"].mode == 0o755


def test_the_image_is_reproducible() -> None:
    """The same busybox gives the same bytes, whatever the order of its commands."""
    assert render_image(b"program", ["a", "b"], "aarch64") == render_image(b"program", ["b", "a"], "aarch64")
