"""Two agents of one state directory: the second is refused, or waits for the first to leave."""

import os
import signal
import subprocess
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.app.endpoints import LOCK, open_endpoints
from nodeagent.app.errors import AgentAlreadyRuns
from nodeagent.config.kinds import Address
from nodeagent.config.schema import Settings
from nodeagent.edge.host.errors import StateLocked
from nodeagent.edge.host.files.state_lock import StateLock
from nodeagent.edge.http.errors import ListenFailed
from tests.support.programs.namespaces import FIRST_OF_A_CONTAINER, needs_namespaces

PATIENCE_SECONDS = 30.0
ENOUGH_REFUSALS = 3
"""After so many the first agent leaves."""


def make_settings(directory: Path) -> Settings:
    settings = Settings()
    return replace(
        settings,
        http=replace(settings.http, listen=Address("127.0.0.1", 0)),
        node=replace(settings.node, state_dir=directory / "state", run_dir=directory / "run"),
    )


def test_the_second_is_refused_by_name_of_the_first(tmp_path: Path) -> None:
    """At once, with the process, the setting and what to do."""
    settings = make_settings(tmp_path)
    with open_endpoints(settings):
        with pytest.raises(AgentAlreadyRuns, match=rf"process {os.getpid()} holds it.*`node.state_dir`"):
            with open_endpoints(settings):
                pass


def test_the_second_gives_up_when_the_first_stays(tmp_path: Path) -> None:
    """Patience has an end, and then the refusal is the same."""
    settings = make_settings(tmp_path)
    with open_endpoints(settings):
        with pytest.raises(AgentAlreadyRuns, match="holds it"):
            with open_endpoints(settings, patience_seconds=0.15):
                pass


def test_the_second_takes_over_when_the_first_leaves(
    tmp_path: Path, log_lines: list[MutableMapping[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits, says for whom once, and starts as soon as the lock is free."""
    settings = make_settings(tmp_path)
    settings.node.state_dir.mkdir()
    first, acquire = StateLock(settings.node.state_dir / LOCK), StateLock.acquire
    first.acquire()
    refusals: list[StateLocked] = []

    def watch(lock: StateLock) -> None:
        try:
            acquire(lock)
        except StateLocked as refusal:
            refusals.append(refusal)
            if len(refusals) == ENOUGH_REFUSALS:
                first.release()
            raise

    monkeypatch.setattr(StateLock, "acquire", watch)
    with open_endpoints(settings, patience_seconds=PATIENCE_SECONDS) as listeners:
        assert listeners.admin_path.exists()
    assert [line["event"] for line in log_lines].count("start_waits") == 1


def test_one_that_may_move_takes_the_next_free_port(tmp_path: Path) -> None:
    """And says which one it could not have; one that may not is refused."""
    with open_endpoints(make_settings(tmp_path / "a")) as first:
        port = int(first.url.rstrip("/").rpartition(":")[2])
        settings = make_settings(tmp_path / "b")
        settings = replace(settings, http=replace(settings.http, listen=Address("127.0.0.1", port)))
        with pytest.raises(ListenFailed, match="address already in use"), open_endpoints(settings):
            pass
        with open_endpoints(settings, may_move=True) as second:
            assert second.taken == f"127.0.0.1:{port}"
            assert int(second.url.rstrip("/").rpartition(":")[2]) > port
    with open_endpoints(settings, may_move=True) as alone:
        assert (alone.taken, alone.url) == ("", f"http://127.0.0.1:{port}/")


def test_use_is_told_at_an_address_of_its_own_where_parts_are_given(tmp_path: Path) -> None:
    """One that is taken is refused by its own setting; where nothing is given in parts, nothing listens."""
    settings = make_settings(tmp_path)
    wanted = replace(settings.fractions, usage_listen=Address("127.0.0.1", 0))
    with open_endpoints(replace(settings, fractions=wanted)) as none:
        assert none.usage is None
    with open_endpoints(replace(settings, fractions=replace(wanted, enabled=True))) as first:
        assert first.usage is not None
        taken = Address("127.0.0.1", first.usage.getsockname()[1])
        second = replace(make_settings(tmp_path / "b"), fractions=replace(wanted, enabled=True, usage_listen=taken))
        with pytest.raises(ListenFailed, match=r"fractions\.usage_listen"), open_endpoints(second):
            pass


@needs_namespaces
def test_the_first_process_of_a_container_stops_while_it_waits(tmp_path: Path) -> None:
    """The kernel keeps a signal from it that has no handler; the agent is not running yet, and ends all the same."""
    settings = make_settings(tmp_path)
    words = [f"node.{key}={tmp_path / key.removesuffix('_dir')}" for key in ("state_dir", "run_dir")]
    flags = [word for each in ("http.listen=127.0.0.1:0", *words) for word in ("--set", each)]
    command = [*FIRST_OF_A_CONTAINER, sys.executable, "-m", "nodeagent", "run", "--wait=1h", *flags]
    with open_endpoints(settings), subprocess.Popen(command, stderr=subprocess.PIPE) as second:
        try:
            assert second.stderr is not None
            while b"start_waits" not in (line := second.stderr.readline()):
                assert line, "it ended"
            first_of_container = int(Path(f"/proc/{second.pid}/task/{second.pid}/children").read_text())
            os.kill(first_of_container, signal.SIGTERM)
            assert second.wait(PATIENCE_SECONDS) == 0
        finally:
            second.kill()
