"""Stories in which everything goes wrong, each in a process with a mount namespace of its own."""

import os
import shutil
import subprocess
import sys

import pytest

STEPS = 200
SEED = 1
NIGHTLY_SEEDS = range(100, 200)
"""A hundred stories of two hundred steps."""
HAS_NAMESPACES = (
    shutil.which("unshare") is not None
    and subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True, check=False).returncode
    == 0
)
pytestmark = pytest.mark.skipif(not HAS_NAMESPACES, reason="needs mount namespaces, which this machine forbids")


def tell_story(seed: int) -> None:
    command = ["unshare", "--map-root-user", "--mount", sys.executable, "-m", "tests.chaos"]
    words = ["--seed", str(seed), "--steps", str(STEPS)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, f"{' '.join([*command[:4], *words])}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_violated_while_everything_goes_wrong() -> None:
    """Over 200 faults no device is given twice, no allocation is lost, and the agent is well again after each pause."""
    tell_story(int(os.environ.get("CHAOS_SEED", str(SEED))))


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", NIGHTLY_SEEDS)
def test_nothing_is_violated_in_many_stories(seed: int) -> None:
    """The same for 20,000 steps."""
    tell_story(seed)
