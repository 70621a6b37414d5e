"""Commands to the running agent, from a person or a label."""

from collections.abc import Sequence
from typing import Protocol

from nodeagent.model.offering import Door
from nodeagent.model.parts import PartWish


class AgentControl(Protocol):
    """Commands of a person to the running agent, over the admin socket."""

    async def reload(self) -> str:
        """Read the configuration anew; reports the changes.

        Raises:
            ControlRefused: The new configuration is invalid; the configuration before stays in force.
        """
        ...

    async def inject_fault(self, fault: str, arguments: Sequence[str]) -> str:
        """Inject a fault into the simulation; reports the effect.

        Raises:
            ControlRefused: The agent does not simulate, or the fault makes no sense.
        """
        ...

    async def crash_component(self, name: str, reason: str) -> str:
        """End a component as if it had failed, to see the agent recover.

        Raises:
            ControlRefused: No component of that name.
        """
        ...

    async def release(self, reason: str, seconds: float | None) -> str:
        """Give up every GPU handle, for so long at most.

        Raises:
            ControlRefused: the handles cannot be given up.
        """
        ...

    async def resume(self) -> str:
        """Take the driver back."""
        ...

    async def clear_gpu(self, name: str, reason: str, who: str) -> str:
        """Take a GPU back into service on a person's word; reports the cleared faults.

        Raises:
            ControlRefused: No such GPU, no fault to clear, or health is not judged at the moment.
        """
        ...

    async def forget_gpu(self, name: str, who: str) -> str:
        """Take a person's word that a vanished GPU is gone for good; reports the GPU.

        Raises:
            ControlRefused: No such GPU is missed, or the GPUs are not known at the moment.
        """
        ...

    async def set_door(self, name: str, door: Door | None, who: str) -> str:
        """Set a GPU's allocation mode, or the configured mode for `None`; reports how the GPU's mode stands now.

        Raises:
            ControlRefused: No such GPU or mode, no durable store, or allocation modes are not managed now.
        """
        ...

    async def apply_layout(self, name: str, who: str) -> str:
        """Apply a MIG layout, or the layout before for an empty name; reports the planned changes.

        Raises:
            ControlRefused: No such layout, an impossible layout, or GPUs are not partitioned at the moment.
        """
        ...

    async def set_part(self, wish: PartWish) -> str:
        """Give a running container other limits; reports the limits in force.

        Raises:
            ControlRefused: No such container, too little left of the GPU, or fractions are not given now.
        """
        ...


class PartSetting(Protocol):
    """Limits of running containers, set by a person."""

    async def set_part(self, wish: PartWish) -> str:
        """Give a running container other limits; reports the limits in force.

        Raises:
            ControlRefused: No such container, too little left of the GPU, or fractions are not given now.
        """
        ...


class ConfigurationControl(Protocol):
    """The named configurations of the node, chosen by the cluster."""

    async def follow_label(self, label: str, *, cause: int | None = None) -> str:
        """Put the configuration named by the node's label in force, or the default for no name; reports the changes.

        Raises:
            ControlRefused: No configuration of that name, or an invalid configuration; the one before stays in force.
        """
        ...
