"""Named gates for the order of starts and for the readiness of the agent.

Owns the gates: declared names, open or closed, since when and by which component. Gates order only the start: closing
a gate stops no component. Refuses undeclared names. Belongs to the event loop's thread.
"""

from collections.abc import Iterable

from nodeagent.core.channels.mailbox import Waker
from nodeagent.core.clock import Clock, SystemClock
from nodeagent.core.errors import GateUnknown
from nodeagent.core.values import GateState


class Gates:
    """All gates of the process; a gate starts closed."""

    def __init__(self, names: Iterable[str], *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        now = self._clock.wall()
        self._states = {name: GateState(name, is_open=False, since=now, by="") for name in names}
        self._sleepers: set[Waker] = set()

    def open(self, name: str, *, by: str = "") -> None:
        """Let all waiters through; opening an open gate changes nothing."""
        self._move(name, by, is_open=True)

    def close(self, name: str, *, by: str = "") -> None:
        """Hold back later waiters; closing a closed gate changes nothing."""
        self._move(name, by, is_open=False)

    def is_open(self, name: str) -> bool:
        """Whether the gate is open now."""
        return self._state(name).is_open

    def closed_among(self, *names: str) -> tuple[str, ...]:
        """The closed gates among `names`, in the order given."""
        return tuple(name for name in names if not self.is_open(name))

    def states(self) -> tuple[GateState, ...]:
        """Every gate in the order of declaration."""
        return tuple(self._states.values())

    async def wait_open(self, *names: str) -> None:
        """Return when all of `names` are open at the same moment."""
        waker = Waker()
        self._sleepers.add(waker)
        try:
            while self.closed_among(*names):
                await waker.wait()
        finally:
            self._sleepers.remove(waker)

    async def wait_changed(self) -> None:
        """Return at the next opening or closing of any gate."""
        waker = Waker()
        self._sleepers.add(waker)
        try:
            await waker.wait()
        finally:
            self._sleepers.remove(waker)

    def _state(self, name: str) -> GateState:
        try:
            return self._states[name]
        except KeyError:
            raise GateUnknown(name, tuple(self._states)) from None

    def _move(self, name: str, by: str, *, is_open: bool) -> None:
        if self._state(name).is_open is is_open:
            return
        self._states[name] = GateState(name, is_open=is_open, since=self._clock.wall(), by=by)
        for sleeper in self._sleepers:
            sleeper.wake()
