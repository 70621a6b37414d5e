"""Remedies for a device, from the mildest to the last resort, in the words of one page."""

from enum import StrEnum


class Remedy(StrEnum):
    """One kind of action."""

    NOTHING = "nothing"
    RESTART_APPLICATION = "restart-application"
    UPDATE_DRIVER = "update-driver"
    CHECK_COOLING = "check-cooling"
    CHECK_LINKS = "check-links"
    CHECK_SLOT = "check-slot"
    CHECK_DRIVER = "check-driver"
    WATCH = "watch"
    DRAIN_AND_RESET = "drain-and-reset"
    RESET_GPU = "reset-gpu"
    REBOOT_NODE = "reboot-node"
    POWER_CYCLE = "power-cycle"
    SERVICE = "service"

    @property
    def sentence(self) -> str:
        """The remedy as an instruction."""
        return _SENTENCES[self]


_SENTENCES = {
    Remedy.NOTHING: "nothing needs to be done",
    Remedy.RESTART_APPLICATION: "restart the application; look for the fault in it before looking at the GPU",
    Remedy.UPDATE_DRIVER: "check that driver, firmware and software versions fit, and update them",
    Remedy.CHECK_COOLING: "check fans, air flow and power of the machine",
    Remedy.CHECK_LINKS: "check seating, cables, `nvidia-smi nvlink --status`, and with NVSwitch the fabric manager",
    Remedy.CHECK_SLOT: "check how the card sits in its slot, its riser and power; replace what the fault stays with",
    Remedy.CHECK_DRIVER: "read `dmesg | grep NVRM` for the GPU's address; if it lasts, drain the node and reboot it",
    Remedy.WATCH: "watch it; run diagnostics if it happens again",
    Remedy.DRAIN_AND_RESET: "let running work finish, then reset the GPU with `nvidia-smi --gpu-reset`",
    Remedy.RESET_GPU: "stop the work on it and reset the GPU with `nvidia-smi --gpu-reset`",
    Remedy.REBOOT_NODE: "drain the node and reboot it",
    Remedy.POWER_CYCLE: "drain the node and power-cycle it; check cables and seating if the fault returns",
    Remedy.SERVICE: "have the board diagnosed and replaced; `nodeagent gpu clear` takes it back after service",
}
