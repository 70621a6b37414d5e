"""Callers are taken in portions, and a listener that fails is left alone for a while."""

import errno
import itertools
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import anyio
import pytest

from nodeagent.core import acceptor
from nodeagent.core.acceptor import PER_TURN, Acceptor
from tests.support.wire.broken_listener import BrokenListener


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=4 * PER_TURN) as server:
        yield server


def fail(error: OSError) -> None:
    raise AssertionError from error


async def test_many_callers_are_taken_and_others_have_their_turn_between(listener: socket.socket) -> None:
    """Of a crowd that waits, no more than a portion in one turn of the loop."""
    taken: list[socket.socket] = []
    with ExitStack() as stack:
        for _ in range(2 * PER_TURN):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        one = Acceptor(listener, lambda caller: taken.append(stack.enter_context(caller)), fail)
        counts = [0]
        with anyio.fail_after(20):
            while len(taken) < 2 * PER_TURN:
                await anyio.lowlevel.checkpoint()
                counts.append(len(taken))
        one.close()
        assert max(after - before for before, after in itertools.pairwise(counts)) <= PER_TURN
        assert all(caller.gettimeout() == 0 for caller in taken)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPROTO])
async def test_a_listener_that_fails_is_tried_again_after_a_pause(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """One attempt and one word a pause; the caller waits in the kernel and is taken in the end."""
    monkeypatch.setattr(acceptor, "PAUSE_SECONDS", 0.05)
    told: list[OSError] = []
    taken = anyio.Event()
    broken = BrokenListener(listener, code, 3)

    def take(caller: socket.socket) -> None:
        caller.close()
        taken.set()

    one = Acceptor(broken, take, told.append)  # type: ignore[arg-type]  # all of a socket that is asked for
    with socket.create_connection(listener.getsockname()), anyio.fail_after(20):
        await taken.wait()
    one.close()
    assert [error.errno for error in told] == [code] * 3
    assert broken.attempts <= 5


async def test_closing_in_a_pause_ends_it(listener: socket.socket) -> None:
    """Nothing is taken afterwards, and the listener may be read by another."""
    failed = anyio.Event()
    broken = BrokenListener(listener, errno.EMFILE, 1)
    one = Acceptor(broken, lambda caller: caller.close(), lambda _error: failed.set())  # type: ignore[arg-type]
    with socket.create_connection(listener.getsockname()), anyio.fail_after(20):
        await failed.wait()
        one.close()
        taken = anyio.Event()
        with ExitStack() as stack:

            def take(caller: socket.socket) -> None:
                stack.enter_context(caller)
                taken.set()

            other = Acceptor(listener, take, fail)
            await taken.wait()
            other.close()
    assert broken.attempts == 1
