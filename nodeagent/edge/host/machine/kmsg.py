"""Reads the kernel log from the oldest record the kernel still has, and goes on as new ones come.

Owns the descriptor of /dev/kmsg, the position in it, and the count of records that were lost unread.
Refuses records from user space: anyone who may write to /dev/kmsg could fake a broken GPU, but not the kernel's
facility. A record that cannot be taken apart is counted and passed over; it never ends the reader.
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
"""Twice what the kernel ever writes; a read into less fails without consuming the record."""
_BUDGET = 200
"""Records taken in one go: a flood of them must not starve the event loop."""
_KERNEL_FACILITY = 0


class KernelLog:
    """One reader with its own position. Belongs to one task; use as a context manager.

    Args:
        path: the log device.
        after_sequence: the last record handled before, in this same boot; earlier ones are passed over.
        accept_user_records: also take records from user space. For tests only: they can be forged.
        read: how to read from the descriptor, replaced in tests.
    """

    def __init__(
        self,
        path: Path = KERNEL_LOG,
        *,
        after_sequence: int | None = None,
        accept_user_records: bool = False,
        read: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self.malformed_count = 0
        """Records that could not be taken apart."""
        self._path, self._read = path, read
        self._last = after_sequence
        self._handled = -1 if after_sequence is None else after_sequence
        self._accept_user_records = accept_user_records
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
            KernelLogUnavailable: the log can no longer be read.
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
        """Those records that are there now, at most a batch of them; `None` when there is nothing more to read.

        Raises:
            KernelLogUnavailable: the log can no longer be read.
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
        """One record; empty when the kernel overwrote what was next, `None` when all is read."""
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
            # It had a number, which must not count as lost.
            self._last = None if self._last is None else self._last + 1
            return None
        if record.sequence <= self._handled:
            return None
        lost = 0 if self._last is None else max(0, record.sequence - self._last - 1)
        if record.facility != _KERNEL_FACILITY and not self._accept_user_records:
            self._last = record.sequence - lost
            return None
        self._last = record.sequence
        return structs.replace(record, lost_before=lost) if lost else record
