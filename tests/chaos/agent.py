"""The agent as a process that can be killed, stopped, frozen and asked; and how long the machine kept it waiting.

Owns the process, its settings and its configuration file; judges nothing.
"""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from anyio.to_thread import run_sync

END_SECONDS = 60.0
"""A machine with other work on it."""
ANSWER_SECONDS = 30.0


class Agent:
    """`nodeagent run`, one life after the other."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object],
        environment: Mapping[str, str],
        module: str = "nodeagent",
    ) -> None:
        self._module = module
        self.port = int(str(settings["http.listen"]).rpartition(":")[2])
        self._words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        base = {"PATH": os.environ["PATH"], "HOME": str(directory), "TMPDIR": str(directory)}
        self._environment = {**base, **environment}
        self.once: Mapping[str, str] = {}
        """What the environment of the next life has besides, and no other."""
        self._config = directory / "config.yaml"
        self.configure({})
        self._log = (directory / "agent.log").open("wb")

    def begin(self) -> None:
        """The first life, or the next."""
        command = [sys.executable, "-m", self._module, "run", "--config", str(self._config), *self._words]
        environment, self.once = {**self._environment, **self.once}, {}
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=self._log)
        self.has_answered = False
        """Whether this life has come so far that it listens to signals."""

    def configure(self, document: object) -> None:
        """What the configuration file says from now on; a text goes into it as it is."""
        self._config.write_text(document if isinstance(document, str) else json.dumps(document))

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, sent: signal.Signals) -> None:
        self._process.send_signal(sent)

    async def end(self, sent: signal.Signals) -> int:
        self._process.send_signal(sent)
        return await run_sync(self._process.wait, END_SECONDS)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body; 0 where nobody listens."""
        try:
            answer = await run_sync(self._get, path)
        except OSError as error:
            return 0, str(error)
        self.has_answered = True
        return answer

    def _get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def list_children(self) -> list[int]:
        """The GPU worker, where there is one now."""
        pid = self._process.pid
        try:
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:  # it has just ended
            return []

    def read_waits(self) -> dict[int, float]:
        """By thread: seconds that the agent, its worker and this process were able to run and had no processor."""
        waits: dict[int, float] = {}
        for pid in (os.getpid(), self._process.pid, *self.list_children()):
            with contextlib.suppress(OSError):  # ended meanwhile
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    waits[int(thread.name)] = int((thread / "schedstat").read_text().split()[1]) / 1e9
        return waits


def measure_stall(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Seconds that the longest kept of these threads waited for a processor in between: the machine's, not the agent's.

    Only the one that waited longest counts, since threads may wait at the same time.
    """
    return max((waited - before.get(thread, 0.0) for thread, waited in after.items()), default=0.0)
