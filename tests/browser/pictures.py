"""`python -m tests.browser.pictures DIRECTORY`: the page as pictures, to look at and for the documentation.

Needs Chromium. Each scene is a simulated node of its own; what is drawn is what the agent serves.
"""

import base64
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.programs.agent_process import AgentProcess, running_simulation
from tests.support.programs.browser import Browser, running_browser

SIZES = {360: 780, 1280: 860, 1920: 1080}
THEMES = ("light", "dark")
SETTLE_SECONDS = 90.0
"""Long enough for the curves to have a shape."""
COLOURS = "64"
"""Of so many a picture is made where pngquant is at hand: a third of the bytes, and no difference to the eye."""


class Scene(NamedTuple):
    """A node, what is done to it, and how long it runs before it is drawn."""

    profile: str
    pods: int = 5
    faults: tuple[tuple[str, ...], ...] = ()
    path: str = ""


SIXTEEN = """\
summary: sixteen GPUs behind twelve switches
driver: {version: 570.172.08, cuda: [12, 8], open_module: false}
numa_cpus: {0: "0-31,64-95", 1: "32-63,96-127"}
gpus:
  - {model: a100-sxm4-40gb, numa: 0, path: PXB, addresses: [
      "01:00.0", "02:00.0", "03:00.0", "04:00.0", "05:00.0", "06:00.0", "07:00.0", "08:00.0"]}
  - {model: a100-sxm4-40gb, numa: 1, path: PXB, addresses: [
      "81:00.0", "82:00.0", "83:00.0", "84:00.0", "85:00.0", "86:00.0", "87:00.0", "88:00.0"]}
nvlink: {wiring: switch, links_per_switch: [2, 2, 2, 2, 2, 2], switches: [
    "c4:00.0", "c5:00.0", "c6:00.0", "c7:00.0", "c8:00.0", "c9:00.0"]}
"""
"""A node that no shipped profile has."""
OWN_PROFILES = {"sixteen": SIXTEEN}

SCENES = {
    "page": Scene("dgx-h100", faults=(("xid", "79", "3"),)),
    "healthy": Scene("dgx-h100"),
    "nvl72": Scene("gb200-nvl72-node", pods=2),
    "mig": Scene("a100-80gb-mig", pods=9),
    "sixteen": Scene("sixteen", pods=9),
    "no-driver": Scene("dgx-h100", pods=0, faults=(("driver", "gone"),)),
    "gpu": Scene("dgx-h100", faults=(("xid", "79", "3"),), path="gpus/3"),
}
DOCUMENTED = ("page",)
"""The scene whose pictures are kept; the others are for looking at."""


def take_pictures(directory: Path, names: tuple[str, ...]) -> None:
    """Every width in both themes of these scenes."""
    with running_browser() as browser:
        for name in names:
            with running_scene(SCENES[name]) as agent:
                for width, height in SIZES.items():
                    for theme in THEMES:
                        picture = take_picture(browser, agent.url + SCENES[name].path, width, height, theme)
                        (directory / f"{name}-{width}-{theme}.png").write_bytes(picture)


@contextmanager
def running_scene(scene: Scene) -> Iterator[AgentProcess]:
    """A node of this kind, in the state in which it is drawn."""
    with tempfile.TemporaryDirectory(prefix="na-") as directory, tempfile.TemporaryDirectory() as profiles:
        profile = scene.profile
        if profile in OWN_PROFILES:
            path = Path(profiles) / f"{profile}.yaml"
            path.write_text(OWN_PROFILES[profile])
            profile = str(path)
        with running_simulation(Path(directory), "--profile", profile, "--pods", str(scene.pods)) as agent:
            time.sleep(SETTLE_SECONDS)
            for fault, *arguments in scene.faults:
                status, answer = agent.post("/api/v1/faults", {"fault": fault, "arguments": arguments})
                assert status == 200, answer
            time.sleep(SETTLE_SECONDS / 2)
            yield agent


def take_picture(browser: Browser, url: str, width: int, height: int, theme: str) -> bytes:
    """What a reader sees first, as PNG; with a height of 0 all of the page."""
    browser.resize(width, height or SIZES[width], theme)
    browser.open(url)
    if not height:
        browser.resize(width, int(browser.ask("document.documentElement.scrollHeight")), theme)
    browser.wait_for("document.getElementById('live').className === 'on'")
    return _shrink(base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"]))


def _shrink(picture: bytes) -> bytes:
    pngquant = shutil.which("pngquant")
    if pngquant is None:
        return picture
    return subprocess.run([pngquant, COLOURS, "-"], input=picture, capture_output=True, check=True).stdout


if __name__ == "__main__":
    take_pictures(Path(sys.argv[1]), tuple(sys.argv[2:]) or DOCUMENTED)
