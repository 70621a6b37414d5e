"""The services of the host that have the driver open, by systemctl: whoever takes modules out stops these first."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal

from nodeagent.core.log.audit import noting
from nodeagent.model.repairs import ToolAnswer

RunOnHost = Callable[[Sequence[str], float], Awaitable[ToolAnswer]]
"""Runs a command with the host's programs and files, for so many seconds at most."""
SERVICE_SECONDS: Final = 90.0
"""As long as systemd waits for a service by default."""


class HostServices:
    """The services named by `driver.services`."""

    def __init__(self, run_on_host: RunOnHost, read_names: Callable[[], Sequence[str]]) -> None:
        self._run, self.read_names = run_on_host, read_names

    async def is_running(self, name: str) -> bool:
        """Whether the service runs; a service that does not is no one's to start afterwards."""
        return (await self._run(("systemctl", "is-active", "--quiet", name), SERVICE_SECONDS)).code == 0

    async def change(self, name: str, action: Literal["start", "stop"], why: str) -> str:
        """Start or stop a service; the problem, if any."""
        with noting("service", name, action, why):
            answer = await self._run(("systemctl", action, name), SERVICE_SECONDS)
        return "" if answer.code == 0 else f"systemctl did not {action} {name}: {answer.describe()}"
