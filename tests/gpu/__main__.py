"""Everything that only a GPU can say, in ten minutes at most, as one table: `python -m tests.gpu`.

Exit status: that of pytest; 0 with the reason in a line where there is no GPU.
"""

import ctypes
import sys
from pathlib import Path
from typing import Final

import pytest

SECONDS: Final = 600
_CONTROL: Final = Path("/dev/nvidiactl")


class _Table:
    """A line for each test: how it went, how long it took, and what it found."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        found = " ".join(f"{name}={value}" for name, value in report.user_properties)
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        name = report.nodeid.removeprefix("tests/gpu/")
        self._lines.append(f"{report.outcome:<8} {report.duration:>7.2f} s  {name}  {found}{why}".rstrip())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("what the GPU said")
        for line in self._lines:
            terminalreporter.write_line(line)


def find_reason(control: Path, library: str) -> str | None:
    """Why there is no GPU to ask, or None."""
    if not control.exists():
        return f"no {control}"
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return f"{library} cannot be loaded"
    code = driver.cuInit(0)
    return f"cuInit says {code}" if code else None


def main() -> int:
    reason = find_reason(_CONTROL, "libcuda.so.1")
    if reason:
        sys.stdout.write(f"not run: {reason}\n")
        return 0
    arguments = ["-m", "gpu", "-n", "0", "-q", "-p", "no:cacheprovider", f"--session-timeout={SECONDS}"]
    return int(pytest.main([*arguments, str(Path(__file__).parent), *sys.argv[1:]], plugins=[_Table()]))


if __name__ == "__main__":
    sys.exit(main())
