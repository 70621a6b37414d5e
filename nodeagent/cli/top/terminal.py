"""The terminal as a screen to draw on and as a source of keys; given back unchanged, whatever happens.

Owns the terminal's modes and signals. The names of keys are in `keys`. A signal that ends the process ends it after the
terminal was given back, and by the same signal.
"""

import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Self, TextIO

from nodeagent.cli.top.keys import parse_keys

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"
"""Another screen, no cursor, no wrapping: a line with wide characters is cut, not continued."""
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE = "\x1b[H", "\x1b[K"
ESCAPE_SECONDS = 0.05
"""The longest pause between an escape character and the rest of its sequence."""
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class EndedBySignal(Exception):
    """A signal asked the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Terminal:
    """A use of the terminal, as a context."""

    def __init__(self, keyboard: TextIO, screen: TextIO) -> None:
        self._keyboard, self._screen = keyboard.fileno(), screen
        self._modes: list[Any] = []
        self._pending = b""
        self._is_entered = False
        self._wake_read, self._wake_write = os.pipe()
        self._handlers: dict[int, Any] = {}
        self._wakeup_before = -1
        self._ended_by = 0

    def __enter__(self) -> Self:
        self._modes = termios.tcgetattr(self._keyboard)
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        self._wakeup_before = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        handlers: dict[int, Callable[[int, FrameType | None], None]] = {
            signal.SIGWINCH: _do_nothing,  # waking up is all
            signal.SIGTSTP: self._suspend,
            signal.SIGCONT: self._resume,
            **dict.fromkeys(ENDING, self._end),
        }
        for number, handler in handlers.items():
            self._handlers[number] = signal.signal(number, handler)
        self._take()

    def __exit__(self, *_: object) -> None:
        # A second signal must wait until everything is given back.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (*self._handlers, signal.SIGINT))
        try:
            self._give_back()
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._wake_read)
            os.close(self._wake_write)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def wake(self) -> None:
        """Have `wait` return; from any thread."""
        with suppress(OSError):
            os.write(self._wake_write, b"\x00")

    def wait(self) -> list[str]:
        """The pressed keys; empty when another event woke the wait.

        Raises:
            EOFError: The terminal is gone.
            EndedBySignal: A signal to end came where the interpreter drops errors, as while it frees objects.
        """
        seconds = ESCAPE_SECONDS if self._pending else None
        ready, _, _ = select.select([self._keyboard, self._wake_read], [], [], seconds)
        if self._ended_by:
            raise EndedBySignal(self._ended_by)
        if self._wake_read in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if self._keyboard in ready:
            try:
                content = os.read(self._keyboard, 4096)
            except OSError as error:
                raise EOFError from error
            if not content:
                raise EOFError
            self._pending += content
        keys, self._pending = parse_keys(self._pending, is_all=not ready)
        return keys

    def draw(self, lines: Sequence[str]) -> None:
        """Draw the lines on the screen, in one write so that nothing flickers."""
        # Each line is cleared before the write: after a line of full width the cursor stands on its last character.
        self._write(HOME + "\r\n".join(f"{CLEAR_LINE}{line}" for line in lines))

    def read_size(self) -> os.terminal_size:
        """Columns and lines now."""
        try:
            size = os.get_terminal_size(self._screen.fileno())
        except OSError:
            return os.terminal_size((80, 24))
        return size if size.columns and size.lines else shutil.get_terminal_size()

    def _take(self) -> None:
        # Keys come one by one and without an echo, and Ctrl-C and Ctrl-Z keep their usual meaning.
        tty.setcbreak(self._keyboard, termios.TCSADRAIN)
        if not self._is_entered:
            self._is_entered = True
            self._write(ENTER)

    def _give_back(self) -> None:
        # A lost terminal needs no modes back.
        with suppress(OSError, termios.error):
            self._is_entered = False
            self._write(LEAVE)
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._modes)

    def _write(self, text: str) -> None:
        self._screen.write(text)
        self._screen.flush()

    def _suspend(self, number: int, _frame: FrameType | None) -> None:
        self._give_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        # The process goes on here after SIGCONT, or at once where no shell could ever continue it.
        signal.signal(number, self._suspend)
        self._take()

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self._ended_by = number
        raise EndedBySignal(number)

    def _resume(self, _number: int, _frame: FrameType | None) -> None:
        self._take()


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


@contextmanager
def end_by_signal() -> Iterator[None]:
    """Let a signal that ended the work inside end the process too, after everything is given back."""
    try:
        yield
    except EndedBySignal as ended:
        signal.signal(ended.number, signal.SIG_DFL)
        os.kill(os.getpid(), ended.number)


def is_interactive(screen: TextIO, term: str) -> bool:
    """Whether a user with a keyboard sits before a screen fit for drawing."""
    return screen.isatty() and sys.stdin is not None and sys.stdin.isatty() and term not in {"", "dumb"}
