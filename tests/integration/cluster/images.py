"""The one image of the test cluster, made from the machine's static busybox: no registry is ever asked.

A docker archive with one layer, tagged twice: as the pods' sandbox and as their workload. Reproducible byte for byte.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Mapping

from tests.integration.cluster.render import BUSYBOX_IMAGE, PAUSE_IMAGE

ARCHITECTURES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}


def render_image(busybox: bytes, applets: Iterable[str], machine: str = platform.machine()) -> bytes:
    """The archive for `ctr images import`: busybox, a link for each of its commands, /tmp and /etc."""
    layer = _tar(
        [_folder("bin"), _folder("etc"), _folder("tmp", 0o1777), _file("bin/busybox", busybox, 0o755)]
        + [_link(f"bin/{name}") for name in sorted(set(applets) - {"busybox"})]
    )
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": ARCHITECTURES[machine],
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sleep", "2147483647"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [PAUSE_IMAGE, BUSYBOX_IMAGE], "Layers": [f"{digest}/layer.tar"]}]
    return _tar(
        [
            _file(f"{digest}/layer.tar", layer),
            _file("config.json", json.dumps(config).encode()),
            _file("manifest.json", json.dumps(manifest).encode()),
        ]
    )


_Entry = tuple[tarfile.TarInfo, bytes]


def _tar(entries: Iterable[_Entry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _file(name: str, content: bytes, mode: int = 0o644) -> _Entry:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    return info, content


def _folder(name: str, mode: int = 0o755) -> _Entry:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    return info, b""


def _link(name: str) -> _Entry:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, "busybox"
    return info, b""
