"""`python -m tests.chaos.extender --seed 7 --steps 200 --replicas 2`: one story, ended with 0 when everything held."""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import anyio

from tests.chaos.extender.steps import STEPS
from tests.chaos.extender.story import CALM_EVERY, ClusterStory, Step, Violated
from tests.chaos.plan import plan_story
from tests.component.extender.harness import open_server


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.extender", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--replicas", type=int, choices=(1, 2), default=2)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="nc-") as directory:
        try:
            did = anyio.run(tell_story, Path(directory), options.seed, options.steps, options.replicas)
        except Violated as error:
            sys.stdout.write(f"seed {options.seed}: {error}\n")
            return 1
    counts = ", ".join(f"{count} {what}" for what, count in sorted(did.items()))
    sys.stdout.write(f"{options.steps} steps in {time.monotonic() - began:.0f} s: {counts}; nothing violated\n")
    return 0


async def tell_story(
    directory: Path, seed: int, steps: int, replicas: int, kinds: Mapping[Step, int] = STEPS
) -> dict[str, int]:
    """From the first step to a last calm, with steps of these kinds; how often what happened.

    Raises:
        Violated: something did not hold.
    """
    async with open_server() as server:
        story = ClusterStory(server, directory, replicas)
        violated: Violated | None = None
        async with story.running():
            number = 0
            try:
                for number, (step, chance) in enumerate(plan_story(seed, steps, kinds), start=1):
                    await story.go_on(step, chance)
                    if number % CALM_EVERY == 0:
                        await story.calm()
                await story.calm()
            except Violated as error:
                violated = Violated(f"step {number}: {error}")
        if violated is not None:
            raise violated
        return story.did


if __name__ == "__main__":
    sys.exit(main())
