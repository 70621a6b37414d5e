"""Reads the kernel log from the kernel's oldest record, and goes on as new records come.

Owns the descriptor of /dev/kmsg, the position in the log, and the count of records that were lost unread.
Refuses records from user space: any writer of /dev/kmsg could fake a broken GPU, but not the kernel's facility.
A malformed record is counted and passed over; malformed records never end the reader.
"""

import errno
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel
from msgspec import structs

from nodeagent.edge.host.errors import KernelLogUnavailable
from nodeagent.edge.host.machine.kernel_log_lines import KernelRecord, parse_record

KERNEL_LOG = Path("/dev/kmsg")
_RECORD_LIMIT_BYTES = 16 * 1024
"""Twice the kernel's largest record; a read into less fails without consuming the record."""
_BUDGET = 200
"""Records read in one go: a flood of records must not starve the event loop."""
_KERNEL_FACILITY = 0


class KernelLog:
    """One reader with its own position. Belongs to one task; use as a context manager.

    Args:
        path: The log device.
        after_sequence: The last record handled before, in this same boot; earlier records are passed over.
        read: The function that reads from the descriptor, replaced in tests.
    """

    def __init__(
        self,
        path: Path = KERNEL_LOG,
        *,
        after_sequence: int | None = None,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self.malformed_count = 0
        """Number of malformed records."""
        self._path, self._read = path, read
        self._last = after_sequence
        self._handled = -1 if after_sequence is None else after_sequence
        self._descriptor = -1

    def __enter__(self) -> Self:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise KernelLogUnavailable(self._path, error) from error
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    async def records(self) -> AsyncGenerator[KernelRecord, None]:
        """Every record of the kernel's own, in order, for ever.

        Raises:
            KernelLogUnavailable: The log can no longer be read.
        """
        while True:
            batch = self.read_nowait()
            for record in batch or ():
                yield record
            if batch is None:
                await anyio.wait_readable(self._descriptor)
            else:
                await anyio.lowlevel.checkpoint()

    def read_nowait(self) -> tuple[KernelRecord, ...] | None:
        """Present records, at most a batch; `None` when all records are read.

        Raises:
            KernelLogUnavailable: The log can no longer be read.
        """
        records: list[KernelRecord] = []
        for number in range(_BUDGET):
            raw = self._read_raw_nowait()
            if raw is None:
                return tuple(records) if number else None
            if raw and (record := self._accept(raw)) is not None:
                records.append(record)
        return tuple(records)

    def _read_raw_nowait(self) -> bytes | None:
        """One record; empty when the kernel overwrote the next record, `None` when all records are read."""
        try:
            raw = self._read(self._descriptor, _RECORD_LIMIT_BYTES)
        except BlockingIOError:
            return None
        except BrokenPipeError:
            # The ring went over unread records; the gap in their numbers says how many.
            return b""
        except OSError as error:
            raise KernelLogUnavailable(self._path, error) from error
        if not raw:
            raise KernelLogUnavailable(
                self._path, OSError(errno.ENODATA, "it has ended, which the kernel's never does")
            )
        return raw

    def _accept(self, raw: bytes) -> KernelRecord | None:
        record = parse_record(raw)
        if record is None:
            self.malformed_count += 1
            # The malformed record's number must not count as lost.
            self._last = None if self._last is None else self._last + 1
            return None
        if record.sequence <= self._handled:
            return None
        lost = 0 if self._last is None else max(0, record.sequence - self._last - 1)
        if record.facility != _KERNEL_FACILITY:
            self._last = record.sequence - lost
            return None
        self._last = record.sequence
        return structs.replace(record, lost_before=lost) if lost else record
