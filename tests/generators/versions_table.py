"""What Kubernetes versions have of what the agent uses, in docs/installation.md, made from the table of the rules.

The versions that the scenarios of `tests/integration` ran on are those of their cluster's go.mod.
"""

import re
from pathlib import Path
from typing import Final

from nodeagent.rules.kubernetes_versions import ABILITIES, ENDINGS, MINORS, Ability, Ending, read_minor
from tests.integration.cluster.making.plan import parse_programs

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "installation.md"
GO_MOD: Final = ROOT / "tests" / "integration" / "cluster" / "go.mod"
_BLOCK: Final = re.compile(r"(<!-- made: versions -->\n).*?(<!-- end -->)", re.DOTALL)


def render_installation() -> str:
    """`docs/installation.md` with its table of versions made anew."""
    table = render_versions(read_tried(GO_MOD.read_text(encoding="utf-8")))
    return _BLOCK.sub(lambda found: found[1] + table + found[2], PAGE.read_text(encoding="utf-8"))


def read_tried(go_mod: str) -> dict[int, str]:
    """The version of each minor version of which there is a cluster."""
    programs = {each.version for each in parse_programs(go_mod) if each.module == "k8s.io/kubernetes"}
    return {minor: version.removeprefix("v") for version in programs if (minor := read_minor(version)) is not None}


def render_versions(tried: dict[int, str]) -> str:
    minors = " | ".join(f"1.{minor}" for minor in MINORS)
    scenarios = " | ".join(tried.get(minor, "not run") for minor in MINORS)
    return "\n".join(
        [
            f"| Of Kubernetes | Of | {minors} | Needed by | Without it, the agent |",
            f"| --- | --- |{' --- |' * len(MINORS)} --- | --- |",
            *map(_render_ability, ABILITIES),
            *map(_render_ending, ENDINGS),
            f"| the scenarios of `tests/integration` ran on |  | {scenarios} |  |  |",
            "",
        ]
    )


def _render_ability(ability: Ability) -> str:
    cells = " | ".join(map(ability.tell, MINORS))
    gate = f" (`{ability.gate}`)" if ability.gate else ""
    setting = f"`{ability.setting}`" if ability.setting else ""
    return f"| {ability.name}{gate} | {ability.side} | {cells} | {setting} | {ability.without} |"


def _render_ending(ending: Ending) -> str:
    return f"| **ends:** {ending.name} | kubelet | {' | '.join(ending.cells)} |  | {ending.end}: {ending.remedy} |"
