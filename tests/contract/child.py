"""Questions to a library, each in a process in which nothing was called before."""

import ctypes
import json
import os
import traceback
from collections.abc import Callable
from typing import Any


def in_a_child(path: str, ask: Callable[[ctypes.CDLL], Any]) -> Any:
    """The answer of a process that has just loaded the library; a signal that ended it, below zero."""
    library = ctypes.CDLL(path)  # once for all children, which begin with it as it is before any call
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writing, json.dumps(ask(library)).encode())
            status = 0
        except Exception:
            traceback.print_exc()
            raise
        finally:
            os._exit(status)  # the child must not go on with the parent's work, whatever went wrong
    os.close(writing)
    with os.fdopen(reading) as answers:
        text = answers.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status <= 0, "the question itself failed"
    return json.loads(text) if status == 0 else status
