"""The page as its readers have it: loaded, live, by keyboard, on every width."""

from collections.abc import Iterator

import pytest

from tests.support.programs.agent_process import AgentProcess, running_busy_node
from tests.support.programs.browser import Browser

OVERFULL = (
    "[...document.querySelectorAll("
    "'.tile, .tile > *, .tile .tag, .mig li, .stats > div, .card, .rows td, .scroll:has(.rows)')]"
    ".filter(one => one.clientWidth && one.scrollWidth > one.clientWidth + 1)"
    ".map(one => one.outerHTML.slice(0, 80))"
)
"""What is wider than the box it stands in."""

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def node() -> Iterator[AgentProcess]:
    with running_busy_node("--pods", "3") as agent:
        yield agent


@pytest.fixture(scope="module")
def nvl72() -> Iterator[AgentProcess]:
    """A node of a rack of GB200, with a fabric that reaches beyond it."""
    with running_busy_node("--profile", "gb200-nvl72-node", "--pods", "3") as agent:
        yield agent


@pytest.mark.parametrize("path", ["", "gpus/0", "gpus/nobody"])
def test_a_page_loads_without_a_complaint(node: AgentProcess, browser: Browser, path: str) -> None:
    """No error on the console, nothing refused by the page's own policy, nothing asked of anybody else."""
    browser.complaints.clear()
    browser.open(node.url + path)
    browser.wait_for("document.getElementById('live').className === 'on'")
    expected = [one for one in browser.complaints if "404" in one and "nobody" in one]
    assert [one for one in browser.complaints if one not in expected] == []
    assert browser.ask("performance.getEntriesByType('resource').every(one => one.name.startsWith(location.origin))")
    assert browser.ask("getComputedStyle(document.querySelector('main')).maxWidth") != "none"


def test_the_page_tells_of_a_fault_by_itself(node: AgentProcess, browser: Browser) -> None:
    """An XID reaches whoever looks at the page by itself, and focus and opened parts stay as they were."""
    browser.open(node.url)
    browser.wait_for("document.getElementById('live').className === 'on'")
    browser.ask("document.getElementById('matrix').open = true; document.querySelector('.tile a').focus()")
    node.inject("xid", "79", "3")
    browser.wait_for("document.getElementById('gpus').textContent.includes('lost')")
    browser.wait_for("document.getElementById('verdict').className === 'verdict bad'")
    browser.wait_for("document.title.startsWith('✗')")
    assert browser.ask("document.getElementById('matrix').open")
    assert browser.ask("document.activeElement.textContent") == "GPU 0"
    node.inject("clear")
    browser.wait_for("!document.getElementById('gpus').textContent.includes('lost')")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280, 1920])
def test_nothing_sticks_out_at_any_width(node: AgentProcess, browser: Browser, width: int, theme: str) -> None:
    """The page itself never scrolls sideways, from a phone to a wall; wide tables scroll in their own box."""
    browser.resize(width, 900, theme)
    browser.open(node.url)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    wider = (
        "[...document.querySelectorAll('main *')].filter(one => !one.closest('.scroll, .mig, svg')"
        f" && one.getBoundingClientRect().right > {width + 1}).map(one => one.outerHTML.slice(0, 80))"
    )
    assert browser.ask(wider) == []


def test_a_phone_shows_a_page_that_can_be_read_through(node: AgentProcess, browser: Browser) -> None:
    """Nothing is wider than the box it stands in, a table needs no scrolling sideways, and the end is near."""
    browser.resize(400, 900)
    browser.open(node.url)
    assert browser.ask(OVERFULL) == []
    assert browser.ask("document.documentElement.scrollHeight") < 7 * 900


@pytest.mark.parametrize("path", ["", "gpus/0"])
def test_a_node_of_a_rack_fits_a_phone(nvl72: AgentProcess, browser: Browser, path: str) -> None:
    """The long names of its boards, links and fabric make no page wider than the screen, nor a box than its place."""
    browser.resize(400, 900)
    browser.open(nvl72.url + path)
    assert browser.ask("document.documentElement.scrollWidth") <= 400
    assert browser.ask(OVERFULL) == []


def test_a_phone_shows_the_parts_of_a_cut_gpu(browser: Browser) -> None:
    """Each block says what it is, the narrow ones too; readings that are old are marked within their tile."""
    with running_busy_node("--profile", "a100-80gb-mig", "--set", "device_plugin.mig_strategy=mixed") as cut:
        browser.resize(400, 900)
        browser.open(cut.url)
        assert browser.ask("document.querySelectorAll('.mig li').length") > 7
        assert browser.ask(OVERFULL) == []
        cut.inject("hang", "sample", "forever")
        browser.wait_for("document.querySelector('.meters ~ p .tag')?.textContent.includes('old')")
        browser.open(cut.url)
        assert browser.ask("document.documentElement.scrollWidth") <= 400
        assert browser.ask(OVERFULL) == []


@pytest.mark.parametrize("width", [400, 1280])
def test_a_reading_its_name_and_its_curve_stand_side_by_side(node: AgentProcess, browser: Browser, width: int) -> None:
    """On the page of a GPU, where the curve is shown on a phone too."""
    browser.resize(width, 900)
    browser.open(node.url + "gpus/0")
    middles = browser.ask(
        "[...document.querySelectorAll('.meters dt')].map(name => ["
        "name, name.nextElementSibling, name.nextElementSibling.nextElementSibling"
        "].map(one => one.getBoundingClientRect()).map(one => one.top + one.height / 2))"
    )
    assert len(middles) == 4
    assert all(max(row) - min(row) < 6 for row in middles)


def test_the_keyboard_reaches_everything_in_order(node: AgentProcess, browser: Browser) -> None:
    """Tab goes to the skip link first, then down the page as it is read, and focus can be seen."""
    browser.resize(1280, 900)
    browser.open(node.url)
    seen = []
    for _ in range(12):
        browser.press("Tab", 9)
        seen.append(browser.ask("document.activeElement.textContent"))
        assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert seen[:3] == ["Skip to the content", "nodeagent", "Conditions"]
    tops = browser.ask("[...document.querySelectorAll('main a, main summary')].every(one => one.tabIndex === 0)")
    assert tops


def test_a_screen_reader_hears_names(node: AgentProcess, browser: Browser) -> None:
    """Everything that can be acted on, and every picture, has a name in the accessibility tree; landmarks are there."""
    browser.open(node.url)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    shown = [(one["role"]["value"], one.get("name", {}).get("value", "")) for one in nodes if not one["ignored"]]
    named = {"link", "image", "region", "group", "navigation", "DisclosureTriangle", "columnheader"}
    assert [role for role, name in shown if role in named and not name.strip()] == []
    roles = {role for role, _ in shown}
    assert {"main", "banner", "navigation", "contentinfo", "heading", "status", "region", "list", "table"} <= roles


def test_the_page_is_whole_without_javascript(node: AgentProcess, browser: Browser) -> None:
    """Whoever forbids scripts reads the same."""
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(node.url)
        text = str(browser.ask("document.body.innerText"))
        assert "GPU 7" in text
        assert "What happened" in text
        assert browser.ask("document.getElementById('live').textContent") == "reload for newer values"
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
