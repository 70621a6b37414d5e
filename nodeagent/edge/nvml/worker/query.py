"""One question to the library at a time: answered, absent, or marked as unreadable; only a lost GPU ends the reading.

Runs in the worker process. Owns the memory of questions unknown to the driver or the GPU, so that no such question is
repeated each second. Refuses to interpret answers.
"""

import time

import pynvml

from nodeagent.edge.nvml import errors
from nodeagent.edge.nvml.shared import Any

_CHOICES = 1 << 32


class GpuGone(Exception):
    """The GPU cannot be reached at all; the message says why, in words for people."""


class Query:
    """The questions about one GPU, by handle."""

    def __init__(self, handle: Any, hopeless: dict[Any, int]) -> None:
        self.handle = handle
        self.unreadable: list[dict[str, str]] = []
        self.calls = 0
        self._hopeless = hopeless

    def ask(self, what: str, function: str, *arguments: Any, default: Any = None) -> Any:
        """The answer of pynvml's function for the handle, or the default."""
        return self.ask_of(self.handle, what, function, *arguments, default=default)

    def ask_of(self, handle: Any, what: str, function: str, *arguments: Any, default: Any = None) -> Any:
        """As `ask`, for another handle, such as a MIG device's."""
        code, answer = self.attempt_of(handle, function, *arguments)
        if code != errors.SUCCESS:
            self.mark(what, code)
            return default
        return answer

    def attempt_of(self, handle: Any, function: str, *arguments: Any) -> tuple[int, Any]:
        """The code and the answer, unmarked, for a caller with another way."""
        key = self._name_question(handle, function, arguments)
        if key in self._hopeless:
            return self._hopeless[key], None
        self.calls += 1
        code, answer = call(function, handle, *arguments)
        if code:
            self._note_failure(key, function, code)
        return code, answer

    def fill(self, function: str, what: str, *arguments: Any) -> bool:
        """Have the library write into existing buffers, past the binding, which would make new buffers each time."""
        key = self._name_question(self.handle, function, (what,))
        code = self._hopeless.get(key)
        if code is None:
            self.calls += 1
            code = call_library(function, self.handle, *arguments)
            if code:
                self._note_failure(key, function, code)
        self.mark(what, code)
        return code == errors.SUCCESS

    def _note_failure(self, key: Any, function: str, code: int) -> None:
        if code in errors.LOST_CODES:
            raise GpuGone(f"{function}: {errors.describe_code(code)}")
        if code in errors.LASTING_CODES:
            self._hopeless[key] = code

    def _name_question(self, handle: Any, function: str, arguments: tuple[Any, ...]) -> Any:
        """The key of a question: small numbers choose among data or versions, larger numbers are times."""
        if not arguments and handle is self.handle:
            return function
        choices = [one for one in arguments if isinstance(one, str) or (isinstance(one, int) and one < _CHOICES)]
        return (function, handle is self.handle, *choices)

    def mark(self, what: str, code: int) -> None:
        """Note that a datum could not be read, unless the hardware lacks the datum."""
        if code != errors.SUCCESS and code not in errors.ABSENT_CODES:
            self.unreadable.append({"what": what, "reason": errors.describe_code(code)})


class CallCounts:
    """Times and failures of the process's calls since the last report."""

    def __init__(self) -> None:
        self._spent: dict[str, list[Any]] = {}
        self._failures: dict[tuple[str, int], int] = {}

    def note(self, function: str, code: int, seconds: float) -> None:
        """Count one call."""
        spent = self._spent.get(function)
        if spent is None:
            spent = self._spent[function] = [0, 0.0]
        spent[0] += 1
        spent[1] += seconds
        if code:
            self._failures[function, code] = self._failures.get((function, code), 0) + 1

    def take(self) -> dict[str, list[Any]]:
        """Calls and seconds by function, and failures by function and code; counted anew from now on."""
        spent, failures = self._spent, self._failures
        self._spent, self._failures = {}, {}
        return {
            "spent": [(function, calls, seconds) for function, (calls, seconds) in spent.items()],
            "failures": [(function, code, count) for (function, code), count in failures.items()],
        }


CALL_COUNTS = CallCounts()
"""That of this process, which has one library."""


def call(function: str, *arguments: Any) -> tuple[int, Any]:
    """Make one library call; any failure is a code."""
    began = time.perf_counter()
    code, answer = _call(function, arguments)
    CALL_COUNTS.note(function, code, time.perf_counter() - began)
    return code, answer


def wait_library(function: str, *arguments: Any) -> tuple[int, Any]:
    """As `call`, for a call that waits for events and so counts for no statistics."""
    return _call(function, arguments)


def _call(function: str, arguments: tuple[Any, ...]) -> tuple[int, Any]:
    try:
        return errors.SUCCESS, getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError as error:
        code: int = error.value
        # The binding raises "success" for an empty list, which holds no data.
        return code or errors.NOT_FOUND, None
    except UnicodeDecodeError:
        return errors.UNINTELLIGIBLE, None


def put(values: dict[str, Any], name: str, value: Any) -> None:
    """Note a reading under its name in the model, if there is one."""
    if value is not None:
        values[name] = value


def call_library(function: str, *arguments: Any) -> int:
    """Make one library call without the binding; the return code."""
    began = time.perf_counter()
    try:
        code: int = getattr(pynvml.nvmlLib, function)(*arguments)
    except AttributeError:
        code = errors.FUNCTION_NOT_FOUND
    CALL_COUNTS.note(function, code, time.perf_counter() - began)
    return code
