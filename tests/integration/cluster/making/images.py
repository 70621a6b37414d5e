"""Images of the test cluster, made from what is on this machine: no registry is ever asked.

The one that every cluster has is a static busybox, tagged twice: as the pods' sandbox and as their workload; scenarios
make others from a directory. A docker archive with one layer each. Reproducible byte for byte.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.integration.cluster.making.render import BUSYBOX_IMAGE, PAUSE_IMAGE

ARCHITECTURES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}


def render_image(busybox: bytes, applets: Iterable[str], machine: str = platform.machine()) -> bytes:
    """The archive for `ctr images import`: busybox, a link for each of its commands, /tmp and /etc."""
    layer = _tar(
        [_folder("bin"), _folder("etc"), _folder("tmp", 0o1777), _file("bin/busybox", busybox, 0o755)]
        + [_link(f"bin/{name}") for name in sorted(set(applets) - {"busybox"})]
    )
    return _render_archive(layer, [PAUSE_IMAGE, BUSYBOX_IMAGE], machine)


def render_tree_image(root: Path, tag: str, machine: str = platform.machine()) -> bytes:
    """The archive of an image whose files are those below a directory."""
    places = sorted(root.rglob("*"))
    return _render_archive(_tar(_entry(path, str(path.relative_to(root))) for path in places), [tag], machine)


def _render_archive(layer: bytes, tags: list[str], machine: str) -> bytes:
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": ARCHITECTURES[machine],
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sleep", "2147483647"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": tags, "Layers": [f"{digest}/layer.tar"]}]
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


def _link(name: str, target: str = "busybox") -> _Entry:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info, b""


def _entry(path: Path, name: str) -> _Entry:
    if path.is_symlink():
        return _link(name, str(path.readlink()))
    mode = path.stat().st_mode & 0o7777
    return _folder(name, mode) if path.is_dir() else _file(name, path.read_bytes(), mode)
