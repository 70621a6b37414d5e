"""The page as axe-core judges it: every kind of page, in both themes, on a phone and on a desk, in trouble."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.programs.agent_process import AgentProcess, running_busy_node
from tests.support.programs.axe import AxeUnavailable, read_axe
from tests.support.programs.browser import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
UNSURE = ["color-contrast", "heading-order"]
RUN = f"""
  axe.run(document, {{ runOnly: {json.dumps(RULES)}, resultTypes: ['violations', 'incomplete'] }}).then(found => {{
    const tell = (one) => [one.id, one.nodes.map((node) => node.html.slice(0, 160))];
    const unsure = found.incomplete.filter((one) => !{json.dumps(UNSURE)}.includes(one.id));
    return {{ passes: found.passes.length, violations: found.violations.map(tell), unsure: unsure.map(tell) }};
  }})
"""
# Of single signs such as ✓ axe cannot judge the contrast; the palette itself is judged in the unit tests.
PATHS = ["", "gpus/0", "gpus/3", "gpus/nobody", "conditions/gpu-lost", "pods/no/body"]


@pytest.fixture(scope="module")
def axe() -> str:
    """The judge; without npm and a kept copy there is none, and the other checks of this folder stand alone."""
    try:
        return read_axe()
    except AxeUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def node() -> Iterator[AgentProcess]:
    """A node with MIG off, pods, and one GPU lost: every kind of part is on its page."""
    with running_busy_node("--pods", "3") as agent:
        agent.inject("xid", "79", "3")
        agent.wait_for("/api/v1/conditions", "gpu-lost")
        yield agent


@pytest.fixture(scope="module")
def partitioned() -> Iterator[AgentProcess]:
    """A node whose GPUs are blocks."""
    with running_busy_node("--profile", "a100-80gb-mig", "--pods", "3") as agent:
        yield agent


def judge(browser: Browser, url: str, axe: str) -> dict[str, Any]:
    browser.open(url)
    browser.wait_for("document.getElementById('live').className === 'on'")
    browser.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
    browser.ask(axe + "; true")
    found: dict[str, Any] = browser.ask(RUN)
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("path", PATHS)
def test_axe_finds_nothing(node: AgentProcess, browser: Browser, axe: str, path: str, width: int, theme: str) -> None:
    """Names, roles, landmarks, headings, order and the contrast as computed hold on every page."""
    browser.resize(width, 900, theme)
    found = judge(browser, node.url + path, axe)
    assert found["violations"] == []
    assert found["unsure"] == []
    assert found["passes"] > 20


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_blocks(partitioned: AgentProcess, browser: Browser, axe: str, theme: str) -> None:
    """MIG devices too are told to those who do not see them."""
    browser.resize(1280, 900, theme)
    found = judge(browser, partitioned.url, axe)
    assert found["violations"] == []
    assert found["unsure"] == []


def test_the_judge_would_find_a_fault(node: AgentProcess, browser: Browser, axe: str) -> None:
    """A page that is made worse is found out: the judge is awake."""
    browser.resize(1280, 900, "light")
    browser.open(node.url)
    browser.ask("document.documentElement.removeAttribute('lang'); document.querySelector('h2').style.color = '#eee'")
    browser.ask(axe + "; true")
    found = browser.ask(RUN)
    assert {"html-has-lang", "color-contrast"} <= {rule for rule, _ in found["violations"]}
