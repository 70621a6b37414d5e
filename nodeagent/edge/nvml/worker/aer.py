"""The kernel's count of PCIe errors of one card (Advanced Error Reporting).

Runs in the worker process: reading the files of a lost card may hang, and only the worker may hang.
Never fails: a kernel, a root port or a container without the files has no count.
"""

from nodeagent.edge.nvml.shared import Any

FILES = (
    ("aer_dev_correctable", "TOTAL_ERR_COR", "aer_correctable_count"),
    ("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL", "aer_non_fatal_count"),
    ("aer_dev_fatal", "TOTAL_ERR_FATAL", "aer_fatal_count"),
)
"""File, the line with the sum, name in the sample."""


class AerReader:
    """Reads the counts of one card; a missing file is not read again."""

    def __init__(self, directory: str) -> None:
        self._files = list(FILES) if directory else []
        self._directory = directory

    def read(self) -> dict[str, Any]:
        """The present counts, by name in the sample."""
        values: dict[str, Any] = {}
        for row in tuple(self._files):
            name, line, datum = row
            try:
                with open(f"{self._directory}/{name}", encoding="ascii", errors="replace") as file:
                    count = parse_sum(file.read(), line)
            except OSError:
                self._files.remove(row)
                continue
            if count is not None:
                values[datum] = count
        return values


def parse_sum(text: str, name: str) -> int | None:
    """The number in the line that begins with a name."""
    for line in text.splitlines():
        word, _, number = line.partition(" ")
        if word == name and number.isdecimal():
            return int(number)
    return None
