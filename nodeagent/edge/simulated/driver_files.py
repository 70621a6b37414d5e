"""The driver files of a made-up node: there are none, and a container is only told what it was given."""

import anyio

from nodeagent.model.cdi import DriverFiles


class MadeUpDriverFiles:
    """The port `DriverFileSource` without a driver."""

    async def read_driver_files(self) -> DriverFiles:
        """Nothing of the host's."""
        await anyio.lowlevel.checkpoint()
        return DriverFiles(made_up=True)
