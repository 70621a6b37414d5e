"""What a standby says of its wait."""

import errno
import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.app.endpoints import LOCK, open_endpoints
from nodeagent.app.errors import DirectoryUnusable
from nodeagent.app.standby import Standby, describe_wait
from nodeagent.config.kinds import Address
from nodeagent.config.schema import Settings
from nodeagent.edge.host.errors import FileNotWritten, StateLocked
from nodeagent.edge.host.files.state_lock import StateLock

REFUSAL = StateLocked(Path("/var/lib/nodeagent/agent.lock"), 1, "nodeagent-x7k2p")


@pytest.mark.parametrize(
    ("waited_seconds", "patience_seconds", "is_long"), [(119.9, 120.0, False), (120.0, 120.0, True), (0.0, 0.0, True)]
)
def test_a_long_wait_has_a_remedy(waited_seconds: float, patience_seconds: float, *, is_long: bool) -> None:
    """The holder by process and pod, the lock, the time; the remedy once the time is over."""
    said = describe_wait(REFUSAL, waited_seconds, patience_seconds)
    assert said.startswith("process 1 of nodeagent-x7k2p held /var/lib/nodeagent/agent.lock when this agent started")
    assert f"has waited {waited_seconds:.0f} s since" in said
    assert ("stop the nodeagent that has the lock" in said) == is_long


def test_a_lock_that_cannot_be_written_is_an_error_of_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk when the standby takes over: one line with the file, and the handlers of signals as they were."""
    settings = Settings()
    settings = replace(
        settings,
        http=replace(settings.http, listen=Address("127.0.0.1", 0)),
        node=replace(settings.node, state_dir=tmp_path / "state", run_dir=tmp_path / "run"),
    )
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def fail(lock: StateLock) -> None:
        raise FileNotWritten(tmp_path / "state" / LOCK, "write who holds it", full, replaced=False)

    def stop(_number: int, _frame: object) -> None:
        raise AssertionError

    monkeypatch.setattr(StateLock, "acquire_when_free", fail)
    before = signal.signal(signal.SIGTERM, stop)
    with open_endpoints(settings):
        with pytest.raises(DirectoryUnusable, match="write who holds it"):
            with open_endpoints(settings, wait=Standby(settings, 60.0).wait):
                pass
    assert signal.signal(signal.SIGTERM, before) is stop
