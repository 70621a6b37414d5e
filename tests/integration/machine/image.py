"""Builds our Dockerfile without an engine: its steps, run in a fresh Debian, and the result as an image archive.

The stand-in for the base image is made by debootstrap from the same release, because no registry is ever asked.
Every step is a layer in the cache, so that a second build runs only what has changed.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.integration.cluster.making.images import ARCHITECTURES
from tests.integration.machine.box import PATH, open_box
from tests.integration.machine.dockerfile import Stage, Step, parse_dockerfile
from tests.integration.machine.roots import ROOT, SUITE, digest, find_cache, keep, make_debian, make_wheelhouse

WHEELS = "/wheels"
DOCKERFILE = ROOT / "deploy/Dockerfile"


@dataclass(frozen=True, slots=True)
class Image:
    """A built image: its layers from the base up, and what a container of it is told."""

    layers: tuple[Path, ...]
    key: str
    stage: Stage


def build_image(dockerfile: Path, context: Path) -> Image:
    """Run every stage in turn; the last one is the image."""
    built: dict[str, Image] = {}
    image = None
    for stage in parse_dockerfile(dockerfile.read_text()):
        image = _build_stage(stage, context, built)
        built[stage.name] = image
    assert image is not None, "a Dockerfile has a stage"
    return image


def _build_stage(stage: Stage, context: Path, built: dict[str, Image]) -> Image:
    if stage.base in built:
        below = built[stage.base]
        stage.environment = below.stage.environment | stage.environment
    else:
        assert f"debian:{SUITE}-slim@sha256:" in stage.base, f"no stand-in for {stage.base}"
        below = Image((make_debian(),), digest("base"), stage)
    image = Image(below.layers, below.key, stage)
    for step in stage.steps:
        image = _take_step(image, step, context, built)
    return image


def _take_step(image: Image, step: Step, context: Path, built: dict[str, Image]) -> Image:
    *sources, target = step.text.split()
    if step.kind == "RUN":
        key = digest(image.key, step.text, json.dumps(image.stage.environment))
        layer = keep(f"layer-{key}", lambda folder: _run(image, step.text, folder))
    elif step.source:
        other = built[step.source]
        key = digest(image.key, step.text, other.key)
        layer = keep(f"layer-{key}", lambda folder: _copy_from(other, sources, target, folder))
    else:
        files = [file for source in sources for file in sorted(context.glob(source))]
        assert files, f"nothing to copy: {step.text}"
        key = digest(image.key, step.text, *(file.name for file in files), *(file.read_bytes() for file in files))
        layer = keep(f"layer-{key}", lambda folder: _copy(files, target, folder))
    return Image((*image.layers, layer), key, image.stage)


def _run(image: Image, command: str, layer: Path) -> None:
    """As an engine would, but with wheels from the cache, so that a build downloads nothing twice."""
    wheels = _find_wheelhouse()
    environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": f"/tmp{WHEELS}", "PIP_ROOT_USER_ACTION": "ignore"}
    with TemporaryDirectory(dir=find_cache()) as scratch:
        with open_box(image.layers, Path(scratch), {wheels: WHEELS}) as box:
            box.run("sh", "-c", command, environment={**image.stage.environment, **environment})
        _take_over(Path(scratch) / "upper", layer)


def _find_wheelhouse() -> Path:
    """It was made before the first step, because one lock guards the whole cache."""
    return max(find_cache().glob("wheels-*"), key=lambda folder: folder.stat().st_mtime)


def _copy_from(other: Image, sources: Sequence[str], target: str, layer: Path) -> None:
    place = layer / target.strip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=find_cache()) as scratch, open_box(other.layers, Path(scratch)) as box:
        for source in sources:
            subprocess.run(["cp", "-a", f"{box.root}{source}", str(place)], check=True)


def _copy(files: Sequence[Path], target: str, layer: Path) -> None:
    place = layer / target.strip("/")
    place.mkdir(parents=True)
    for file in files:
        shutil.copyfile(file, place / file.name)


def _take_over(upper: Path, layer: Path) -> None:
    for entry in upper.iterdir():
        entry.rename(layer / entry.name)


def write_archive(image: Image, tag: str, target: Path) -> None:
    """The image as `ctr images import` takes it: all layers as one."""
    content = target.with_suffix(".layer")
    with TemporaryDirectory(dir=find_cache()) as scratch, open_box(image.layers, Path(scratch)) as box:
        hidden = [f"--exclude=./{name}/*" for name in ("proc", "sys", "dev", "run", "tmp")]
        command = ["tar", "--create", "--one-file-system", "--sort=name", "--numeric-owner", *hidden]
        subprocess.run([*command, "-f", str(content), "-C", str(box.root), "."], check=True)
    with content.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    name = f"{found}/layer.tar"
    config = {
        "architecture": ARCHITECTURES[os.uname().machine],
        "os": "linux",
        "config": render_config(image.stage),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{found}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": [name]}]
    with tarfile.open(target, "w") as archive:
        archive.add(content, name)
        for file_name, document in (("config.json", config), ("manifest.json", manifest)):
            text = json.dumps(document).encode()
            info = tarfile.TarInfo(file_name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    content.unlink()


def render_config(stage: Stage) -> dict[str, object]:
    """What a container of the image is told."""
    environment = {"PATH": PATH, **stage.environment}
    return {
        "Env": [f"{name}={value.replace('$PATH', PATH)}" for name, value in environment.items()],
        "User": stage.settings.get("USER", "0"),
        "Entrypoint": json.loads(stage.settings["ENTRYPOINT"]),
        "Cmd": json.loads(stage.settings["CMD"]),
    }


def make_image(wheel_directory: Path) -> Image:
    """Our image, from the wheel in this directory."""
    make_wheelhouse()
    with TemporaryDirectory() as place:
        return build_image(DOCKERFILE, lay_context(Path(place), wheel_directory))


def lay_context(place: Path, wheel_directory: Path) -> Path:
    """The checkout as the Dockerfile sees it: what it may copy, and nothing else."""
    (place / "requirements").mkdir()
    shutil.copyfile(ROOT / "requirements/runtime.txt", place / "requirements/runtime.txt")
    shutil.copytree(wheel_directory, place / "dist")
    return place
