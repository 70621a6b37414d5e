"""A plugin of pytest: a scenario that failed is run again, alone, after all the others.

One that passes then is unsteady: it is named in the last lines, and the run goes on. More than three of them fail the
run, and so does one that stands in the list of those known before (`unsteady.txt`). Where the run is to stop at a
failure (`-x`), and beyond ten failures, nothing is run again: then it is not the machine that was busy.
"""

from pathlib import Path
from typing import Final, cast

import pytest
from _pytest.runner import runtestprotocol

KNOWN: Final = Path(__file__).with_name("unsteady.txt")
MOST_UNSTEADY: Final = 3
MOST_AGAIN: Final = 10
NAME: Final = "unsteady scenarios"
AGAIN: Final = "again"
"""The outcome of a report about a scenario that will be run again; pytest counts it as nothing."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--known-unsteady", type=Path, default=KNOWN, help="the list of scenarios known to be unsteady")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Unsteady(config), NAME)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    return ("", "A", "AGAIN LATER") if cast("str", report.outcome) == AGAIN else None


def read_known(path: Path) -> frozenset[str]:
    """The test ids in the list."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return frozenset(filter(None, lines))


def judge(unsteady: frozenset[str], known: frozenset[str]) -> str:
    """Why a run with these unsteady scenarios has failed; empty where it has not."""
    if again := sorted(unsteady & known):
        return f"known to be unsteady before, and still not mended: {', '.join(again)}"
    return f"{len(unsteady)} are unsteady, more than {MOST_UNSTEADY}" if len(unsteady) > MOST_UNSTEADY else ""


def describe(report: pytest.TestReport) -> str:
    """The first line of what went wrong, and where it did not in the test itself."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    words = next(iter(text.strip().splitlines()), "")
    return words if report.when == "call" else f"{report.when}: {words}"


def has_failures(session: pytest.Session) -> bool:
    """Whether anything has failed, though it may have passed when it was run again."""
    plugin = session.config.pluginmanager.get_plugin(NAME)
    return bool(session.testsfailed or (plugin is not None and plugin.has_failures))


class Unsteady:
    """What failed at first, and what became of it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._known = read_known(config.option.known_unsteady)
        self._waiting: dict[str, str] = {}
        self._unsteady: dict[str, str] = {}
        self._running_again: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run it and hold back its failure; or run it for the second time and believe what it says."""
        is_second = item.nodeid in self._waiting
        if is_second:
            item._report_sections.clear()
            self._running_again.add(item.nodeid)
        if nextitem is not None and nextitem.nodeid in self._waiting:
            # of the fixtures, the second run shares with the one before it only those of the whole session
            nextitem = cast("pytest.Item", item.session)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        failed = next((report for report in reports if report.failed), None)
        if failed is not None and not is_second and self._may_run_again():
            self._waiting[item.nodeid] = describe(failed)
            item.session.items.append(item)
            failed.outcome = AGAIN  # type: ignore[assignment]  # neither of the three that pytest knows
            reports = [failed]
        elif is_second:
            first = self._waiting.pop(item.nodeid)
            if failed is None:
                self._unsteady[item.nodeid] = first
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @property
    def has_failures(self) -> bool:
        """Whether anything has failed, though it may have passed since."""
        return bool(self._waiting or self._unsteady)

    def _may_run_again(self) -> bool:
        tried = len(self._waiting.keys() | self._running_again)
        return not self._config.option.maxfail and tried < MOST_AGAIN

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Unsteady scenarios may fail a run in which every other one has passed, and so does one that stayed behind."""
        if exitstatus == pytest.ExitCode.OK and (self._waiting or judge(frozenset(self._unsteady), self._known)):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> object:
        """Name them after everything else that is said, but for pytest's own last line."""
        result = yield
        if self._unsteady:
            terminalreporter.section("passed only when run again, alone")
        for nodeid, first in self._unsteady.items():
            terminalreporter.line(f"UNSTEADY {nodeid} - {first}")
        for nodeid, first in self._waiting.items():
            terminalreporter.line(f"FAILED {nodeid} - {first} (the run ended before it was run again)")
        if why := judge(frozenset(self._unsteady), self._known):
            terminalreporter.line(f"the run has failed: {why}", red=True)
        return result
