"""What a person, or a label, may tell the running agent to do."""

from collections.abc import Sequence
from typing import Protocol

from nodeagent.model.offering import Door
from nodeagent.model.parts import PartWish


class AgentControl(Protocol):
    """What a person may tell the running agent to do, over the admin socket."""

    async def reload(self) -> str:
        """Read the configuration anew; says what changed.

        Raises:
            ControlRefused: the new configuration is invalid; the one before stays in force.
        """
        ...

    async def inject_fault(self, fault: str, arguments: Sequence[str]) -> str:
        """Have the simulation misbehave; says what was done.

        Raises:
            ControlRefused: this agent does not simulate, or the fault makes no sense.
        """
        ...

    async def crash_component(self, name: str, reason: str) -> str:
        """End one component as if it had failed, to see the agent recover.

        Raises:
            ControlRefused: no component of that name.
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
        """Take a GPU back into service on a person's word; says what was forgotten.

        Raises:
            ControlRefused: no such GPU, nothing to clear, or nobody judges health at the moment.
        """
        ...

    async def forget_gpu(self, name: str, who: str) -> str:
        """Take a person's word that a GPU which has vanished is gone for good; says which.

        Raises:
            ControlRefused: no such GPU is missed, or the GPUs are not known at the moment.
        """
        ...

    async def set_door(self, name: str, door: Door | None, who: str) -> str:
        """Have a GPU go through this door, or the configured one for `None`; says how its door stands now.

        Raises:
            ControlRefused: no such GPU or door, it cannot be remembered, or nobody looks after the doors now.
        """
        ...

    async def apply_layout(self, name: str, who: str) -> str:
        """Have the GPUs cut as this layout says, or as the one before for an empty name; says what will change.

        Raises:
            ControlRefused: there is no such layout, it cannot be had, or nobody cuts GPUs at the moment.
        """
        ...

    async def set_part(self, wish: PartWish) -> str:
        """Give a running container other limits; says what it has now.

        Raises:
            ControlRefused: no such container, the GPU has not so much left, or nobody gives parts now.
        """
        ...


class PartSetting(Protocol):
    """Whoever gives GPUs in parts, told by a person how much a container is to have."""

    async def set_part(self, wish: PartWish) -> str:
        """Give a running container other limits; says what it has now.

        Raises:
            ControlRefused: no such container, the GPU has not so much left, or nobody gives parts now.
        """
        ...


class ConfigurationControl(Protocol):
    """The named configurations of this node, one of which the cluster chooses."""

    async def follow_label(self, label: str, *, cause: int | None = None) -> str:
        """Put the one in force that the node's label asks for, or the default for none; says what changed.

        Raises:
            ControlRefused: there is none of that name, or it is invalid; the one before stays in force.
        """
        ...
