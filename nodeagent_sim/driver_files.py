"""The driver files of a simulated node: none, so a container only learns the names of its devices."""

import anyio

from nodeagent.model.cdi import DriverFiles


class MadeUpDriverFiles:
    """The port `DriverFileSource` without a driver."""

    async def read_driver_files(self) -> DriverFiles:
        """No files of the host."""
        await anyio.lowlevel.checkpoint()
        return DriverFiles(made_up=True)
